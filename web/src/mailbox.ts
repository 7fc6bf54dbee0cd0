// Shared memory through which the page hands received messages to the worker. The worker computes without returning to its event loop, so it
// waits here: it asks with a message, the page writes a piece and wakes it.

const PIECE = 1 << 20;
const HEADER = 16;

const EMPTY = 0;
const FULL = 1;

/** Longest wait for the server, in milliseconds. */
const PATIENCE = 600_000;

export function mailbox(): SharedArrayBuffer {
  return new SharedArrayBuffer(HEADER + PIECE);
}

function parts(shared: SharedArrayBuffer): { state: Int32Array; data: Uint8Array } {
  return { state: new Int32Array(shared, 0, HEADER / 4), data: new Uint8Array(shared, HEADER) };
}

/** The worker's end. */
export class Reader {
  readonly #state: Int32Array;
  readonly #data: Uint8Array;

  constructor(shared: SharedArrayBuffer) {
    const { state, data } = parts(shared);
    this.#state = state;
    this.#data = data;
  }

  /** Waits for a message; `ask` tells the page that one is wanted, or the next piece of it. Nothing: the connection is closed. */
  read(ask: (more: boolean) => void): Uint8Array | undefined {
    let whole: Uint8Array | undefined;
    let at = 0;
    do {
      Atomics.store(this.#state, 0, EMPTY);
      ask(whole !== undefined);
      if (Atomics.wait(this.#state, 0, EMPTY, PATIENCE) === "timed-out") throw new Error("the server is silent");
      const total = Atomics.load(this.#state, 1);
      if (total < 0) return undefined;
      const count = Atomics.load(this.#state, 2);
      whole ??= new Uint8Array(total);
      whole.set(this.#data.subarray(0, count), at);
      at += count;
    } while (at < whole.length);
    return whole;
  }
}

/** The page's end. */
export class Writer {
  readonly #state: Int32Array;
  readonly #data: Uint8Array;
  readonly #queue: Uint8Array[] = [];
  #at = 0;
  #wanted = false;
  #limit = Infinity;
  #closed = false;

  constructor(shared: SharedArrayBuffer) {
    const { state, data } = parts(shared);
    this.#state = state;
    this.#data = data;
  }

  /** A message came from the server; false: it is longer than the worker takes. */
  push(message: Uint8Array): boolean {
    if (message.length > this.#limit) return false;
    this.#queue.push(message);
    this.#deliver();
    return true;
  }

  /** The worker waits for a message of at most so many bytes. */
  want(limit: number): void {
    this.#limit = limit;
    this.#wanted = true;
    this.#deliver();
  }

  /** The worker waits for the rest of a message. */
  more(): void {
    this.#wanted = true;
    this.#deliver();
  }

  /** No message will come any more. */
  close(): void {
    this.#closed = true;
    this.#deliver();
  }

  #deliver(): void {
    if (!this.#wanted) return;
    const message = this.#queue[0];
    if (message === undefined) {
      if (this.#closed) this.#wake(-1, 0);
      return;
    }
    const piece = message.subarray(this.#at, this.#at + PIECE);
    this.#data.set(piece);
    this.#at += piece.length;
    if (this.#at === message.length) {
      this.#queue.shift();
      this.#at = 0;
    }
    this.#wake(message.length, piece.length);
  }

  #wake(total: number, count: number): void {
    this.#wanted = false;
    Atomics.store(this.#state, 1, total);
    Atomics.store(this.#state, 2, count);
    Atomics.store(this.#state, 0, FULL);
    Atomics.notify(this.#state, 0);
  }
}
