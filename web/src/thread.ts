// A worker of the platform: the page's, or Node's.

import type { Reply, Request } from "./messages.js";

export interface Thread {
  post(request: Request): void;
  listen(take: (reply: Reply) => void, failed: (error: Error) => void): void;
  stop(): void;
}

/** Modules of Node, behind a name that bundlers for pages leave alone. */
function node(name: string): Promise<any> {
  return import(/* @vite-ignore */ `node:${name}`);
}

const inNode = typeof Worker === "undefined";

/** The client's program, compiled while it is loaded where the server names its type; browsers keep what they compile so. */
export async function program(): Promise<WebAssembly.Module> {
  const url = new URL("./wasm/hushnet_wasm_bg.wasm", import.meta.url);
  if (inNode) return WebAssembly.compile(await (await node("fs/promises")).readFile(url));
  const answer = await fetch(url);
  if (!answer.ok) throw new Error(`${url.href}: HTTP status ${answer.status}`);
  const named = answer.headers.get("content-type")?.startsWith("application/wasm");
  return named ? WebAssembly.compileStreaming(answer) : WebAssembly.compile(await answer.arrayBuffer());
}

/** Starts the worker. */
export async function spawn(): Promise<Thread> {
  if (inNode) {
    const { Worker: NodeWorker } = await node("worker_threads");
    // The flags of this process are for its own script: some of them no worker takes.
    const worker = new NodeWorker(new URL("./worker.js", import.meta.url), { execArgv: [] });
    return {
      post: (request) => worker.postMessage(request),
      listen: (take, failed) => {
        worker.on("message", take);
        worker.on("error", failed);
      },
      stop: () => void worker.terminate(),
    };
  }
  const worker = new Worker(new URL("./worker.js", import.meta.url), { type: "module" });
  return {
    post: (request) => worker.postMessage(request),
    listen: (take, failed) => {
      worker.onmessage = (event) => take(event.data);
      worker.onerror = (event) => failed(new Error(event.message || "the worker did not start"));
    },
    stop: () => worker.terminate(),
  };
}
