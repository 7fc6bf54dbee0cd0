"""Image classifiers: chains, residual and joined branches, depthwise and grouped convolutions."""

from __future__ import annotations

import onnx

from .export import Export, T


def _width(channels: float, width: float) -> int:
    """Channels times the width, a multiple of 4 and at least 4."""
    return max(4, int(channels * width + 2) // 4 * 4)


def _classifier(net: Export, x: T, classes: int) -> T:
    """The mean over the image, and a layer."""
    return net.linear("classifier.1", net.flatten(net.global_pool(x)), classes)


def mobilenet_v1(
    opset: int = 11, side: int = 224, width: float = 1.0, classes: int = 1000, blocks: int = 99
) -> onnx.ModelProto:
    """Depthwise separable convolutions with BatchNormalization left in."""
    net = Export(1, opset)

    def unit(name: str, x: T, out: int, kernel: int, stride: int, groups: int) -> T:
        with net.scope(name):
            x = net.conv("0", x, out, kernel, stride, groups=groups, bias=False)
            return net.act("relu6", net.batch_norm("1", x))

    x = unit("features.0", net.input("input", 3, side, side), _width(32, width), 3, 2, 1)
    plan = [(64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), *[(512, 1)] * 5, (1024, 2), (1024, 1)]
    for number, (out, stride) in enumerate(plan[:blocks], 1):
        x = unit(f"features.{number}.dw", x, x.shape[1], 3, stride, x.shape[1])
        x = unit(f"features.{number}.pw", x, _width(out, width), 1, 1, 1)
    return net.model("mobilenet_v1", output=_classifier(net, x, classes))


def mobilenet_v2(
    opset: int = 17, side: int = 224, width: float = 1.0, classes: int = 1000, blocks: int = 99
) -> onnx.ModelProto:
    """Inverted residuals; the mean over the image as ReduceMean."""
    net = Export(2, opset)

    def block(name: str, x: T, out: int, stride: int, expand: int) -> T:
        with net.scope(name):
            hidden = x.shape[1] * expand
            y = net.act("relu6", net.conv("conv.0.0", x, hidden, 1)) if expand != 1 else x
            y = net.act("relu6", net.conv("conv.1.0", y, hidden, 3, stride, groups=hidden))
            y = net.conv("conv.2", y, out, 1, gain=0.5)
            return net.add(x, y) if stride == 1 and out == x.shape[1] else y

    x = net.act("relu6", net.conv("features.0.0", net.input("input", 3, side, side), _width(32, width), 3, 2))
    index = 1
    for expand, out, repeat, stride in [
        (1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1),
    ][:blocks]:  # fmt: skip
        for number in range(repeat):
            x = block(f"features.{index}", x, _width(out, width), stride if number == 0 else 1, expand)
            index += 1
    x = net.act("relu6", net.conv(f"features.{index}.0", x, _width(1280, width), 1))
    x = net.mean(x, [2, 3], keep=False)
    return net.model("mobilenet_v2", output=net.linear("classifier.1", x, classes))


def _excite(net: Export, name: str, x: T, inner: int, middle: str, gate: str) -> T:
    """Squeeze-and-excite."""
    with net.scope(name):
        y = net.act(middle, net.conv("fc1", net.global_pool(x), inner, 1))
        return net.mul(net.act(gate, net.conv("fc2", y, x.shape[1], 1)), x)


def mobilenet_v3(
    opset: int = 13, side: int = 224, width: float = 1.0, classes: int = 1000, blocks: int = 99
) -> onnx.ModelProto:
    """MobileNetV3 small: hard swish in its four parts below opset 14, squeeze-and-excite."""
    net = Export(3, opset)

    def block(name: str, x: T, spec: tuple[int, int, int, bool, str, int]) -> T:
        kernel, hidden, out, excite, act, stride = spec
        with net.scope(name):
            y = net.act(act, net.conv("block.0.0", x, _width(hidden, width), 1))
            y = net.act(act, net.conv("block.1.0", y, y.shape[1], kernel, stride, groups=y.shape[1]))
            if excite:
                y = _excite(net, "block.2", y, _width(y.shape[1] / 4, 1.0), "relu", "hardsigmoid")
            y = net.conv("block.3.0", y, _width(out, width), 1, gain=0.5)
            return net.add(y, x) if stride == 1 and y.shape == x.shape else y

    x = net.act("hardswish", net.conv("features.0.0", net.input("input", 3, side, side), _width(16, width), 3, 2))
    rows = [
        (3, 16, 16, True, "relu", 2), (3, 72, 24, False, "relu", 2), (3, 88, 24, False, "relu", 1),
        (5, 96, 40, True, "hardswish", 2), (5, 240, 40, True, "hardswish", 1), (5, 240, 40, True, "hardswish", 1),
        (5, 120, 48, True, "hardswish", 1), (5, 144, 48, True, "hardswish", 1), (5, 288, 96, True, "hardswish", 2),
        (5, 576, 96, True, "hardswish", 1), (5, 576, 96, True, "hardswish", 1),
    ]  # fmt: skip
    for number, row in enumerate(rows[:blocks], 1):
        x = block(f"features.{number}", x, row)
    x = net.act("hardswish", net.conv("features.12.0", x, _width(576, width), 1))
    x = net.flatten(net.global_pool(x))
    x = net.act("hardswish", net.linear("classifier.0", x, _width(1024, width)))
    return net.model("mobilenet_v3", output=net.linear("classifier.3", x, classes))


def efficientnet(
    opset: int = 17, side: int = 224, width: float = 1.0, classes: int = 1000, blocks: int = 99
) -> onnx.ModelProto:
    """EfficientNet-B0: SiLU as Sigmoid and Mul, squeeze-and-excite, kernels of 3 and 5."""
    net = Export(4, opset)

    def block(name: str, x: T, expand: int, kernel: int, stride: int, out: int) -> T:
        with net.scope(name):
            hidden = x.shape[1] * expand
            y = net.act("silu", net.conv("block.0.0", x, hidden, 1)) if expand != 1 else x
            y = net.act("silu", net.conv("block.1.0", y, hidden, kernel, stride, groups=hidden))
            y = _excite(net, "block.2", y, max(1, x.shape[1] // 4), "silu", "sigmoid")
            y = net.conv("block.3.0", y, out, 1, gain=0.7)
            return net.add(y, x) if stride == 1 and out == x.shape[1] else y

    x = net.act("silu", net.conv("features.0.0", net.input("input", 3, side, side), _width(32, width), 3, 2))
    rows = [
        (1, 3, 1, 16, 1), (6, 3, 2, 24, 2), (6, 5, 2, 40, 2), (6, 3, 2, 80, 3), (6, 5, 1, 112, 3), (6, 5, 2, 192, 4),
        (6, 3, 1, 320, 1),
    ]  # fmt: skip
    for stage, (expand, kernel, stride, out, repeat) in enumerate(rows[:blocks], 1):
        for number in range(repeat):
            step = stride if number == 0 else 1
            x = block(f"features.{stage}.{number}", x, expand, kernel, step, _width(out, width))
    x = net.act("silu", net.conv("features.8.0", x, _width(1280, width), 1))
    return net.model("efficientnet_b0", output=_classifier(net, x, classes))


def densenet(
    opset: int = 12, side: int = 224, growth: int = 32, layers: tuple[int, ...] = (6, 12, 24, 16), classes: int = 1000
) -> onnx.ModelProto:
    """DenseNet-121: concatenations, BatchNormalization in front of convolutions."""
    net = Export(5, opset)
    x = net.conv("features.conv0", net.input("input", 3, side, side), 2 * growth, 7, 2)
    x = net.pool("MaxPool", net.act("relu", x), 3, 2, 1)
    for block, count in enumerate(layers, 1):
        for layer in range(1, count + 1):
            with net.scope(f"features.denseblock{block}.denselayer{layer}"):
                y = net.act("relu", net.batch_norm("norm1", x))
                y = net.act("relu", net.conv("conv1", y, 4 * growth, 1))
                y = net.conv("conv2", y, growth, 3, bias=False, gain=0.7)
                x = net.concat([x, y], 1)
        if block < len(layers):
            with net.scope(f"features.transition{block}"):
                x = net.act("relu", net.batch_norm("norm", x))
                x = net.pool("AveragePool", net.conv("conv", x, x.shape[1] // 2, 1, bias=False), 2, 2)
    x = net.act("relu", net.batch_norm("features.norm5", x))
    return net.model("densenet121", output=_classifier(net, x, classes))


def convnext(
    opset: int = 17, side: int = 224, width: float = 1.0, layers: tuple[int, ...] = (3, 3, 9, 3), classes: int = 1000
) -> onnx.ModelProto:
    """ConvNeXt tiny: channels last between transposes, LayerNormalization, GELU, a scale a channel."""
    net = Export(6, opset)

    def norm_image(name: str, x: T) -> T:
        y = net.layer_norm(name, net.transpose(x, 0, 2, 3, 1))
        return net.transpose(y, 0, 3, 1, 2)

    def block(name: str, x: T) -> T:
        with net.scope(name):
            channels = x.shape[1]
            y = net.transpose(net.conv("block.0", x, channels, 7, groups=channels), 0, 2, 3, 1)
            y = net.linear("block.3", net.layer_norm("block.2", y), 4 * channels)
            y = net.transpose(net.linear("block.5", net.act("gelu", y), channels), 0, 3, 1, 2)
            scale = net.weight("layer_scale", net.normal((channels, 1, 1), 0.5))
            return net.add(net.mul(y, scale), x)

    widths = [_width(c, width) for c in (96, 192, 384, 768)]
    x = norm_image("features.0.1", net.conv("features.0.0", net.input("input", 3, side, side), widths[0], 4, 4, 0))
    for stage, (channels, count) in enumerate(zip(widths, layers)):
        if stage:
            x = net.conv(f"features.{2 * stage}.1", norm_image(f"features.{2 * stage}.0", x), channels, 2, 2, 0)
        for number in range(count):
            x = block(f"features.{2 * stage + 1}.{number}", x)
    x = net.flatten(norm_image("classifier.0", net.global_pool(x)))
    return net.model("convnext_tiny", output=net.linear("classifier.2", x, classes))


def inception(
    opset: int = 13, side: int = 224, width: float = 1.0, classes: int = 1000, blocks: int = 99
) -> onnx.ModelProto:
    """GoogLeNet with factorised kernels: four branches a block, pools with a stride of 1, ceil_mode."""
    net = Export(7, opset)

    def unit(name: str, x: T, out: float, kernel: int | tuple[int, int], stride: int = 1) -> T:
        return net.act("relu", net.conv(name, x, _width(out, width), kernel, stride))

    def block(name: str, x: T, outs: tuple[int, ...]) -> T:
        one, three_in, three, five_in, five, pooled = outs
        with net.scope(name):
            y = unit("branch3.2", unit("branch3.1", unit("branch3.0", x, five_in, 1), five, (1, 7)), five, (7, 1))
            parts = [
                unit("branch1", x, one, 1),
                unit("branch2.1", unit("branch2.0", x, three_in, 1), three, 3),
                y,
                unit("branch4.1", net.pool("MaxPool", x, 3, 1, 1, ceil=True), pooled, 1),
            ]
            return net.concat(parts, 1)

    x = unit("conv1", net.input("input", 3, side, side), 64, 7, 2)
    x = unit("conv3", unit("conv2", net.pool("MaxPool", x, 3, 2, 0, ceil=True), 64, 1), 192, 3)
    x = net.pool("MaxPool", x, 3, 2, 0, ceil=True)
    rows = [
        (64, 96, 128, 16, 32, 32), (128, 128, 192, 32, 96, 64), (), (192, 96, 208, 16, 48, 64),
        (160, 112, 224, 24, 64, 64), (128, 128, 256, 24, 64, 64), (112, 144, 288, 32, 64, 64),
        (256, 160, 320, 32, 128, 128), (), (256, 160, 320, 32, 128, 128), (384, 192, 384, 48, 128, 128),
    ]  # fmt: skip
    for number, row in enumerate(rows[:blocks]):
        x = block(f"inception{number}", x, row) if row else net.pool("MaxPool", x, 3, 2, 0, ceil=True)
    return net.model("inception", output=_classifier(net, x, classes))


def squeezenet(opset: int = 11, side: int = 224, width: float = 1.0, classes: int = 1000) -> onnx.ModelProto:
    """SqueezeNet 1.1: fire modules; a convolution classifies."""
    net = Export(8, opset)

    def unit(name: str, x: T, out: float, kernel: int, stride: int = 1, pad: int | None = None) -> T:
        return net.act("relu", net.conv(name, x, _width(out, width), kernel, stride, pad))

    def fire(name: str, x: T, squeeze: int, expand: int) -> T:
        with net.scope(name):
            y = unit("squeeze", x, squeeze, 1)
            return net.concat([unit("expand1x1", y, expand, 1), unit("expand3x3", y, expand, 3)], 1)

    x = net.pool("MaxPool", unit("features.0", net.input("input", 3, side, side), 64, 3, 2, 0), 3, 2, ceil=True)
    rows = [(16, 64), (16, 64), (), (32, 128), (32, 128), (), (48, 192), (48, 192), (64, 256), (64, 256)]
    for number, row in enumerate(rows, 3):
        x = fire(f"features.{number}", x, *row) if row else net.pool("MaxPool", x, 3, 2, ceil=True)
    x = net.act("relu", net.conv("classifier.1", x, classes, 1))
    return net.model("squeezenet", output=net.flatten(net.global_pool(x)))


def shufflenet(
    opset: int = 13, side: int = 224, width: float = 1.0, classes: int = 1000, blocks: int = 99
) -> onnx.ModelProto:
    """ShuffleNetV2: channels split in halves, and shuffled by Reshape, Transpose and Reshape with sizes from Shape."""
    net = Export(9, opset)

    def shuffled(x: T) -> T:
        y = net.view(x, None, 2, x.shape[1] // 2, x.shape[2], x.shape[3])
        return net.view(net.transpose(y, 0, 2, 1, 3, 4), None, -1, x.shape[2], x.shape[3])

    def branch(name: str, x: T, out: int, stride: int) -> T:
        with net.scope(name):
            y = net.act("relu", net.conv("0", x, out, 1))
            y = net.conv("3", y, out, 3, stride, groups=out)
            return net.act("relu", net.conv("5", y, out, 1))

    x = net.act("relu", net.conv("conv1.0", net.input("input", 3, side, side), _width(24, width), 3, 2))
    x = net.pool("MaxPool", x, 3, 2, 1)
    for stage, (out, count) in enumerate([(116, 4), (232, 8), (464, 4)][:blocks], 2):
        half = _width(out, width) // 2
        for number in range(count):
            name = f"stage{stage}.{number}"
            if number:
                left, right = net.split(x, [x.shape[1] // 2] * 2, 1)
                x = shuffled(net.concat([left, branch(f"{name}.branch2", right, half, 1)], 1))
            else:
                y = net.conv(f"{name}.branch1.0", x, x.shape[1], 3, 2, groups=x.shape[1])
                y = net.act("relu", net.conv(f"{name}.branch1.2", y, half, 1))
                x = shuffled(net.concat([y, branch(f"{name}.branch2", x, half, 2)], 1))
    x = net.act("relu", net.conv("conv5.0", x, _width(1024, width), 1))
    return net.model("shufflenet_v2", output=net.linear("fc", net.mean(x, [2, 3], keep=False), classes))


def _bottleneck(net: Export, name: str, x: T, out: int, hidden: int, stride: int, groups: int, excite: bool) -> T:
    """1x1, grouped 3x3, 1x1 and the shortcut."""
    with net.scope(name):
        y = net.act("relu", net.conv("conv1", x, hidden, 1))
        y = net.act("relu", net.conv("conv2", y, hidden, 3, stride, groups=groups))
        if excite:
            y = _excite(net, "se", y, max(1, x.shape[1] // 4), "relu", "sigmoid")
        y = net.conv("conv3", y, out, 1, gain=0.5)
        shortcut = x if stride == 1 and x.shape[1] == out else net.conv("downsample.0", x, out, 1, stride, 0, gain=0.7)
        return net.act("relu", net.add(y, shortcut))


def resnext(
    opset: int = 17,
    side: int = 224,
    width: float = 1.0,
    layers: tuple[int, ...] = (3, 4, 6, 3),
    groups: int = 32,
    classes: int = 1000,
) -> onnx.ModelProto:
    """ResNeXt-50 32x4d: 25 million parameters, grouped convolutions."""
    net = Export(10, opset)
    x = net.act("relu", net.conv("conv1", net.input("input", 3, side, side), _width(64, width), 7, 2))
    x = net.pool("MaxPool", x, 3, 2, 1)
    for stage, count in enumerate(layers, 1):
        hidden = max(groups, int(128 * 2 ** (stage - 1) * width) // groups * groups)
        for number in range(count):
            stride = 2 if number == 0 and stage > 1 else 1
            x = _bottleneck(net, f"layer{stage}.{number}", x, 2 * hidden, hidden, stride, groups, False)
    return net.model("resnext50", output=_classifier(net, x, classes))


def se_resnet(
    opset: int = 18, side: int = 224, width: float = 1.0, layers: tuple[int, ...] = (3, 4, 6, 3), classes: int = 1000
) -> onnx.ModelProto:
    """SE-ResNet-50: squeeze-and-excite in every block."""
    net = Export(11, opset)
    x = net.act("relu", net.conv("conv1", net.input("input", 3, side, side), _width(64, width), 7, 2))
    x = net.pool("MaxPool", x, 3, 2, 1)
    for stage, count in enumerate(layers, 1):
        hidden = _width(64 * 2 ** (stage - 1), width)
        for number in range(count):
            stride = 2 if number == 0 and stage > 1 else 1
            x = _bottleneck(net, f"layer{stage}.{number}", x, 4 * hidden, hidden, stride, 1, True)
    return net.model("se_resnet50", output=_classifier(net, x, classes))


def regnet(
    opset: int = 16,
    side: int = 224,
    width: float = 1.0,
    layers: tuple[int, ...] = (1, 3, 6, 6),
    group: int = 16,
    classes: int = 1000,
) -> onnx.ModelProto:
    """RegNetY-like: groups of one width, squeeze-and-excite behind the grouped convolution."""
    net = Export(12, opset)
    x = net.act("relu", net.conv("stem.0", net.input("input", 3, side, side), _width(32, width), 3, 2))
    for stage, (out, count) in enumerate(zip((48, 104, 208, 440), layers), 1):
        channels = max(group, int(out * width) // group * group)
        for number in range(count):
            stride = 2 if number == 0 else 1
            name = f"trunk_output.block{stage}.block{stage}-{number}"
            x = _bottleneck(net, name, x, channels, channels, stride, channels // group, True)
    return net.model("regnet_y", output=_classifier(net, x, classes))
