"""Networks that give an image or boxes, that read two inputs, and that give several outputs."""

from __future__ import annotations

import numpy as np
import onnx

from .convolutional import _width
from .export import Export, T


def _double(net: Export, name: str, x: T, out: int) -> T:
    """Two convolutions with ReLU."""
    x = net.act("relu", net.conv(f"{name}.0", x, out, 3))
    return net.act("relu", net.conv(f"{name}.3", x, out, 3))


def unet(opset: int = 13, side: int = 256, width: int = 64, depth: int = 4, classes: int = 2) -> onnx.ModelProto:
    """U-Net: bilinear upsampling at odd levels, transposed convolutions at even ones, joined with the way down."""
    net = Export(20, opset, 1)
    x = _double(net, "inc", net.input("input", 3, side, side), width)
    down = [x]
    for level in range(1, depth + 1):
        x = _double(net, f"down{level}", net.pool("MaxPool", x, 2, 2), width * 2**level)
        down.append(x)
    for level in range(depth - 1, -1, -1):
        if level % 2:
            x = net.conv(f"up{level}.reduce", net.resize(x, 2, "linear"), width * 2**level, 1)
        else:
            x = net.conv_transpose(f"up{level}.up", x, width * 2**level, 2, 2, 0)
        x = _double(net, f"up{level}.conv", net.concat([down[level], x], 1), width * 2**level)
    return net.model("unet", output=net.conv("outc", x, classes, 1))


def _backbone(net: Export, x: T, width: float, act: str) -> list[T]:
    """Features at strides of 8, 16 and 32."""
    found = []
    for stage, channels in enumerate((32, 64, 128, 256, 512)):
        x = net.act(act, net.conv(f"model.{stage}.conv", x, _width(channels, width), 3, 2))
        with net.scope(f"model.{stage}.m"):
            y = net.act(act, net.conv("cv1", x, x.shape[1] // 2, 1))
            x = net.add(x, net.act(act, net.conv("cv2", y, x.shape[1], 3, gain=0.5)))
        found.append(x)
    return found[2:]


def _pooled(net: Export, x: T) -> T:
    """Spatial pyramid pooling: max pools with a stride of 1 on top of each other."""
    pools = [x]
    for _ in range(3):
        pools.append(net.pool("MaxPool", pools[-1], 5, 1, 2))
    return net.act("silu", net.conv("model.sppf.cv2", net.concat(pools, 1), x.shape[1], 1))


def yolo_head(opset: int = 12, side: int = 640, width: float = 0.5, classes: int = 80) -> onnx.ModelProto:
    """YOLOv5-like: a pyramid, nearest upsampling, and heads that decode boxes with grids and anchors."""
    net = Export(21, opset, 1)
    small, middle, large = _backbone(net, net.input("images", 3, side, side), width, "silu")
    large = _pooled(net, large)
    up = net.act(
        "silu", net.conv("model.10", net.concat([net.resize(large, 2, "nearest"), middle], 1), middle.shape[1], 1)
    )
    top = net.act("silu", net.conv("model.14", net.concat([net.resize(up, 2, "nearest"), small], 1), small.shape[1], 1))
    found = []
    for number, (x, stride) in enumerate([(top, 8), (up, 16), (large, 32)]):
        with net.scope("model.24"):
            rows, columns = x.shape[2:]
            y = net.conv(f"m.{number}", x, 3 * (5 + classes), 1, gain=0.5)
            y = net.transpose(net.view(y, None, 3, 5 + classes, rows, columns), 0, 1, 3, 4, 2)
            y = net.act("sigmoid", y)
            place, size, rest = net.split(y, [2, 2, 1 + classes], 4)
            grid = np.stack(np.meshgrid(np.arange(columns), np.arange(rows)), -1)[None, None] - 0.5
            place = net.add(net.scaled(place, 2.0), net.constant(grid, np.float32))
            place = net.scaled(place, float(stride))
            size = net.op("Pow", [net.scaled(size, 2.0), net.constant(2.0, np.float32)], size.shape)
            size = net.mul(size, net.constant(np.full((1, 3, 1, 1, 2), 4.0 * stride), np.float32))
            found.append(net.view(net.concat([place, size, rest], 4), None, -1, 5 + classes))
    return net.model("yolo_head", output=net.concat(found, 1))


def ssd_head(
    opset: int = 11, side: int = 300, width: float = 0.5, classes: int = 21, select: bool = False
) -> onnx.ModelProto:
    """SSD-like: boxes and softmax scores of every level; with ``select`` NonMaxSuppression behind them."""
    net = Export(22, opset, 1)
    boxes, scores = [], []
    for number, x in enumerate(_backbone(net, net.input("image", 3, side, side), width, "relu")):
        for name, depth, found in (("bbox_pred", 4, boxes), ("cls_logits", classes, scores)):
            with net.scope(f"head.{name}.{number}"):
                y = net.conv("module", x, 6 * depth, 3, gain=0.5)
                y = net.transpose(net.view(y, None, -1, depth, x.shape[2], x.shape[3]), 0, 3, 4, 1, 2)
                found.append(net.view(y, None, -1, depth))
    box, score = net.concat(boxes, 1), net.act("softmax", net.concat(scores, 1))
    if not select:
        return net.model("ssd_head", boxes=box, scores=score)
    limits = [net.constant([100]), net.constant([0.5], np.float32), net.constant([0.05], np.float32)]
    chosen = net.op("NonMaxSuppression", [box, net.transpose(score, 0, 2, 1), *limits], (1, 3))
    return net.model("ssd_nms", boxes=box, selected=net.op("Cast", [chosen], (1, 3), to=1))


def autoencoder(opset: int = 14, side: int = 64, width: int = 32, code: int = 128) -> onnx.ModelProto:
    """Convolutions down to a code and transposed convolutions back."""
    net = Export(23, opset)
    x = net.input("input", 3, side, side)
    for level in range(3):
        x = net.act("leaky", net.conv(f"encoder.{2 * level}", x, width * 2**level, 3, 2))
    shape = x.shape
    z = net.linear("to_code", net.flatten(x), code)
    x = net.act("relu", net.linear("from_code", z, shape[1] * shape[2] * shape[3]))
    x = net.view(x, None, *shape[1:])
    for level in (1, 0):
        x = net.act("relu", net.conv_transpose(f"decoder.{4 - 2 * level}", x, width * 2**level, 3, 2, 1, extra=1))
    x = net.conv_transpose("decoder.6", x, 3, 4, 2, 1)
    return net.model("autoencoder", output=net.act("sigmoid", x), code=z)


def super_resolution(opset: int = 11, side: int = 224, width: int = 64, factor: int = 3) -> onnx.ModelProto:
    """ESPCN: channels become pixels by DepthToSpace."""
    net = Export(24, opset)
    x = net.act("relu", net.conv("conv1", net.input("input", 1, side, side), width, 5))
    x = net.act("relu", net.conv("conv2", x, width, 3))
    x = net.conv("conv4", net.act("relu", net.conv("conv3", x, width // 2, 3)), factor**2, 3)
    y = net.op("DepthToSpace", [x], (1, 1, side * factor, side * factor), blocksize=factor, mode="CRD")
    return net.model("super_resolution", output=y)


def siamese(opset: int = 15, side: int = 105, width: int = 64, code: int = 512) -> onnx.ModelProto:
    """Two images through the same layers; a sigmoid of their weighted distance."""
    net = Export(25, opset)
    inputs = [net.input(name, 1, side, side) for name in ("left", "right")]
    filters = [net.filters(width * 2**i, (width * 2 ** (i - 1) if i else 1, 3, 3)) for i in range(3)]
    names = [net.weight(f"twin.{3 * i}.weight", f) for i, f in enumerate(filters)]
    size = side
    for _ in range(3):
        size = (size + 1) // 2
    dense = net.weight("twin.10.weight", net.filters(code, (width * 4 * size * size,)))
    codes = []
    for x in inputs:
        with net.scope("twin"):
            for i, name in enumerate(names):
                half = [(n + 1) // 2 for n in x.shape[2:]]
                x = net.op(
                    "Conv", [x, name], (1, width * 2**i, *half), dilations=[1, 1], group=1, kernel_shape=[3, 3],
                    pads=[1] * 4, strides=[2, 2],
                )  # fmt: skip
                x = net.act("relu", x)
            codes.append(net.op("Gemm", [net.flatten(x), dense], (1, code), alpha=1.0, beta=1.0, transB=1))
    away = net.op("Sub", codes, (1, code))
    y = net.linear("out", net.op("Abs", [away], away.shape), 1, gain=0.1)
    return net.model("siamese", output=net.act("sigmoid", y))


def several_outputs(opset: int = 17, side: int = 128, width: float = 1.0, classes: int = 7) -> onnx.ModelProto:
    """One trunk, three heads: class scores, a regression and a segmentation."""
    net = Export(26, opset)
    *_, middle, large = _backbone(net, net.input("input", 3, side, side), width, "relu")
    pooled = net.flatten(net.global_pool(large))
    age = net.linear("age.1", net.act("relu", net.linear("age.0", pooled, _width(64, width))), 1)
    mask = net.conv("mask", net.concat([net.resize(large, 2, "nearest"), middle], 1), 1, 1)
    scores = net.act("softmax", net.linear("emotion", pooled, classes))
    return net.model("several_outputs", emotion=scores, age=age, mask=net.act("sigmoid", mask))
