// Pictures and numbers to the network's inputs. All of it happens here: pixels go into the client of this page and nowhere else.

/** What an input looks like to a visitor: its shape, and how pixels become numbers. `about` is the operator's, and may be empty. */
export function described(shape, about) {
  const layout = about.layout ?? (shape.length === 3 && [1, 3].includes(shape[0]) ? "CHW" : shape.length === 2 ? "HW" : "none");
  const places = { CHW: [0, 1, 2], HWC: [2, 0, 1] }[layout];
  let channels = 1, height = 0, width = 0;
  if (places && shape.length === 3) [channels, height, width] = places.map((i) => shape[i]);
  else if (layout === "HW" && shape.length === 2) [height, width] = shape;
  else if (layout === "flat" && about.size) {
    [height, width] = about.size;
    channels = shape.reduce((a, b) => a * b, 1) / (height * width);
  }
  const image = [1, 3].includes(channels) && height >= 4 && width >= 4;
  const kind = about.kind ?? (image ? (channels === 1 ? "drawing" : "photo") : "numbers");
  return { ...about, shape, layout, channels, height, width, image, kind, count: shape.reduce((a, b) => a * b, 1) };
}

/** RGBA pixels of the network's size to its numbers: `(pixel scale - mean) / std` for each channel. */
export function numbersOf(pixels, input) {
  const { channels, height, width, layout } = input;
  const [scale, bgr] = [input.scale ?? 1 / 255, input.order === "BGR"];
  const each = (list, c, otherwise) => (Array.isArray(list) ? list[c % list.length] : (list ?? otherwise));
  const numbers = new Float32Array(channels * height * width);
  for (let at = 0; at < height * width; at += 1) {
    const [r, g, b] = pixels.subarray(4 * at, 4 * at + 3);
    const colours = channels === 1 ? [0.299 * r + 0.587 * g + 0.114 * b] : bgr ? [b, g, r] : [r, g, b];
    colours.forEach((colour, c) => {
      const bright = input.invert ? 255 - colour : colour;
      numbers[layout === "HWC" ? at * channels + c : c * height * width + at] = (bright * scale - each(input.mean, c, 0)) / each(input.std, c, 1);
    });
  }
  return numbers;
}

/** The network's numbers to RGBA pixels, for thumbnails. */
export function pixelsOf(numbers, input) {
  const { channels, height, width, layout } = input;
  const each = (list, c, otherwise) => (Array.isArray(list) ? list[c % list.length] : (list ?? otherwise));
  const data = new Uint8ClampedArray(4 * height * width).fill(255);
  for (let at = 0; at < height * width; at += 1) {
    for (let c = 0; c < 3; c += 1) {
      const from = Math.min(c, channels - 1);
      const value = numbers[layout === "HWC" ? at * channels + from : from * height * width + at];
      const bright = (value * each(input.std, from, 1) + each(input.mean, from, 0)) / (input.scale ?? 1 / 255);
      data[4 * at + (input.order === "BGR" && channels === 3 ? 2 - c : c)] = input.invert ? 255 - bright : bright;
    }
  }
  return new ImageData(data, width, height);
}

function fresh(width, height) {
  const canvas = document.createElement("canvas");
  [canvas.width, canvas.height] = [width, height];
  const context = canvas.getContext("2d", { willReadFrequently: true });
  context.imageSmoothingQuality = "high";
  return [canvas, context];
}

/** Scales a picture to the network's size in steps of a half, so that no pixel is left out. */
export function fitted(source, input) {
  const { height, width } = input;
  let [w, h] = [source.width, source.height];
  const target = input.resize === "stretch" ? [w, h] : input.resize === "contain"
    ? [Math.max(w, (h * width) / height), Math.max(h, (w * height) / width)]
    : [Math.min(w, (h * width) / height), Math.min(h, (w * height) / width)];
  [w, h] = target.map((v) => Math.max(1, Math.round(v)));
  let [canvas, context] = fresh(w, h);
  context.drawImage(source, Math.round((w - source.width) / 2), Math.round((h - source.height) / 2));
  while (canvas.width > 2 * width && canvas.height > 2 * height) {
    const half = fresh(Math.ceil(canvas.width / 2), Math.ceil(canvas.height / 2));
    half[1].drawImage(canvas, 0, 0, half[0].width, half[0].height);
    [canvas, context] = half;
  }
  const [last, pen] = fresh(width, height);
  pen.drawImage(canvas, 0, 0, width, height);
  return pen.getImageData(0, 0, width, height);
}

/** The drawn part of a pad, so large that it fills this share of the square, with its centre of mass in the middle where there is room. */
export function centred(pad, fill) {
  const { data } = pad.getContext("2d").getImageData(0, 0, pad.width, pad.height);
  let [left, top, right, bottom, mass, mx, my] = [pad.width, pad.height, -1, -1, 0, 0, 0];
  for (let y = 0; y < pad.height; y += 1) {
    for (let x = 0; x < pad.width; x += 1) {
      const ink = data[4 * (y * pad.width + x)];
      if (ink < 40) continue;
      [left, right, top, bottom] = [Math.min(left, x), Math.max(right, x), Math.min(top, y), Math.max(bottom, y)];
      mass += ink;
      mx += ink * x;
      my += ink * y;
    }
  }
  if (right < 0) return pad;
  const factor = (pad.width * fill) / Math.max(right - left + 1, bottom - top + 1);
  const place = (mean, low, high) => Math.min(Math.max(pad.width / 2 - factor * mean, -factor * low), pad.width - factor * (high + 1));
  const [canvas, pen] = fresh(pad.width, pad.height);
  pen.fillRect(0, 0, pad.width, pad.height);
  pen.setTransform(factor, 0, 0, factor, place(mx / mass, left, right), place(my / mass, top, bottom));
  pen.drawImage(pad, 0, 0);
  return canvas;
}

/** A pad to draw on, with the pointer or with arrow keys. */
export class Pad {
  empty = true;
  #pen = [140, 140];
  #before = null;

  constructor(canvas, changed) {
    this.canvas = canvas;
    this.changed = changed;
    this.context = canvas.getContext("2d", { willReadFrequently: true });
    this.clear();
    const place = (e) => {
      const box = canvas.getBoundingClientRect();
      return [((e.clientX - box.left) * canvas.width) / box.width, ((e.clientY - box.top) * canvas.height) / box.height];
    };
    canvas.addEventListener("pointerdown", (e) => {
      canvas.setPointerCapture(e.pointerId);
      this.#before = place(e);
      this.#line(this.#before, this.#before);
    });
    canvas.addEventListener("pointermove", (e) => {
      if (!this.#before) return;
      const next = place(e);
      this.#line(this.#before, next);
      this.#before = next;
    });
    for (const kind of ["pointerup", "pointercancel"]) canvas.addEventListener(kind, () => { this.#before = null; });
    canvas.addEventListener("keydown", (e) => {
      const move = { ArrowLeft: [-14, 0], ArrowRight: [14, 0], ArrowUp: [0, -14], ArrowDown: [0, 14] }[e.key];
      if (!move) return;
      e.preventDefault();
      const next = this.#pen.map((v, i) => Math.min(270, Math.max(10, v + move[i])));
      if (e.shiftKey) this.#line(this.#pen, next);
      this.#pen = next;
    });
  }

  clear() {
    this.context.fillStyle = "#000";
    this.context.fillRect(0, 0, this.canvas.width, this.canvas.height);
    this.empty = true;
    this.changed();
  }

  #line(from, to) {
    Object.assign(this.context, { strokeStyle: "#fff", lineWidth: 28, lineCap: "round", lineJoin: "round" });
    this.context.beginPath();
    this.context.moveTo(...from);
    this.context.lineTo(...to);
    this.context.stroke();
    this.empty = false;
    this.changed();
  }
}

const KINDS = { f4: [Float32Array, 4], f8: [Float64Array, 8], i4: [Int32Array, 4], i2: [Int16Array, 2], i1: [Int8Array, 1], u1: [Uint8Array, 1], u2: [Uint16Array, 2] };

/** Numbers of a .npy file of NumPy: little-endian, C order. */
export function readNpy(buffer) {
  const bytes = new Uint8Array(buffer);
  if (bytes.length < 12 || String.fromCharCode(...bytes.subarray(1, 6)) !== "NUMPY") throw new Error("this is no .npy file");
  const view = new DataView(buffer);
  const wide = bytes[6] > 1;
  const start = (wide ? 12 : 10) + (wide ? view.getUint32(8, true) : view.getUint16(8, true));
  const header = new TextDecoder().decode(bytes.subarray(wide ? 12 : 10, start));
  const kind = KINDS[/'descr':\s*'[<|=]([fiu]\d)'/.exec(header)?.[1]];
  if (!kind) throw new Error("its numbers are of a type that is not read here; save them as float32");
  if (!/'fortran_order':\s*False/.exec(header)) throw new Error("it is in Fortran order; save np.ascontiguousarray(x)");
  const count = Math.floor((bytes.length - start) / kind[1]);
  return Float64Array.from(new kind[0](buffer.slice(start, start + count * kind[1])));
}

/** Numbers between anything that is none. */
export function readNumbers(text) {
  return Float64Array.from((text.match(/[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?/g) ?? []).map(Number));
}
