"""The circuit of the SEAL/OpenFHE comparison (Zhu et al., section 4.

Ishiyama et al.): channel-wise packing, on any CKKS library.

One ciphertext holds one channel, element (y, x) of it in slot ``y sy pitch + x sx``: strides and means leave gaps
instead of moving elements. A convolution rotates every input channel once for every tap, multiplies by plaintexts that
hold the tap's weight where the output is valid and the tap inside the image (zero elsewhere), adds, and rescales once
for every output channel. Rotations: C (k^2 - 1); plaintext products: O C k^2. A fully connected layer first puts all
channels into one ciphertext (C - 1 rotations), then needs one product and ceil(log2 span) rotations for every output. A
mean whose factor was folded away is rotations and additions.

The class :class:`Circuit` knows no library; a backend has the methods of :class:`Counter`, which computes nothing and
counts.
"""

import math
import time
from contextlib import contextmanager

import numpy as np


class Layout:
    """Where the elements of an image tensor (C, H, W) stand in the slots of its C ciphertexts."""

    def __init__(self, shape, pitch, stride, clean):
        self.shape, self.pitch, self.stride, self.clean = tuple(shape), pitch, tuple(stride), clean

    def positions(self):
        """Slot of every (y, x)."""
        _, height, width = self.shape
        return np.arange(height)[:, None] * self.stride[0] * self.pitch + np.arange(width)[None, :] * self.stride[1]

    def span(self):
        """Slots of one channel, gaps included."""
        return self.shape[1] * self.stride[0] * self.pitch


class Counter:
    """A backend without ciphertexts: counts operations, collects rotation steps."""

    def __init__(self, slots):
        self.slots, self.counts, self.steps, self.encode_seconds = slots, {}, set(), 0.0

    def count(self, name):
        self.counts[name] = self.counts.get(name, 0) + 1

    def encrypt(self, values):
        self.count("encrypt")
        return 0

    def zero(self, level):
        return 0

    def add(self, a, b):
        self.count("add")
        return 0

    add_to = sub = add

    def negate(self, a):
        return 0

    def add_plain(self, a, values, level):
        self.count("add_plain")
        return 0

    def multiply_plain(self, a, values, level):
        """``a * values`` with the plaintext's scale such that rescaling gives the scale of ``level - 1``.

        Values: array or number.
        """
        self.count("multiply_plain")
        return 0

    def multiply(self, a, b):
        self.count("multiply")
        self.count("relinearise")
        return 0

    def square(self, a):
        self.count("square")
        self.count("relinearise")
        return 0

    def rescale(self, a):
        self.count("rescale")
        return 0

    def lower(self, a, level, wanted):
        """From one level to another, with that level's scale."""
        if level != wanted:
            self.count("lower")
        return 0

    def rotate(self, a, step):
        step %= self.slots
        if step:
            self.count("rotate")
            self.steps.add(step)
        return 0

    def bounded(self, a, bound):
        """The same ciphertext, whose elements that are read later are known not to exceed the planned bound."""
        return a


class Circuit:
    """A network's specification (``Network.spec``) laid out on slots."""

    def __init__(self, spec, arrays, slots, sample=None):
        self.spec, self.arrays, self.slots, self.sample = spec, arrays, slots, sample
        self.shapes = {t["id"]: tuple(t["shape"]) for t in spec["tensors"]}
        self.bounds = {t["id"]: t["bound"] for t in spec["tensors"]}
        self.layouts = self._layouts()
        self.times = []

    # layouts

    def _layouts(self):
        """Every tensor's layout.

        a vector is so many channels of one element, except as the input, where it is one row.
        """
        strides, clean = {}, {}
        for tensor in [self.spec["input"]]:
            strides[tensor], clean[tensor] = (1, 1), True
        images = {t: self._image(t) for t in self.shapes}
        for step in self.spec["steps"]:
            kind, source, target = step["kind"], step["in"], step["out"]
            if kind == "linear" and step["geometry"]["type"] == "conv2d":
                g = step["geometry"]
                strides[target] = tuple(a * b for a, b in zip(strides[source], g["stride"]))
                clean[target] = not self.adds_only(step)
            elif kind == "linear":
                strides[target], clean[target] = (1, 1), False
            elif kind == "add":
                first = strides[source[0]]
                if any(strides[t] != first for t in source):
                    raise ValueError(
                        f"step {step['name']!r} adds tensors of different strides, which channel-wise packing cannot"
                    )
                strides[target], clean[target] = first, all(clean[t] for t in source)
            else:
                strides[target], clean[target] = strides[source], clean[source]
        pitch = max(images[t][2] * strides[t][1] for t in images)
        found = {t: Layout(images[t], pitch, strides[t], clean[t]) for t in images}
        for tensor, layout in found.items():
            if layout.span() > self.slots:
                raise ValueError(
                    f"tensor {tensor} takes {layout.span()} slots a channel and there are "
                    f"{self.slots}: use a larger ring degree"
                )
        return found

    def _image(self, tensor):
        shape = self.shapes[tensor]
        if len(shape) == 3:
            return shape
        size = math.prod(shape)
        return (1, 1, size) if tensor == self.spec["input"] else (size, 1, 1)

    def adds_only(self, step):
        """Whether a convolution is a sum over windows of each channel, without padding: it needs no mask."""
        g = step["geometry"]
        if not g["groups"] == g["input"][0] == g["output"][0]:
            return False
        return not any(g["pads"]) and bool(np.all(self.arrays[step["weights"]] == 1.0))

    def step_depth(self, step):
        """Levels of a step."""
        if step["kind"] == "add":
            return 0
        if step["kind"] == "linear":
            return 0 if step["geometry"]["type"] == "conv2d" and self.adds_only(step) else 1
        degree = len(step["coefficients"]) - 1
        levels = (degree - 1).bit_length()
        return levels + (degree == 1 << levels and abs(step["coefficients"][-1]) != 1.0)

    def depth(self):
        """Levels of the whole circuit."""
        level = {self.spec["input"]: 0}
        for step in self.spec["steps"]:
            before = step["in"] if step["kind"] == "add" else [step["in"]]
            level[step["out"]] = max(level[t] for t in before) + self.step_depth(step)
        return level[self.spec["output"]]

    def plan(self):
        """Counts of operations and the rotation steps that need keys."""
        counter = Counter(self.slots)
        self.run(counter, np.zeros(self.shapes[self.spec["input"]]))
        return counter.counts, sorted(counter.steps)

    # running

    def run(self, backend, image):
        """Ciphertexts of the output for one image; ``times`` then has seconds and counts of every step."""
        self.backend, self.times = backend, []
        tensor = self.spec["input"]
        layout = self.layouts[tensor]
        channels = image.reshape(layout.shape)
        with self.timed("encrypt"):
            values = {tensor: [backend.encrypt(self.spread(layout, c)) for c in channels]}
        levels = {tensor: self.depth()}
        last = {}
        for index, step in enumerate(self.spec["steps"]):
            for t in step["in"] if step["kind"] == "add" else [step["in"]]:
                last[t] = index
        for index, step in enumerate(self.spec["steps"]):
            getattr(self, "do_" + step["kind"])(step, values, levels)
            for t in [t for t, i in last.items() if i == index]:
                del values[t]
        return values[self.spec["output"]]

    def read(self, slots):
        """The output tensor from the decrypted slots of its ciphertexts."""
        layout = self.layouts[self.spec["output"]]
        return np.stack([s[layout.positions()] for s in slots]).reshape(self.shapes[self.spec["output"]])

    def spread(self, layout, channel):
        out = np.zeros(self.slots)
        out[layout.positions().reshape(-1)] = np.asarray(channel).reshape(-1)
        return out

    @contextmanager
    def timed(self, name, factor=1.0):
        """Processor seconds (without encoding of plaintexts, which could be done before), and counts.

        Times ``factor`` for a part of the work.
        """
        b = self.backend
        before, encode, start = dict(b.counts), b.encode_seconds, time.thread_time()
        yield
        spent, encoded = time.thread_time() - start, b.encode_seconds - encode
        counts = {k: round((v - before.get(k, 0)) * factor) for k, v in b.counts.items() if v != before.get(k, 0)}
        self.times.append(
            {"step": name, "seconds": (spent - encoded) * factor, "encode_seconds": encoded * factor, "counts": counts}
        )

    def part(self, count):
        """How many of so many channels are computed, and the factor for the time of all."""
        taken = count if self.sample is None else min(count, self.sample)
        return taken, count / taken

    def bound(self, tensor, ciphertexts):
        return [self.backend.bounded(c, self.bounds[tensor]) for c in ciphertexts]

    def do_linear(self, step, values, levels):
        source, target = step["in"], step["out"]
        if step["geometry"]["type"] == "dense":
            values[target] = self.dense(step, values[source], levels[source])
        elif self.adds_only(step):
            values[target] = self.sums(step, values[source], levels[source])
        else:
            values[target] = self.convolution(step, values[source], levels[source])
        values[target] = self.bound(target, values[target])
        levels[target] = levels[source] - self.step_depth(step)

    def do_add(self, step, values, levels):
        b = self.backend
        low = min(levels[t] for t in step["in"])
        levels[step["out"]] = low
        with self.timed(step["name"]):
            rows = [[b.lower(c, levels[t], low) for c in values[t]] for t in step["in"]]
            total = rows[0]
            for row in rows[1:]:
                total = [b.add(x, y) for x, y in zip(total, row)]
            values[step["out"]] = total

    def biased(self, step, channels, level, channel_count):
        """Adds the bias where the output is valid."""
        layout = self.layouts[step["out"]]
        bias = self.arrays[step["bias"]]
        image = (
            bias.reshape(layout.shape)
            if bias.size == math.prod(layout.shape)
            else np.broadcast_to(bias.reshape(-1, 1, 1), layout.shape)
        )
        return [
            self.backend.add_plain(c, self.spread(layout, image[o]), level) if np.any(image[o]) else c
            for o, c in enumerate(channels)
        ]

    def convolution(self, step, inputs, level):
        b, g, weights = self.backend, step["geometry"], self.arrays[step["weights"]]
        given, result = self.layouts[step["in"]], self.layouts[step["out"]]
        groups, outs, ins = g["groups"], g["output"][0], g["input"][0]
        taken_in, factor_in = self.part(ins)
        taken_out, factor_out = self.part(outs)
        taps = self.taps(g, given, result)
        rows = [None] * taken_out
        for c in range(taken_in):
            with self.timed(step["name"] + " rotations", factor_in):
                rotated = [b.rotate(inputs[c % len(inputs)], shift) for _, _, shift, _ in taps]
            own = range(taken_out) if groups == 1 else range(c * outs // ins, min(taken_out, (c + 1) * outs // ins))
            with self.timed(step["name"] + " products", factor_in * (factor_out if groups == 1 else 1.0)):
                for o in own:
                    for ciphertext, (i, j, _, mask) in zip(rotated, taps):
                        weight = weights[o, c % (ins // groups), i, j]
                        if weight != 0.0:
                            product = b.multiply_plain(ciphertext, weight * mask, level)
                            rows[o] = product if rows[o] is None else b.add_to(rows[o], product)
        with self.timed(step["name"] + " rescale", factor_out):
            done = [b.zero(level - 1) if row is None else b.rescale(row) for row in rows]
            return self.biased(step, done, level - 1, outs)

    def taps(self, g, given, result):
        """(i, j, rotation, mask) of every tap that reaches the image."""
        found = []
        height, width = given.shape[1:]
        ys, xs = np.arange(result.shape[1]), np.arange(result.shape[2])
        for i in range(g["kernel"][0]):
            dy = i * g["dilation"][0] - g["pads"][0]
            rows = (ys * g["stride"][0] + dy >= 0) & (ys * g["stride"][0] + dy < height)
            for j in range(g["kernel"][1]):
                dx = j * g["dilation"][1] - g["pads"][1]
                columns = (xs * g["stride"][1] + dx >= 0) & (xs * g["stride"][1] + dx < width)
                if rows.any() and columns.any():
                    shift = dy * given.stride[0] * given.pitch + dx * given.stride[1]
                    found.append((i, j, shift, self.spread(result, rows[:, None] & columns[None, :])))
        return found

    def sums(self, step, inputs, level):
        b, g = self.backend, step["geometry"]
        given = self.layouts[step["in"]]
        taken, factor = self.part(g["input"][0])
        done = []
        with self.timed(step["name"], factor):
            for c in range(taken):
                total = inputs[c % len(inputs)]
                for axis, unit in ((1, given.stride[1]), (0, given.stride[0] * given.pitch)):
                    start = total
                    for k in range(1, g["kernel"][axis]):
                        total = b.add(total, b.rotate(start, k * g["dilation"][axis] * unit))
                done.append(total)
        return self.biased(step, done, level, taken)

    def dense(self, step, inputs, level):
        layout = self.layouts[step["in"]]
        weights = self.arrays[step["weights"]]
        channels = layout.shape[0]
        cells = weights.reshape(len(weights), channels, -1)
        if layout.clean and channels > 1 and self.disjoint(layout):
            merged, offsets, span = self.merge(step, inputs, layout)
        else:
            merged, offsets, span = list(inputs), [(c, 0) for c in range(channels)], layout.span()
        b, places = self.backend, layout.positions().reshape(-1)
        taken, factor = self.part(len(weights))
        done = []
        with self.timed(step["name"], factor):
            for o in range(taken):
                rows = {}
                for c, (which, offset) in enumerate(offsets):
                    rows.setdefault(which, np.zeros(self.slots))[places + offset] = cells[o, c]
                total = None
                for which, row in rows.items():
                    if np.any(row):
                        product = b.multiply_plain(merged[which % len(merged)], row, level)
                        total = product if total is None else b.add_to(total, product)
                total = b.zero(level - 1) if total is None else b.rescale(total)
                if len(places) > 1 or len(merged) < channels:
                    for k in range(min(span - 1, self.slots - 1).bit_length()):
                        total = b.add(total, b.rotate(total, 1 << k))
                done.append(total)
            return self.biased(step, done, level - 1, taken)

    def disjoint(self, layout):
        """Whether the gaps hold other channels: no two shifted copies meet."""
        width, height = layout.shape[2] * layout.stride[1], layout.shape[1] * layout.stride[0]
        return width <= layout.pitch and height * layout.pitch <= self.slots

    def merge(self, step, inputs, layout):
        """All channels in as few ciphertexts as hold them, gaps first; (ciphertext, offset) of every channel."""
        (sy, sx), span, pitch = layout.stride, layout.span(), layout.pitch
        blocks = max(1, self.slots // span)
        capacity = sx * sy * blocks
        count = layout.shape[0]
        offsets = []
        for c in range(count):
            which, rest = divmod(c, capacity)
            block, rest = divmod(rest, sx * sy)
            offsets.append((which, block * span + rest // sx * pitch + rest % sx))
        with self.timed(step["name"] + " merge"):
            level = [inputs[c % len(inputs)] for c in range(count)]
            for size, unit in ((sx, 1), (sy, pitch), (blocks, span)):
                level = [self.fold(level[i : i + size], unit) for i in range(0, len(level), size)]
        used = min(blocks, -(-count // (sx * sy)))
        return level, offsets, used * span

    def fold(self, ciphertexts, unit):
        total = ciphertexts[-1]
        for ciphertext in reversed(ciphertexts[:-1]):
            total = self.backend.add(self.backend.rotate(total, -unit), ciphertext)
        return total

    def do_polynomial(self, step, values, levels):
        source, target = step["in"], step["out"]
        count = self.layouts[source].shape[0]
        level = levels[source]
        levels[target] = level - self.step_depth(step)
        with self.timed(step["name"], count / len(values[source])):
            values[target] = [
                self.polynomial(c, step["coefficients"], level, levels[target], self.layouts[target])
                for c in values[source]
            ]

    def polynomial(self, x, coefficients, level, wanted, layout):
        """``sum a_k x^k`` at level ``wanted``: powers by squaring, constants multiplied in where a level is left."""
        b, degree = self.backend, len(coefficients) - 1
        squares = {1: (x, level)}
        for k in range(1, degree.bit_length()):
            before, at = squares[1 << (k - 1)]
            squares[1 << k] = (b.rescale(b.square(before)), at - 1)
        total, top = None, coefficients[-1]
        if degree & (degree - 1) == 0 and abs(top) == 1.0:
            power, at = squares[degree]
            total = b.lower(power if top > 0 else b.negate(power), at, wanted)
            degree -= 1
        for k in range(1, degree + 1):
            if coefficients[k] != 0.0:
                term, at = self.term(coefficients[k], k, squares)
                term = b.lower(term, at, wanted)
                total = term if total is None else b.add(total, term)
        return (
            b.add_plain(total, self.spread(layout, np.full(layout.shape[1:], coefficients[0])), wanted)
            if coefficients[0]
            else total
        )

    def term(self, a, k, squares):
        """``a x^k`` and its level."""
        b = self.backend
        high = 1 << (k.bit_length() - 1)
        power, at = squares[high]
        if high == k:
            return b.rescale(b.multiply_plain(power, a, at)), at - 1
        rest, below = self.term(a, k - high, squares)
        low = min(at, below)
        return b.rescale(b.multiply(b.lower(power, at, low), b.lower(rest, below, low))), low - 1
