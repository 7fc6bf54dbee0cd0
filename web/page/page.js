// The page that `hushnet serve --web` shows: an input, what leaves the browser, progress, the answer, who learned what.

import { connect } from "./hushnet/index.js";
import { centred, described, fitted, numbersOf, Pad, pixelsOf, readNpy, readNumbers } from "./inputs.js";

const $ = (id) => document.getElementById(id);
const about = await (await fetch("about.json")).json();

/** In plain words, for each trust model. */
const LEARNED = {
  "client-aided": {
    you: "The answer, and the values between layers, which this page computes with. From many of them the model's weights can be worked out.",
    server: "That somebody asked, and the shape of the input. It saw ciphertexts only.",
  },
  "two-party": {
    you: "The answer and the shapes of the layers. Not the model's weights.",
    server: "That somebody asked, and the shape of the input. What it computed with are random shares.",
  },
  "non-interactive": {
    you: "The answer, and the little that the noise of ciphertexts tells of the weights, unless the operator hides it.",
    server: "That somebody asked, and the shape of the input. It saw ciphertexts only.",
  },
};

let model, inputs = [], way, session, busy = false, picture, chosen;
const pad = new Pad($("pad"), refresh);

function make(tag, text = "", more = {}) {
  const made = Object.assign(document.createElement(tag), more);
  made.textContent = text;
  return made;
}

function size(bytes) {
  const at = bytes < 1e3 ? 0 : bytes < 1e6 ? 1 : bytes < 1e9 ? 2 : 3;
  return `${at ? (bytes / 1000 ** at).toPrecision(3) : bytes} ${["bytes", "kB", "MB", "GB"][at]}`;
}

function say(text, bad = false) {
  $("note").textContent = text;
  $("note").classList.toggle("bad", bad);
}

/** Inputs, trust model and name of a plan's public part. */
function facts(plan, trust, name) {
  const shapes = plan.inputs.map((i) => ({ name: i.name, shape: plan.tensors.find((t) => t.id === i.tensor).shape }));
  return { name, trust, inputs: shapes };
}

function show(found) {
  model = found;
  const told = about.input ?? {};
  inputs = found.inputs.map((i) => ({ name: i.name, ...described(i.shape, found.inputs.length === 1 ? told : { kind: "numbers" }) }));
  const [first] = inputs;
  const ways = [];
  if (first.kind === "drawing" && first.image) ways.push(["draw", "Draw"]);
  if (first.kind !== "numbers" && first.image) ways.push(["photo", "Picture"]);
  if (inputs.length === 1 && about.examples?.length) ways.push(["examples", "Examples"]);
  ways.push(["numbers", "Numbers"]);
  $("ways").replaceChildren(...ways.map(([id, label]) => {
    const button = make("button", label, { type: "button" });
    button.dataset.way = id;
    button.onclick = () => choose(id);
    return button;
  }));
  $("example-list").replaceChildren(...(about.examples ?? []).map((e) => example(e, first)));
  $("numbers").replaceChildren(...inputs.map(numbersField));
  learned();
  choose(ways[0][0]);
}

function example({ name, values }, input) {
  const button = make("button", "", { type: "button" });
  button.setAttribute("aria-pressed", "false");
  if (input.image) {
    const thumb = make("canvas", "", { width: input.width, height: input.height });
    thumb.getContext("2d").putImageData(pixelsOf(values, input), 0, 0);
    button.append(thumb);
  }
  button.append(make("span", name));
  button.onclick = () => {
    for (const other of $("example-list").children) other.setAttribute("aria-pressed", String(other === button));
    chosen = Float32Array.from(values);
    refresh();
  };
  return button;
}

function numbersField(input) {
  const label = make("label", `${input.name}: ${input.count} numbers (${input.shape.join(" × ")})`);
  const text = make("textarea", "", { spellcheck: false, placeholder: "0.1, 0.25, …" });
  const file = make("input", "", { type: "file", accept: ".npy" });
  text.oninput = () => { input.given = readNumbers(text.value); refresh(); };
  file.onchange = async () => {
    try {
      input.given = readNpy(await file.files[0].arrayBuffer());
      text.value = Array.from(input.given.subarray(0, 2000), (v) => +v.toPrecision(7)).join(", ");
    } catch (error) {
      say(error.message, true);
      input.given = undefined;
    }
    refresh();
  };
  label.append(text, make("span", "or a file of NumPy (.npy), one row", { className: "hint" }), file);
  return label;
}

function choose(id) {
  way = id;
  for (const button of $("ways").children) button.setAttribute("aria-pressed", String(button.dataset.way === id));
  for (const panel of ["draw", "photo", "examples", "numbers"]) $(panel).hidden = panel !== id;
  refresh();
}

/** The numbers of every input, or nothing yet. */
function given() {
  if (!model) return undefined;
  const [first] = inputs;
  if (way === "draw") return pad.empty ? undefined : [numbersOf(fitted(first.fill ? centred(pad.canvas, first.fill) : pad.canvas, first).data, first)];
  if (way === "photo") return picture && [numbersOf(picture.data, first)];
  if (way === "examples") return chosen && [chosen];
  const all = inputs.map((i) => i.given);
  return all.every((v, i) => v?.length === inputs[i].count) ? all : undefined;
}

function refresh() {
  if (!model || busy) return;
  const short = way === "numbers" ? inputs.find((i) => i.given && i.given.length !== i.count) : undefined;
  if (short) say(`${short.name} has ${short.given.length} numbers and takes ${short.count}.`, true);
  else say("");
  $("ask").disabled = way === "draw" ? pad.empty : given() === undefined;
}

async function take(file) {
  if (!file) return;
  try {
    picture = fitted(await createImageBitmap(file), inputs[0]);
  } catch {
    say("This file is no picture that the browser can read.", true);
    return;
  }
  Object.assign($("preview"), { width: picture.width, height: picture.height, hidden: false });
  $("preview").getContext("2d").putImageData(picture, 0, 0);
  refresh();
}

/** A WebSocket whose bytes are counted; the first ones are shown. */
function watched(address) {
  const socket = new WebSocket(address);
  const hex = (bytes) => Array.from(bytes.subarray(0, 24), (b) => b.toString(16).padStart(2, "0")).join(" ") + " …";
  // A message begins with the header of a frame (docs/wire-protocol.md), what follows is its content.
  const seen = { up: 0, down: 0 };
  const count = (lane, bytes) => {
    seen[lane] += bytes.length;
    $(lane).textContent = size(seen[lane]);
    if (bytes.length > 64) $(`${lane}-hex`).textContent = hex(bytes.subarray(32));
  };
  socket.addEventListener("message", (e) => typeof e.data === "string" || count("down", new Uint8Array(e.data)));
  const send = socket.send.bind(socket);
  socket.send = (bytes) => { count("up", bytes); send(bytes); };
  return socket;
}

async function opened(options = {}) {
  if (session?.isOpen) return session;
  say("Making keys in this page…");
  const address = new URL("ws", location.href.replace(/^http/, "ws")).href;
  session = await connect(address, { model: model?.name ?? options.model ?? "", token: $("token").value, socket: watched, ...options });
  return session;
}

function layers() {
  const list = $("layers");
  list.replaceChildren();
  return ({ stage, index, done, parts }) => {
    let item = list.children[index];
    while (list.children.length <= index) {
      item = make("li");
      item.append(make("span"), make("progress", "", { max: 1, value: 0 }));
      list.append(item);
    }
    for (let i = 0; i < index; i += 1) if (list.children[i].lastChild.value < 1 && list.children[i].firstChild.textContent) list.children[i].lastChild.value = 1;
    item.firstChild.textContent = stage;
    item.lastChild.setAttribute("aria-label", stage);
    item.lastChild.value = parts ? Math.max(item.lastChild.value, done / parts) : 1;
    item.scrollIntoView({ block: "nearest" });
  };
}

async function ask() {
  const values = given();
  if (busy || !values) return;
  busy = true;
  $("ask").disabled = true;
  $("answer").replaceChildren(make("p", "Computing…", { className: "hint" }));
  const start = performance.now();
  try {
    const open = await opened();
    say("The server computes on ciphertexts…");
    const run = Object.fromEntries(inputs.map((input, i) => [input.name, { shape: [1, ...input.shape], data: values[i] }]));
    const before = open.traffic;
    const { outputs, outOfRange, trace } = await open.infer(run, layers());
    for (const bar of $("layers").querySelectorAll("progress")) bar.value = 1;
    answer(outputs, (performance.now() - start) / 1000, trace);
    const moved = { sent: open.traffic.sent - before.sent, received: open.traffic.received - before.received };
    say(outOfRange ? `Look twice: ${outOfRange}` : `This answer took ${size(moved.sent)} up and ${size(moved.received)} down.`, Boolean(outOfRange));
    document.body.dataset.done = String(Number(document.body.dataset.done ?? 0) + 1);
    window.hushnetTrace = trace;
  } catch (error) {
    $("answer").replaceChildren(make("p", "No answer.", { className: "hint" }));
    say(error.message, true);
  }
  busy = false;
  $("ask").disabled = false;
}

function softmax(values) {
  const most = Math.max(...values);
  const powers = values.map((v) => Math.exp(v - most));
  const sum = powers.reduce((a, b) => a + b, 0);
  return powers.map((p) => p / sum);
}

function answer(outputs, seconds, trace) {
  const shown = [];
  for (const [name, { shape, data }] of Object.entries(outputs)) {
    const values = Array.from(data);
    // what the operator calls the classes, or the plan
    const known = model.classes?.[name];
    const label = (i) => String(about.labels?.[i] ?? known?.names[i] ?? `class ${i}`);
    if (Object.keys(outputs).length > 1) shown.push(make("h3", name));
    if (about.labels && values.length === 1 && about.labels.length > 2) {
      shown.push(big(label(values[0])));
    } else if (values.length === 1 && known?.names.length && (known.of === "index" || known.of === "sign")) {
      shown.push(big(label(known.of === "sign" ? Number(values[0] > 0) : Math.round(values[0]))));
    } else if (values.length > 1 && shape.length === 2 && values.length <= 100000 && about.scores !== "none") {
      const shares = about.scores === "logits" ? softmax(values) : values;
      const order = shares.map((_, i) => i).sort((a, b) => shares[b] - shares[a]).slice(0, 5);
      shown.push(big(label(order[0])), scores(order, shares, label));
    } else {
      shown.push(make("p", values.slice(0, 64).map((v) => +v.toPrecision(5)).join("  ") + (values.length > 64 ? " …" : ""), { className: values.length > 1 ? "" : "big" }));
    }
  }
  shown.push(make("p", `${seconds.toFixed(seconds < 10 ? 2 : 0)} seconds, ${trace.rounds ?? 1} round${trace.rounds === 1 ? "" : "s"} of messages.`, { className: "hint" }));
  $("answer").replaceChildren(...shown);
}

function big(text) {
  return make("p", text, { className: text.length > 8 ? "big long" : "big" });
}

function scores(order, shares, label) {
  const list = make("ol", "", { className: "scores" });
  const [low, high] = [Math.min(0, ...order.map((i) => shares[i])), Math.max(...order.map((i) => shares[i]))];
  for (const i of order) {
    const item = make("li");
    const percent = about.scores === "logits" || about.scores === "probabilities";
    const bar = make("progress", "", { max: 1, value: high > low ? (shares[i] - low) / ((percent ? 1 : high) - low) : 0 });
    bar.setAttribute("aria-hidden", "true");
    item.append(make("span", label(i)), bar, make("b", percent ? `${(100 * shares[i]).toFixed(1)} %` : String(+shares[i].toPrecision(3))));
    list.append(item);
  }
  return list;
}

function learned() {
  const told = LEARNED[model.trust];
  const secure = location.protocol === "https:";
  const line = secure ? "How many bytes went, and when." : "The ciphertexts: this page came without TLS.";
  const rows = [["You", told.you], ["The server", told.server], ["Others on the line", line]];
  $("learned").replaceChildren(...rows.map(([who, what], i) => {
    const row = make("div");
    row.append(make("dt", who), make("dd", what, { className: i === 2 && !secure ? "warn" : "" }));
    return row;
  }));
}

$("title").textContent = about.title;
document.title = about.title;
$("clear").onclick = () => pad.clear();
$("ask").onclick = ask;
$("file").onchange = () => take($("file").files[0]);
for (const kind of ["dragover", "dragleave", "drop"]) {
  $("drop").addEventListener(kind, (e) => {
    e.preventDefault();
    $("drop").classList.toggle("over", kind === "dragover");
    if (kind === "drop") void take(e.dataTransfer.files[0]);
  });
}
if (about.models.length) {
  $("model-row").hidden = about.models.length === 1;
  $("model").replaceChildren(...about.models.map((m, i) => make("option", m.name, { value: String(i) })));
  $("model").onchange = () => { void session?.close(); session = undefined; show(about.models[$("model").value]); };
  show(about.models[0]);
} else {
  // A server with tokens tells nothing of its models to who has none.
  $("token-row").hidden = false;
  $("enter").onclick = async () => {
    try {
      const name = $("model-name").value;
      const open = await opened({ model: name });
      show(facts(open.plan, open.trust, name));
    } catch (error) {
      say(error.message, true);
    }
  };
}
