// The worker: runs the client, and is the only place that knows keys.

import { type Buffers, type Piece, Reader, Sender } from "./mailbox.js";
import type { Reply, Request } from "./messages.js";
import { initSync, Inputs, Session } from "./wasm/hushnet_wasm.js";

interface Port {
  post(reply: Reply, transfer: ArrayBuffer[]): void;
  listen(take: (request: Request) => void): void;
}

async function port(): Promise<Port> {
  const scope = globalThis as unknown as {
    onmessage: ((event: { data: Request }) => void) | null;
    postMessage?: (reply: Reply, transfer: ArrayBuffer[]) => void;
  };
  const post = scope.postMessage;
  if (post) {
    return {
      post: (reply, transfer) => post.call(globalThis, reply, transfer),
      listen: (take) => { scope.onmessage = (event) => take(event.data); },
    };
  }
  const name = "node:worker_threads";
  const { parentPort } = (await import(/* @vite-ignore */ name)) as {
    parentPort: { postMessage: Port["post"]; on(event: "message", take: (request: Request) => void): void };
  };
  return { post: (reply, transfer) => parentPort.postMessage(reply, transfer), listen: (take) => parentPort.on("message", take) };
}

const { post, listen } = await port();
let session: Session | undefined;
/** Whether the page listens to progress: every message to it takes processor time of both threads. */
let telling = false;
/** Buffers of messages that the page has sent. */
let buffers: Buffers | undefined;

/** What the client calls; crates/wasm/src/host.rs declares it. */
function host(shared: SharedArrayBuffer): object {
  const reader = new Reader(shared);
  const sender = new Sender(shared);
  buffers = sender.buffers;
  return {
    send(bytes: Uint8Array): void {
      const tell = (piece: Piece) => post({ kind: "send", piece }, []);
      sender.send(bytes, tell, (moved) => post({ kind: "move", moved }, [moved.buffer]));
    },
    receive(limit: number): number {
      return reader.next(limit, () => post({ kind: "want" }, []));
    },
    take(frame: Uint8Array): void {
      reader.take(frame, () => post({ kind: "want" }, []));
    },
    progress(stage: string, index: number, stages: number, done: number, parts: number): void {
      if (telling) post({ kind: "progress", progress: { stage, index, stages, done, parts } }, []);
    },
  };
}

function open(request: Request & { kind: "open" }): void {
  initSync({ module: request.module });
  (globalThis as { hushnetHost?: object }).hushnetHost = host(request.shared);
  session = Session.open(request.model, request.token, request.allowInsecure, request.memory, request.images);
  post({ kind: "opened", plan: session.plan(), trust: session.trust() }, []);
}

function infer(request: Request & { kind: "infer" }): void {
  if (!session) throw new Error("the session is closed");
  telling = request.tell;
  buffers?.put(request.buffers);
  const inputs = new Inputs();
  for (const { name, shape, data } of request.inputs) {
    if (data instanceof Float32Array) inputs.add32(name, Uint32Array.from(shape), data);
    else inputs.add64(name, Uint32Array.from(shape), data);
  }
  const answer = session.infer(inputs);
  const outputs = Array.from({ length: answer.count() }, (_, i) => ({
    name: answer.name(i),
    output: { shape: Array.from(answer.shape(i)), data: new Float64Array(answer.data(i)) },
  }));
  const spare = request.inputs.map(({ data }) => data.buffer);
  const reply: Reply = { kind: "answer", outputs, outOfRange: answer.out_of_range() ?? null, trace: answer.trace(), spare };
  answer.free();
  post(reply, [...outputs.map((o) => o.output.data.buffer), ...spare]);
}

function close(): void {
  session?.close();
  session = undefined;
  post({ kind: "closed" }, []);
}

listen((request) => {
  try {
    if (request.kind === "open") open(request);
    else if (request.kind === "infer") infer(request);
    else close();
  } catch (error) {
    const { name, message } = error instanceof Error ? error : { name: "Error", message: String(error) };
    let alive = false;
    try {
      alive = session?.is_open() ?? false;
    } catch {
      // The program has stopped in the middle: nothing of it is of use.
    }
    post({ kind: "failed", name, message, open: alive }, []);
  }
});
