// Shared memory through which the page hands received messages to the worker, and the worker those that it sends to the page. The worker computes
// without returning to its event loop, so it waits here: it says so in the memory, the page writes a piece as soon as there is one and wakes it. Where
// one has come already, the worker asks for it with a message, which costs both of them more than the rest. Memory that is new for every message
// would cost more than what is written to it: the system clears each page of it.

const PIECE = 1 << 20;
const HEADER = 64;
/** Pieces on their way from the worker to the page. */
const SLOTS = 4;

const EMPTY = 0;
const FULL = 1;
/** Of the piece to the worker: it waits for one. */
const WANTED = 2;
/** Where the most bytes are that a message may have, 0: not known yet; and what the page has to deliver. */
const LIMIT = 7;
const QUEUED = 8;

/** Longest wait for the server, in milliseconds. */
const PATIENCE = 600_000;

export function mailbox(): SharedArrayBuffer {
  return new SharedArrayBuffer(HEADER + (1 + SLOTS) * PIECE);
}

/** State, total, count of the piece to the worker; then the state of every slot, and what is at {@link LIMIT} and {@link QUEUED}. */
function parts(shared: SharedArrayBuffer): { state: Int32Array; data: Uint8Array; slots: Uint8Array[] } {
  const piece = (i: number) => new Uint8Array(shared, HEADER + i * PIECE, PIECE);
  const slots = Array.from({ length: SLOTS }, (_, i) => piece(1 + i));
  return { state: new Int32Array(shared, 0, HEADER / 4), data: piece(0), slots };
}

/** Where the state of a slot is. */
const slotState = (slot: number) => 3 + slot;

/** Messages of at least so many bytes move to the page in buffers of their own, which come back with the next request: memory that is shared is copied
 * word by word. */
const LARGE = 1 << 20;
/** Bytes of buffers that are kept for the next messages. */
const KEPT = 1 << 26;

/** A message in a buffer that moves, from its start. */
export interface Moved {
  readonly buffer: ArrayBuffer;
  readonly count: number;
}

/** Buffers of messages that were sent, for those to come: the system clears every page of new ones. */
export class Buffers {
  #kept: ArrayBuffer[] = [];
  #bytes = 0;

  /** Keeps buffers while there is room. */
  put(buffers: readonly ArrayBuffer[]): void {
    for (const buffer of buffers) {
      if (this.#bytes + buffer.byteLength > KEPT) continue;
      this.#kept.push(buffer);
      this.#bytes += buffer.byteLength;
    }
  }

  /** One with room for so many bytes. */
  take(count: number): ArrayBuffer {
    const fits = this.#kept.filter((buffer) => buffer.byteLength >= count);
    const least = fits.reduce<ArrayBuffer | undefined>((a, b) => (a && a.byteLength <= b.byteLength ? a : b), undefined);
    if (least === undefined) return new ArrayBuffer(count);
    this.#kept.splice(this.#kept.indexOf(least), 1);
    this.#bytes -= least.byteLength;
    return least;
  }

  /** All of them. */
  all(): ArrayBuffer[] {
    const all = this.#kept;
    this.#kept = [];
    this.#bytes = 0;
    return all;
  }
}

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
  /** For large messages; the page hands them back. */
  readonly buffers = new Buffers();

  constructor(shared: SharedArrayBuffer) {
    const { state, slots } = parts(shared);
    this.#state = state;
    this.#slots = slots;
  }

  /** Writes a message; `tell` hands each piece to the page, `move` all of a large one. Waits while the page has not read earlier pieces. */
  send(message: Uint8Array, tell: (piece: Piece) => void, move: (moved: Moved) => void): void {
    const total = message.length;
    if (total >= LARGE) {
      const buffer = this.buffers.take(total);
      new Uint8Array(buffer, 0, total).set(message);
      move({ buffer, count: total });
      return;
    }
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

  /** Waits for a message of at most so many bytes; `ask` tells the page that one of those that have come is wanted. Its bytes; negative: the connection is closed. */
  next(limit: number, ask: () => void): number {
    Atomics.store(this.#state, LIMIT, Math.min(limit, 2 ** 31 - 1));
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
    Atomics.store(this.#state, 0, WANTED);
    // What comes after this is delivered as it comes: the page counts it first, and looks whether it is wanted then.
    if (Atomics.load(this.#state, QUEUED) > 0) ask();
    if (Atomics.wait(this.#state, 0, WANTED, PATIENCE) === "timed-out") throw new Error("the server is silent");
  }
}

/** The page's end. */
export class Writer {
  readonly #state: Int32Array;
  readonly #data: Uint8Array;
  readonly #queue: Uint8Array[] = [];
  #at = 0;
  #closed = false;

  constructor(shared: SharedArrayBuffer) {
    const { state, data } = parts(shared);
    this.#state = state;
    this.#data = data;
  }

  /** A message came from the server; false: it is longer than the worker takes. */
  push(message: Uint8Array): boolean {
    if (message.length > (Atomics.load(this.#state, LIMIT) || Infinity)) return false;
    this.#queue.push(message);
    this.#count();
    this.deliver();
    return true;
  }

  /** No message will come any more. */
  close(): void {
    this.#closed = true;
    this.#count();
    this.deliver();
  }

  #count(): void {
    Atomics.store(this.#state, QUEUED, this.#queue.length + Number(this.#closed));
  }

  /** Writes the next piece if the worker waits for one. */
  deliver(): void {
    if (Atomics.load(this.#state, 0) !== WANTED) return;
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
      this.#count();
      this.#at = 0;
    }
    this.#wake(message.length, piece.length);
  }

  #wake(total: number, count: number): void {
    Atomics.store(this.#state, 1, total);
    Atomics.store(this.#state, 2, count);
    Atomics.store(this.#state, 0, FULL);
    Atomics.notify(this.#state, 0);
  }
}
