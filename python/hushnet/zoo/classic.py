"""AlexNet, VGG-16, plain networks and SqueezeNet."""

from __future__ import annotations

from typing import Any

from hushnet.errors import ZooError
from hushnet.zoo.builder import Net, Tensor
from hushnet.zoo.registry import architecture

# Of deep networks without shortcuts. Around 0, a normalised ReLU layer with random weights magnifies small differences
# by 1.21 (the root of P(z > 0) / Var(max(z, 0)), z normal), so twenty of them turn a rounding into another answer,
# which trained networks do not do. Around 1 the factor is 1.06; kernels with a common part keep what whole images
# differ in.
_CALM: dict[str, Any] = {"shift": 1.0, "smooth": 0.3}
_VGG16 = ((64, 64), (128, 128), (256, 256, 256), (512, 512, 512), (512, 512, 512))


@architecture("alexnet", "AlexNet for 32x32 images: five convs, one FC from 256 (GALA)")
def alexnet(net: Net, classes: int = 10) -> Tensor:
    """11x11/4, 5x5 and three 3x3 convolutions with biases; 2x2 maxima after the first, second and fifth."""
    x = net.input(3, 32, 32, images=64)
    x = net.act("act1", net.conv("conv1", x, 64, 11, stride=4, pad=5), "relu")
    x = net.max_pool("pool1", x, 2)
    x = net.act("act2", net.conv("conv2", x, 192, 5, pad=2), "relu")
    x = net.max_pool("pool2", x, 2)
    for number, maps in ((3, 384), (4, 256), (5, 256)):
        x = net.act(f"act{number}", net.conv(f"conv{number}", x, maps, 3, pad=1), "relu")
    return net.fc("fc6", net.max_pool("pool5", x, 2), classes, last=True)


@architecture("vgg16", "VGG-16 with batch norm for 32x32 images: thirteen convs, one FC from 512 (GALA)")
def vgg16(net: Net, classes: int = 10) -> Tensor:
    """3x3 convolutions in five stages, each ending in a 2x2 maximum."""
    x = net.input(3, 32, 32, images=32)
    for stage, maps in enumerate(_VGG16, 1):
        for number, out in enumerate(maps, 1):
            x = net.conv(f"conv{stage}_{number}", x, out, 3, pad=1, deviation=None)
            x = net.act(f"act{stage}_{number}", net.batch_norm(f"norm{stage}_{number}", x), "relu")
        x = net.max_pool(f"pool{stage}", x, 2)
    return net.fc("fc", x, classes, last=True)


def _plain(name: str, kernel: int, depth: int, width: int) -> None:
    about = (
        f"32x32 images: plain network, {kernel}x{kernel} filters, depth {depth}, width factor {width} (rotation-free "
        "CNN, Table IV)"
    )
    architecture(name, about, kernel=kernel, depth=depth, width=width)(plain)


def plain(net: Net, kernel: int, depth: int, width: int, classes: int = 10) -> Tensor:
    """A residual network without its shortcuts: one conv, then three stages of (depth - 2) / 3 convs, then one FC.

    The stages have 16, 32 and 64 maps times the width factor; the second and third begin with stride 2.
    """
    if depth < 8 or (depth - 2) % 6:
        raise ZooError(f"depth is {depth}: choose 6 n + 2, from 8 on")
    x = net.input(3, 32, 32, images=16)
    x = net.conv_norm("conv1", x, 16 * width, kernel, pad=kernel // 2, **_CALM)
    for stage in range(3):
        for number in range((depth - 2) // 3):
            stride = 2 if stage and not number else 1
            x = net.conv_norm(
                f"stage{stage + 1}.{number + 1}",
                x,
                (16 << stage) * width,
                kernel,
                stride=stride,
                pad=kernel // 2,
                **_CALM,
            )
    return net.fc("fc", net.global_average_pool("mean", x), classes, last=True)


for _kernel, _depth, _width in ((3, 20, 1), (5, 8, 3), (3, 14, 3), (3, 20, 3)):
    _plain(f"plain20-f{_kernel}-d{_depth}-w{_width}", _kernel, _depth, _width)


@architecture("squeezenet", "SqueezeNet (version 1.1 or 1.0) for images of 227x227 (Cheetah)")
def squeezenet(net: Net, version: str = "1.1", size: int = 227, classes: int = 1000) -> Tensor:
    """Eight fire modules: 1x1 squeeze, then 1x1 and 3x3 side by side; no fully connected layer."""
    if version not in ("1.0", "1.1"):
        raise ZooError(f"no SqueezeNet {version!r}: choose 1.0 or 1.1")
    new = version == "1.1"
    x = net.input(3, size, size, images=4)
    x = net.act("act1", net.conv("conv1", x, 64 if new else 96, 3 if new else 7, stride=2, **_CALM), "relu")
    x = net.max_pool("pool1", x, 3, stride=2, ceil=True)
    pools = (3, 5) if new else (4, 8)
    for number, squeeze in zip(range(2, 10), (16, 16, 32, 32, 48, 48, 64, 64)):
        x = _fire(net, f"fire{number}", x, squeeze)
        if number in pools:
            x = net.max_pool(f"pool{number}", x, 3, stride=2, ceil=True)
    x = net.act("act10", net.conv("conv10", x, classes, 1, deviation=8.0), "relu")
    return net.flatten("flatten", net.global_average_pool("mean", x))


def _fire(net: Net, name: str, x: Tensor, squeeze: int) -> Tensor:
    x = net.act(f"{name}.act", net.conv(f"{name}.squeeze", x, squeeze, 1, **_CALM), "relu")
    one = net.act(f"{name}.act1", net.conv(f"{name}.expand1", x, 4 * squeeze, 1, **_CALM), "relu")
    three = net.act(f"{name}.act3", net.conv(f"{name}.expand3", x, 4 * squeeze, 3, pad=1, **_CALM), "relu")
    return net.concat(f"{name}.concat", one, three)
