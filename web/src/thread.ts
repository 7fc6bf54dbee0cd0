// A worker of the platform: the page's, or Node's.

import type { Reply, Request } from "./messages.js";
import { steps } from "./wasm/relaxed.js";

export interface Thread {
  post(request: Request, transfer: ArrayBuffer[]): void;
  listen(take: (reply: Reply) => void, failed: (error: Error) => void): void;
  stop(): void;
}

/** Modules of Node, behind a name that bundlers for pages leave alone. */
function node(name: string): Promise<any> {
  return import(/* @vite-ignore */ `node:${name}`);
}

const inNode = typeof Worker === "undefined";

/** A function of one fused step: what a platform without relaxed SIMD refuses. */
const STEP = Uint8Array.of(
  0, 97, 115, 109, 1, 0, 0, 0, 1, 8, 1, 96, 3, 123, 123, 123, 1, 123, 3, 2, 1, 0, 10, 13, 1, 11, 0, 32, 0, 32, 1, 32, 2, 253, 135, 2, 11,
);

/**
 * Puts `v128.bitselect`, which takes and gives as much, and a `nop` in the place of every fused step. The program finds that its steps are not fused then, and
 * calls no function that has any (crates/ring/src/simd.rs).
 */
function withoutSteps(bytes: Uint8Array<ArrayBuffer>): Uint8Array<ArrayBuffer> {
  let at = 0;
  for (const step of steps) {
    at += step;
    bytes.set([253, 82, 1], at);
  }
  return bytes;
}

/** The client's program, compiled while it is loaded where the server names its type; browsers keep what they compile so. */
export async function program(): Promise<WebAssembly.Module> {
  const url = new URL("./wasm/hushnet_wasm_bg.wasm", import.meta.url);
  const relaxed = WebAssembly.validate(STEP);
  const compiled = (bytes: Uint8Array<ArrayBuffer>) => WebAssembly.compile(relaxed ? bytes : withoutSteps(bytes));
  if (inNode) return compiled(await (await node("fs/promises")).readFile(url));
  const answer = await fetch(url);
  if (!answer.ok) throw new Error(`${url.href}: HTTP status ${answer.status}`);
  const named = answer.headers.get("content-type")?.startsWith("application/wasm");
  return named && relaxed ? WebAssembly.compileStreaming(answer) : compiled(new Uint8Array(await answer.arrayBuffer()));
}

/** Starts the worker. */
export async function spawn(): Promise<Thread> {
  if (inNode) {
    const { Worker: NodeWorker } = await node("worker_threads");
    // The flags of this process are for its own script: some of them no worker takes.
    const worker = new NodeWorker(new URL("./worker.js", import.meta.url), { execArgv: [] });
    return {
      post: (request, transfer) => worker.postMessage(request, transfer),
      listen: (take, failed) => {
        worker.on("message", take);
        worker.on("error", failed);
      },
      stop: () => void worker.terminate(),
    };
  }
  const worker = new Worker(new URL("./worker.js", import.meta.url), { type: "module" });
  return {
    post: (request, transfer) => worker.postMessage(request, transfer),
    listen: (take, failed) => {
      worker.onmessage = (event) => take(event.data);
      worker.onerror = (event) => failed(new Error(event.message || "the worker did not start"));
    },
    stop: () => worker.terminate(),
  };
}
