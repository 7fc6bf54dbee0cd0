// What the page and the worker tell each other. No message holds a key: keys are in the worker's WebAssembly memory alone.

import type { Moved, Piece } from "./mailbox.js";

/** An input: numbers in row-major order, images along the first axis. */
export interface Tensor {
  readonly shape: readonly number[];
  readonly data: Float32Array | Float64Array;
}

/** An input as it moves to the worker, and its buffer back. */
export interface Given {
  readonly name: string;
  readonly shape: readonly number[];
  readonly data: Float32Array<ArrayBuffer> | Float64Array<ArrayBuffer>;
}

/** An output of the network. */
export interface Output {
  readonly shape: readonly number[];
  readonly data: Float64Array;
}

/** How far a run is. */
export interface Progress {
  /** Name of the stage in work. */
  readonly stage: string;
  /** Index of the stage, and how many there are. */
  readonly index: number;
  readonly stages: number;
  /** Parts of the stage that are done, and how many there are. */
  readonly done: number;
  readonly parts: number;
}

/** What the page asks of the worker. */
export type Request =
  | {
      kind: "open";
      module: WebAssembly.Module;
      shared: SharedArrayBuffer;
      model: string;
      token: string;
      allowInsecure: boolean;
      memory: number;
      images: number;
    }
  | { kind: "infer"; inputs: Given[]; tell: boolean; buffers: ArrayBuffer[] }
  | { kind: "close" };

/** What the worker tells the page. */
export type Reply =
  | { kind: "send"; piece: Piece }
  | { kind: "move"; moved: Moved }
  | { kind: "want" }
  | { kind: "progress"; progress: Progress }
  | { kind: "opened"; plan: string; trust: string }
  | { kind: "answer"; outputs: { name: string; output: Output }[]; outOfRange: string | null; trace: string; spare: ArrayBuffer[] }
  | { kind: "closed" }
  | { kind: "failed"; name: string; message: string; open: boolean };
