// Hushnet's client for pages and for Node: inputs and keys stay in a worker, the server sees ciphertexts, shares and shapes.

import { Buffers, mailbox, Receiver, Writer } from "./mailbox.js";
import type { Given, Output, Progress, Reply, Request, Tensor } from "./messages.js";
import { program, spawn, type Thread } from "./thread.js";

export type { Output, Progress, Tensor };

/** Who computes what: see docs/trust-models.md. */
export type Trust = "client-aided" | "two-party" | "non-interactive";

/** Why a call failed: `kind` is the name that Python's exception has (docs/errors.md). */
export class HushnetError extends Error {
  readonly kind: string;

  constructor(kind: string, message: string) {
    super(message);
    this.name = "HushnetError";
    this.kind = kind;
  }
}

/** The part of a WebSocket that is used here. */
export interface Socket {
  binaryType: string;
  readonly readyState: number;
  onopen: ((event: any) => void) | null;
  onmessage: ((event: any) => void) | null;
  onclose: ((event: any) => void) | null;
  onerror: ((event: any) => void) | null;
  send(data: Uint8Array<ArrayBuffer>): void;
  close(): void;
}

export interface ConnectOptions {
  /** The model to ask for; a server with one model needs no name. */
  readonly model?: string;
  /** The token that shows that this client may ask. */
  readonly token?: string;
  /** Takes plans below 128 bits of security; for tests only. */
  readonly allowInsecure?: boolean;
  /** Most bytes that the client may hold. */
  readonly memory?: number;
  /** Images that the session will ask for, about; 16 by default. A two-party client makes its oblivious transfers in the way that sends least for so many. */
  readonly images?: number;
  /** Makes the connection; by default the platform's WebSocket. */
  readonly socket?: (url: string) => Socket;
}

/** Bytes through the connection so far. */
export interface Traffic {
  readonly sent: number;
  readonly received: number;
}

export interface Answer {
  /** Outputs by name. */
  readonly outputs: Readonly<Record<string, Output>>;
  /** The first value that left its planned range, in words; null: none did. */
  readonly outOfRange: string | null;
  /** What the run measured: seconds, bytes, noise, by stage. */
  readonly trace: any;
}

/** Where `/ws` of a server is: `hush://` and `hushs://` are taken for `ws://` and `wss://`. */
export function socketAddress(url: string): string {
  const address = new URL(url.replace(/^hush(s?):/, "ws$1:").replace(/^http(s?):/, "ws$1:"));
  if (address.protocol !== "ws:" && address.protocol !== "wss:") {
    throw new HushnetError("TransportError", `${url} is no address of a server; wanted hushs://host:port, wss:// or https://`);
  }
  const path = address.pathname.replace(/^\/|\/$/g, "");
  if (path !== "ws" && !path.startsWith("ws/")) address.pathname = path ? `/ws/${path}` : "/ws";
  return address.href;
}

interface Pending {
  resolve: (reply: Reply) => void;
  reject: (error: Error) => void;
}

/** An open session with a server. One call at a time. */
export class Session {
  /** The plan that the server sent, public part. */
  readonly plan!: any;
  /** The trust model of the plan. */
  readonly trust!: Trust;
  readonly #thread: Thread;
  readonly #socket: Socket;
  readonly #mail: Writer;
  readonly #out: Receiver;
  /** Whether the socket may read what it is to send after `send` has returned. */
  readonly #keeps: boolean;
  #pending: Pending | undefined;
  #progress: ((progress: Progress) => void) | undefined;
  /** Buffers of the last inputs, for the next. */
  readonly #spare = new Buffers();
  /** Buffers of messages that were sent, for the worker. */
  readonly #buffers = new Buffers();
  #sent = 0;
  #received = 0;
  #open = true;

  private constructor(thread: Thread, socket: Socket, shared: SharedArrayBuffer, keeps: boolean) {
    this.#thread = thread;
    this.#socket = socket;
    this.#mail = new Writer(shared);
    this.#out = new Receiver(shared);
    this.#keeps = keeps;
    thread.listen((reply: Reply) => this.#take(reply), (error) => this.#fail(new HushnetError("InternalError", error.message)));
    socket.onmessage = (event: { data: ArrayBuffer | string }) => this.#arrived(event.data);
    socket.onclose = () => this.#mail.close();
    socket.onerror = () => this.#mail.close();
    // It may have closed while the worker started.
    if (socket.readyState > 1) this.#mail.close();
  }

  /** @internal */
  static async open(url: string, options: ConnectOptions): Promise<Session> {
    if (typeof SharedArrayBuffer === "undefined") {
      const headers = "Cross-Origin-Opener-Policy: same-origin and Cross-Origin-Embedder-Policy: require-corp";
      throw new HushnetError("EnvironmentError", `this page is not isolated, so its worker cannot wait for the server; serve it with ${headers}`);
    }
    const address = socketAddress(url);
    const module = await program();
    const socket = await connected(address, options.socket ?? ((a) => new WebSocket(a) as Socket));
    const shared = mailbox();
    let thread: Thread;
    try {
      thread = await spawn();
    } catch (error) {
      socket.close();
      throw error;
    }
    const session = new Session(thread, socket, shared, options.socket !== undefined);
    const { model = "", token = "", allowInsecure = false, memory = 3 * 2 ** 30, images = 16 } = options;
    try {
      const reply = await session.#ask({ kind: "open", module, shared, model, token, allowInsecure, memory, images });
      if (reply.kind !== "opened") throw new HushnetError("InternalError", `the worker answers with ${reply.kind}`);
      Object.assign(session, { plan: JSON.parse(reply.plan), trust: reply.trust });
    } catch (error) {
      session.#end();
      throw error;
    }
    return session;
  }

  /** Whether the session can serve more inputs. */
  get isOpen(): boolean {
    return this.#open;
  }

  /** Bytes through the connection so far. */
  get traffic(): Traffic {
    return { sent: this.#sent, received: this.#received };
  }

  /** Runs the network. Inputs by name, each of shape [images, ...]; the one input of a network may be given without its name. */
  async infer(inputs: Tensor | Readonly<Record<string, Tensor>>, progress?: (progress: Progress) => void): Promise<Answer> {
    this.#progress = progress;
    // One copy, which moves to the worker and back: a message that is not moved would be copied twice.
    const given = this.#named(inputs).map(({ name, tensor: { shape, data } }) => ({ name, shape, data: this.#copied(data) }));
    const buffers = this.#buffers.all();
    const moved = [...given.map(({ data }) => data.buffer), ...buffers];
    const reply = await this.#ask({ kind: "infer", inputs: given, tell: progress !== undefined, buffers }, moved);
    if (reply.kind !== "answer") throw new HushnetError("InternalError", `the worker answers with ${reply.kind}`);
    this.#spare.put(reply.spare);
    const outputs = Object.fromEntries(reply.outputs.map((o) => [o.name, o.output]));
    return { outputs, outOfRange: reply.outOfRange, trace: JSON.parse(reply.trace) };
  }

  /** Ends the session. The worker's memory, and the keys in it, are gone then. */
  async close(): Promise<void> {
    if (!this.#open) return;
    try {
      await this.#ask({ kind: "close" });
    } finally {
      this.#end();
    }
  }

  #named(inputs: Tensor | Readonly<Record<string, Tensor>>): { name: string; tensor: Tensor }[] {
    if (isTensor(inputs)) {
      const names: string[] = this.plan.inputs.map((port: { name: string }) => port.name);
      const [name] = names;
      if (name === undefined || names.length > 1) throw new HushnetError("InputError", `name the inputs: ${names.join(", ")}`);
      return [{ name, tensor: inputs }];
    }
    return Object.entries(inputs).map(([name, tensor]) => ({ name, tensor }));
  }

  #copied(data: Tensor["data"]): Given["data"] {
    const buffer = this.#spare.take(data.byteLength);
    const copy = data instanceof Float32Array ? new Float32Array(buffer, 0, data.length) : new Float64Array(buffer, 0, data.length);
    copy.set(data);
    return copy;
  }

  #ask(request: Request, transfer: ArrayBuffer[] = []): Promise<Reply> {
    if (!this.#open) return Promise.reject(new HushnetError("TransportError", "the session is closed"));
    if (this.#pending) return Promise.reject(new HushnetError("TransportError", "the session is in use by another call"));
    return new Promise((resolve, reject) => {
      this.#pending = { resolve, reject };
      this.#thread.post(request, transfer);
    });
  }

  #arrived(data: ArrayBuffer | string): void {
    // A text message is no frame; the client says so.
    const message = typeof data === "string" ? new TextEncoder().encode(data) : new Uint8Array(data);
    this.#received += message.length;
    if (!this.#mail.push(message)) this.#fail(new HushnetError("ProtocolError", `the server sent ${message.length} bytes, more than a frame may have here`));
  }

  #take(reply: Reply): void {
    switch (reply.kind) {
      case "send": {
        const message = this.#out.take(reply.piece);
        if (message === undefined) break;
        this.#sent += message.length;
        // The platform's socket has copied a message when it returns.
        this.#socket.send(this.#keeps ? message.slice() : message);
        break;
      }
      case "move": {
        const { buffer, count } = reply.moved;
        const message = new Uint8Array(buffer, 0, count);
        this.#sent += count;
        this.#socket.send(this.#keeps ? message.slice() : message);
        this.#buffers.put([buffer]);
        break;
      }
      case "want":
        this.#mail.deliver();
        break;
      case "progress":
        this.#progress?.(reply.progress);
        break;
      case "failed": {
        const error = new HushnetError(reply.name, reply.message);
        if (reply.open) this.#settle((p) => p.reject(error));
        else this.#fail(error);
        break;
      }
      default:
        this.#settle((p) => p.resolve(reply));
    }
  }

  #settle(how: (pending: Pending) => void): void {
    const pending = this.#pending;
    this.#pending = undefined;
    this.#progress = undefined;
    if (pending) how(pending);
  }

  #fail(error: Error): void {
    this.#end();
    this.#settle((p) => p.reject(error));
  }

  #end(): void {
    this.#open = false;
    this.#socket.close();
    this.#thread.stop();
  }
}

function isTensor(value: object): value is Tensor {
  const data = (value as Partial<Tensor>).data;
  return data instanceof Float32Array || data instanceof Float64Array;
}

function connected(address: string, make: (url: string) => Socket): Promise<Socket> {
  return new Promise((resolve, reject) => {
    const socket = make(address);
    const failed = () => reject(new HushnetError("TransportError", `no connection to ${address}`));
    socket.binaryType = "arraybuffer";
    socket.onopen = () => resolve(socket);
    socket.onerror = failed;
    socket.onclose = failed;
  });
}

/** Connects to a server: `hushs://host:port`, `wss://host/ws`, or the address of the page that it serves. */
export function connect(url: string, options: ConnectOptions = {}): Promise<Session> {
  return Session.open(url, options);
}
