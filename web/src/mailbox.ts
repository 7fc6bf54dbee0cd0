// Shared memory through which the page hands received messages to the worker, and the worker those that it sends to the page. The worker computes
// without returning to its event loop, so it waits here: it asks with a message, the page writes a piece and wakes it. Memory that is new for every
// message would cost more than what is written to it: the system clears each page of it.

const PIECE = 1 << 20;
const HEADER = 32;
/** Pieces on their way from the worker to the page. */
const SLOTS = 4;

const EMPTY = 0;
const FULL = 1;

/** Longest wait for the server, in milliseconds. */
const PATIENCE = 600_000;

export function mailbox(): SharedArrayBuffer {
  return new SharedArrayBuffer(HEADER + (1 + SLOTS) * PIECE);
}

/** State, total, count of the piece to the worker; then the state of every slot. */
function parts(shared: SharedArrayBuffer): { state: Int32Array; data: Uint8Array; slots: Uint8Array[] } {
  const piece = (i: number) => new Uint8Array(shared, HEADER + i * PIECE, PIECE);
  const slots = Array.from({ length: SLOTS }, (_, i) => piece(1 + i));
  return { state: new Int32Array(shared, 0, HEADER / 4), data: piece(0), slots };
}

/** Where the state of a slot is. */
const slotState = (slot: number) => 3 + slot;

/** A piece of a message that the worker sends: where it is, its bytes, and those of the message. */
export interface Piece {
  readonly slot: number;
  readonly count: number;
  readonly total: number;
}

/** What the worker sends: its end. */
export class Sender {
  readonly #state: Int32Array;
  readonly #slots: Uint8Array[];
  #next = 0;

  constructor(shared: SharedArrayBuffer) {
    const { state, slots } = parts(shared);
    this.#state = state;
    this.#slots = slots;
  }

  /** Writes a message; `tell` hands each piece to the page. Waits while the page has not read earlier ones. */
  send(message: Uint8Array, tell: (piece: Piece) => void): void {
    const total = message.length;
    let at = 0;
    do {
      const slot = this.#next;
      this.#next = (slot + 1) % SLOTS;
      if (Atomics.wait(this.#state, slotState(slot), FULL, PATIENCE) === "timed-out") throw new Error("the page is silent");
      const piece = message.subarray(at, at + PIECE);
      this.#slots[slot]!.set(piece);
      Atomics.store(this.#state, slotState(slot), FULL);
      tell({ slot, count: piece.length, total });
      at += piece.length;
    } while (at < total);
  }
}

/** What the worker sends: the page's end. */
export class Receiver {
  readonly #state: Int32Array;
  readonly #slots: Uint8Array[];
  #message = new Uint8Array(0);
  #at = 0;

  constructor(shared: SharedArrayBuffer) {
    const { state, slots } = parts(shared);
    this.#state = state;
    this.#slots = slots;
  }

  /** Reads a piece. The message, once it is whole: valid until the next piece is read. */
  take({ slot, count, total }: Piece): Uint8Array<ArrayBuffer> | undefined {
    if (this.#message.length < total) this.#message = new Uint8Array(total);
    this.#message.set(this.#slots[slot]!.subarray(0, count), this.#at);
    Atomics.store(this.#state, slotState(slot), EMPTY);
    Atomics.notify(this.#state, slotState(slot));
    this.#at += count;
    if (this.#at < total) return undefined;
    this.#at = 0;
    return this.#message.subarray(0, total);
  }
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

  /** Waits for a message; `ask` tells the page that one is wanted. Its bytes; negative: the connection is closed. */
  next(ask: () => void): number {
    this.#wait(ask);
    return Atomics.load(this.#state, 1);
  }

  /** Writes the message that {@link next} told of; `ask` tells the page that the next piece is wanted. */
  take(whole: Uint8Array, ask: () => void): void {
    let at = 0;
    for (;;) {
      const count = Atomics.load(this.#state, 2);
      whole.set(this.#data.subarray(0, count), at);
      at += count;
      if (at >= whole.length) return;
      this.#wait(ask);
    }
  }

  #wait(ask: () => void): void {
    Atomics.store(this.#state, 0, EMPTY);
    ask();
    if (Atomics.wait(this.#state, 0, EMPTY, PATIENCE) === "timed-out") throw new Error("the server is silent");
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
