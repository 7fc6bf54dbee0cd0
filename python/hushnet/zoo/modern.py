"""Networks younger than ResNet: EfficientNet, MobileNetV3, ConvNeXt, a vision transformer, YOLO.

Each has any image size, width and depth; the defaults are those of its paper.
"""

from __future__ import annotations

from typing import Any

from hushnet.errors import ZooError
from hushnet.zoo.builder import Net, Tensor
from hushnet.zoo.registry import architecture
from hushnet.zoo.residual import by_eight

# of what is added to a shortcut, and mean of what enters an activation: see hushnet.zoo.residual
_BRANCH_GAIN = 0.25
_CENTRE = 1.0
# blocks of a stage, where all of them are wanted
ALL = 99
_PATCH = 16


def _images(size: int, width: float, depth: int, per: int) -> int:
    """How many images normalise a network of these options, ``per`` of them at 224 pixels.

    Raises:
        ZooError: options that no network has.
    """
    if size < 1 or depth < 1 or not 0 < width <= 8:
        raise ZooError(
            f"size {size}, width {width}, depth {depth}: choose a size and a depth of 1 or more, and a width above 0, "
            "up to 8"
        )
    return min(max(per, 8 * 96 * 96 // (size * size)), 16)


def _head(net: Net, x: Tensor, classes: int) -> Tensor:
    return net.fc("classifier", net.global_average_pool("mean", x), classes, last=True)


def _excited(net: Net, name: str, x: Tensor, inner: int, middle: str, gate: str) -> Tensor:
    """Squeeze-and-excite: every channel times a gate that follows from the means of all."""
    y = net.global_average_pool(f"{name}.mean", x)
    y = net.act(f"{name}.fc1.act", net.conv(f"{name}.fc1", y, inner, 1), middle)
    y = net.act(f"{name}.gate", net.conv(f"{name}.fc2", y, x.shape[0], 1), gate)
    return net.mul(f"{name}.scaled", y, x)


def _projected(net: Net, name: str, x: Tensor, y: Tensor, out: int, stride: int) -> Tensor:
    """The linear end of an inverted residual, and the shortcut where there is one."""
    added = stride == 1 and x.shape[0] == out
    y = net.conv_norm(f"{name}.project", y, out, 1, act=None, gain=_BRANCH_GAIN if added else 1.0)
    return net.add(f"{name}.add", x, y) if added else y


# expansion, kernel, stride of the first, maps, blocks
_EFFICIENT = (
    (1, 3, 1, 16, 1),
    (6, 3, 2, 24, 2),
    (6, 5, 2, 40, 2),
    (6, 3, 2, 80, 3),
    (6, 5, 1, 112, 3),
    (6, 5, 2, 192, 4),
    (6, 3, 1, 320, 1),
)


@architecture("efficientnet-b0", "EfficientNet-B0: depthwise kernels of 3 and 5, SiLU, squeeze-and-excite")
def efficientnet_b0(net: Net, size: int = 224, width: float = 1.0, depth: int = ALL, classes: int = 1000) -> Tensor:
    """Inverted residuals with SiLU, each with gates from a quarter of its input's channels."""
    x = net.input(3, size, size, images=_images(size, width, depth, 4))
    swish: dict[str, Any] = {"act": "swish", "shift": _CENTRE}
    x = net.conv_norm("stem", x, by_eight(32 * width), 3, stride=2, pad=1, **swish)
    for stage, (expansion, kernel, stride, maps, blocks) in enumerate(_EFFICIENT, 1):
        for number in range(min(blocks, depth)):
            name, step, y = f"stage{stage}.{number + 1}", stride if number == 0 else 1, x
            if expansion != 1:
                y = net.conv_norm(f"{name}.expand", y, x.shape[0] * expansion, 1, **swish)
            y = net.conv_norm(
                f"{name}.depthwise", y, y.shape[0], kernel, stride=step, pad=kernel // 2, groups=y.shape[0], **swish
            )
            y = _excited(net, f"{name}.excite", y, max(1, x.shape[0] // 4), "swish", "sigmoid")
            x = _projected(net, name, x, y, by_eight(maps * width), step)
    return _head(net, net.conv_norm("last", x, by_eight(1280 * width), 1, **swish), classes)


# kernel, hidden, maps, whether gated, activation, stride
_MOBILE = (
    (3, 16, 16, True, "relu", 2),
    (3, 72, 24, False, "relu", 2),
    (3, 88, 24, False, "relu", 1),
    (5, 96, 40, True, "hard-swish", 2),
    (5, 240, 40, True, "hard-swish", 1),
    (5, 240, 40, True, "hard-swish", 1),
    (5, 120, 48, True, "hard-swish", 1),
    (5, 144, 48, True, "hard-swish", 1),
    (5, 288, 96, True, "hard-swish", 2),
    (5, 576, 96, True, "hard-swish", 1),
    (5, 576, 96, True, "hard-swish", 1),
)


@architecture("mobilenetv3-small", "MobileNetV3-small: hard-swish, squeeze-and-excite with hard-sigmoid")
def mobilenetv3_small(net: Net, size: int = 224, width: float = 1.0, depth: int = ALL, classes: int = 1000) -> Tensor:
    """Eleven inverted residuals (``depth`` of them at most) and two layers behind the mean."""
    x = net.input(3, size, size, images=_images(size, width, depth, 8))
    x = net.conv_norm("stem", x, by_eight(16 * width), 3, stride=2, pad=1, act="hard-swish", shift=_CENTRE)
    for number, (kernel, hidden, maps, gated, act, stride) in enumerate(_MOBILE[:depth], 1):
        name, y, inner = f"block{number}", x, by_eight(hidden * width)
        if inner != x.shape[0]:
            y = net.conv_norm(f"{name}.expand", y, inner, 1, act=act, shift=_CENTRE)
        y = net.conv_norm(
            f"{name}.depthwise", y, inner, kernel, stride=stride, pad=kernel // 2, groups=inner, act=act, shift=_CENTRE
        )
        if gated:
            y = _excited(net, f"{name}.excite", y, by_eight(inner // 4), "relu", "hard-sigmoid")
        x = _projected(net, name, x, y, by_eight(maps * width), stride)
    x = net.conv_norm("last", x, by_eight(576 * width), 1, act="hard-swish", shift=_CENTRE)
    x = net.fc("hidden", net.global_average_pool("mean", x), by_eight(1024 * width))
    return net.fc("classifier", net.act("hidden.act", x, "hard-swish"), classes, last=True)


def _norm_image(net: Net, name: str, x: Tensor) -> Tensor:
    """LayerNormalization over the channels of every pixel, between transposes."""
    y = net.layer_norm(name, net.transpose(f"{name}.last", x, 1, 2, 0))
    return net.transpose(f"{name}.first", y, 2, 0, 1)


@architecture("convnext-tiny", "ConvNeXt-tiny: depthwise kernels of 7, LayerNormalization over channels, GELU")
def convnext_tiny(net: Net, size: int = 224, width: float = 1.0, depth: int = ALL, classes: int = 1000) -> Tensor:
    """Four stages of 3, 3, 9 and 3 blocks; what is between transposes has channels last."""
    x = net.input(3, size, size, images=_images(size, width, depth, 2))
    widths = [by_eight(c * width) for c in (96, 192, 384, 768)]
    x = _norm_image(net, "stem.norm", net.conv("stem", x, widths[0], 4, stride=4))
    for stage, (channels, blocks) in enumerate(zip(widths, (3, 3, 9, 3)), 1):
        if stage > 1:
            x = net.conv(f"stage{stage}.down", _norm_image(net, f"stage{stage}.norm", x), channels, 2, stride=2)
        for number in range(min(blocks, depth)):
            name = f"stage{stage}.{number + 1}"
            y = net.conv(f"{name}.depthwise", x, channels, 7, pad=3, groups=channels)
            y = net.layer_norm(f"{name}.norm", net.transpose(f"{name}.last", y, 1, 2, 0))
            y = net.act(f"{name}.gelu", net.linear(f"{name}.fc1", y, 4 * channels), "gelu")
            y = net.transpose(f"{name}.first", net.linear(f"{name}.fc2", y, channels), 2, 0, 1)
            y = net.learned("Mul", f"{name}.scale", y, (channels, 1, 1), mean=_BRANCH_GAIN, deviation=_BRANCH_GAIN / 10)
            x = net.add(f"{name}.add", x, y)
    x = _norm_image(net, "norm", net.global_average_pool("mean", x))
    return net.fc("classifier", x, classes, last=True)


def _attention(net: Net, name: str, x: Tensor, heads: int) -> Tensor:
    """Self-attention; one layer makes queries, keys and values."""
    tokens, width = x.shape
    parts = net.split(f"{name}.parts", net.linear(f"{name}.qkv", x, 3 * width), 3)
    q, k, v = (
        net.transpose(
            f"{name}.{what}",
            net.reshape(f"{name}.{what}.heads", part, tokens, heads, width // heads),
            *((1, 2, 0) if what == "k" else (1, 0, 2)),
        )
        for what, part in zip("qkv", parts)
    )
    scores = net.scaled(f"{name}.scaled", net.matmul(f"{name}.scores", q, k), (width // heads) ** -0.5)
    y = net.matmul(f"{name}.mixed", net.softmax(f"{name}.softmax", scores), v)
    y = net.reshape(f"{name}.joined", net.transpose(f"{name}.back", y, 1, 0, 2), tokens, width)
    return net.linear(f"{name}.out", y, width, deviation=_BRANCH_GAIN)


@architecture("vit-tiny", "ViT-tiny: patches of 16 pixels, a class token, twelve layers of three heads")
def vit_tiny(net: Net, size: int = 224, width: float = 1.0, depth: int = 12, classes: int = 1000) -> Tensor:
    """Normalisation in front of attention and of the two layers with GELU, and at the end."""
    x = net.input(3, size, size, images=_images(size, width, depth, 4))
    heads = 3
    channels = heads * by_eight(64 * width)
    x = net.conv("patches", x, channels, _PATCH, stride=_PATCH)
    x = net.transpose("patches.last", net.reshape("patches.rows", x, channels, x.shape[1] * x.shape[2]), 1, 0)
    x = net.class_token("token", x)
    x = net.learned("Add", "positions", x, (1, *x.shape), mean=0.0, deviation=0.3)
    for number in range(1, depth + 1):
        name = f"layer{number}"
        y = _attention(net, f"{name}.attention", net.layer_norm(f"{name}.norm1", x), heads)
        x = net.add(f"{name}.add1", x, y)
        y = net.linear(f"{name}.fc1", net.layer_norm(f"{name}.norm2", x), 4 * channels)
        y = net.linear(f"{name}.fc2", net.act(f"{name}.gelu", y, "gelu"), channels, deviation=_BRANCH_GAIN)
        x = net.add(f"{name}.add2", x, y)
    return net.fc("classifier", net.row("class", net.layer_norm("norm", x), 0), classes, last=True)


def _unit(
    net: Net, name: str, x: Tensor, out: int, kernel: int = 1, stride: int = 1, *, pad: int | None = None,
    gain: float = 1.0,
) -> Tensor:  # fmt: skip
    """Convolution, normalisation, SiLU; branches that are added have less gain."""
    pad = kernel // 2 if pad is None else pad
    return net.conv_norm(name, x, out, kernel, stride=stride, pad=pad, act="swish", shift=_CENTRE * gain, gain=gain)


def _crossed(net: Net, name: str, x: Tensor, out: int, blocks: int, *, added: bool = True) -> Tensor:
    """C3: one half of the channels goes through residual blocks (without shortcuts where not ``added``)."""
    y = _unit(net, f"{name}.a", x, out // 2)
    for number in range(1, blocks + 1):
        z = _unit(net, f"{name}.{number}.a", y, out // 2)
        z = _unit(net, f"{name}.{number}.b", z, out // 2, 3, gain=2 * _BRANCH_GAIN if added else 1.0)
        y = net.add(f"{name}.{number}.add", y, z) if added else z
    return _unit(net, f"{name}.c", net.concat(f"{name}.joined", y, _unit(net, f"{name}.b", x, out // 2)), out)


@architecture("yolo-nano", "YOLOv5-nano: SiLU, a pyramid down and up with Resize and Concat, boxes of three sizes")
def yolo_nano(net: Net, size: int = 224, width: float = 1.0, depth: int = ALL, classes: int = 80) -> Tensor:
    """Box places, sizes and scores ``[boxes, 5 + classes]`` from 0 to 1; the image side is a multiple of 32."""
    if size % 32:
        raise ZooError(f"size {size}: choose a multiple of 32, which the strides of the pyramid divide")
    x = net.input(3, size, size, images=_images(size, width, depth, 4))
    maps = [by_eight(c * width) for c in (16, 32, 64, 128, 256)]
    levels = []
    x = _unit(net, "stem", x, maps[0], 6, 2, pad=2)
    for stage, (out, blocks) in enumerate(zip(maps[1:], (1, 2, 3, 1)), 1):
        x = _unit(net, f"down{stage}", x, out, 3, 2)
        x = _crossed(net, f"stage{stage}", x, out, min(blocks, depth))
        levels.append(x)
    pools = [_unit(net, "pyramid.a", x, maps[4] // 2)]
    for number in range(1, 4):
        pools.append(net.max_pool(f"pyramid.pool{number}", pools[-1], 5, stride=1, pad=2))
    x = _unit(net, "pyramid.b", net.concat("pyramid.joined", *pools), maps[4])
    ways: list[Tensor] = []
    for number, (level, out) in enumerate(zip(levels[2:0:-1], (maps[3], maps[2])), 1):
        ways.append(_unit(net, f"up{number}.a", x, out))
        x = net.concat(f"up{number}.joined", net.doubled(f"up{number}.doubled", ways[-1]), level)
        x = _crossed(net, f"up{number}.b", x, out, 1, added=False)
    found = [x]
    for number, way in enumerate(reversed(ways), 1):
        y = _unit(net, f"back{number}.a", x, x.shape[0], 3, 2)
        x = _crossed(net, f"back{number}.b", net.concat(f"back{number}.joined", y, way), 2 * x.shape[0], 1, added=False)
        found.append(x)
    boxes = []
    for number, x in enumerate(found, 1):
        rows, columns = x.shape[1:]
        y = net.conv(f"detect{number}", x, 3 * (5 + classes), 1)
        y = net.reshape(f"detect{number}.apart", y, 3, 5 + classes, rows, columns)
        y = net.transpose(f"detect{number}.last", y, 0, 2, 3, 1)
        y = net.act(f"detect{number}.sigmoid", y, "sigmoid")
        boxes.append(net.reshape(f"detect{number}.boxes", y, 3 * rows * columns, 5 + classes))
    return net.concat("boxes", *boxes)
