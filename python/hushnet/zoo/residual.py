"""Residual networks: ResNet for 32x32 and for 224x224 images, MobileNetV2."""

from __future__ import annotations

from hushnet.errors import ZooError
from hushnet.zoo.builder import Net, Tensor
from hushnet.zoo.registry import architecture

_MAPS = (64, 128, 256, 512)
_NARROW = (16, 32, 64, 128)
_THIN = (16, 32, 64)
_BRANCH_GAIN = 0.25  # of what is added to a shortcut: keeps deep trunks in range and far from chaos
# Mean of what enters a ReLU6. Around 0 every normalised ReLU layer with random weights makes a small difference 1.2
# times larger (half of the variance is cut off, nearly all of a difference passes); around 1 it is 1.06 times, as in
# trained networks.
_RELU6_CENTRE = 1.0


@architecture(
    "resnet14-narrow",
    "ResNet of one bottleneck block a stage, 16 to 128 maps: a small stand-in",
    blocks=(1, 1, 1, 1),
    bottleneck=True,
    maps=_NARROW,
)
@architecture("resnet20", "ResNet-20 for 32x32 images (CIFAR-10)", blocks=(3, 3, 3), bottleneck=False, maps=_THIN)
@architecture("resnet56", "ResNet-56 for 32x32 images (CIFAR-10)", blocks=(9, 9, 9), bottleneck=False, maps=_THIN)
@architecture("resnet18", "ResNet-18 for 32x32 images (GALA)", blocks=(2, 2, 2, 2), bottleneck=False, maps=_MAPS)
@architecture("resnet50", "ResNet-50 for 32x32 images (GALA)", blocks=(3, 4, 6, 3), bottleneck=True, maps=_MAPS)
@architecture("resnet101", "ResNet-101 for 32x32 images (GALA)", blocks=(3, 4, 23, 3), bottleneck=True, maps=_MAPS)
@architecture("resnet152", "ResNet-152 for 32x32 images (GALA)", blocks=(3, 8, 36, 3), bottleneck=True, maps=_MAPS)
def resnet_small(
    net: Net, blocks: tuple[int, ...], bottleneck: bool, maps: tuple[int, ...], classes: int = 10
) -> Tensor:
    """A 3x3 stem that keeps 32x32, then the stages of ResNet: four, or three of the thin ones."""
    x = net.input(3, 32, 32, images=16 if sum(blocks) <= 16 else 8)
    x = net.conv_norm("stem", x, maps[0], 3, pad=1)
    return _stages(net, x, blocks, maps, bottleneck, classes)


@architecture("resnet50-224", "ResNet-50 for 224x224 images (rotation-free CNN, Table IV)")
def resnet50_224(net: Net, size: int = 224, classes: int = 1000) -> Tensor:
    """A 7x7/2 stem and a 3x3/2 maximum, then the four stages; the stride sits in the 3x3 convolution."""
    x = net.input(3, size, size, images=8)
    x = net.conv_norm("stem", x, 64, 7, stride=2, pad=3)
    x = net.max_pool("stem.pool", x, 3, stride=2, pad=1)
    return _stages(net, x, (3, 4, 6, 3), _MAPS, True, classes)


def _stages(
    net: Net, x: Tensor, blocks: tuple[int, ...], widths: tuple[int, ...], bottleneck: bool, classes: int
) -> Tensor:
    for stage, (count, maps) in enumerate(zip(blocks, widths)):
        for number in range(count):
            stride = 2 if stage and not number else 1
            x = _block(net, f"stage{stage + 1}.{number + 1}", x, maps, stride, bottleneck)
    return net.fc("fc", net.global_average_pool("mean", x), classes, last=True)


def _block(net: Net, name: str, x: Tensor, maps: int, stride: int, bottleneck: bool) -> Tensor:
    if bottleneck:
        out = 4 * maps
        y = net.conv_norm(f"{name}.a", x, maps, 1)
        y = net.conv_norm(f"{name}.b", y, maps, 3, stride=stride, pad=1)
        y = net.conv_norm(f"{name}.c", y, out, 1, act=None, gain=_BRANCH_GAIN)
    else:
        out = maps
        y = net.conv_norm(f"{name}.a", x, maps, 3, stride=stride, pad=1)
        y = net.conv_norm(f"{name}.b", y, out, 3, pad=1, act=None, gain=_BRANCH_GAIN)
    if stride != 1 or x.shape[0] != out:
        x = net.conv_norm(f"{name}.shortcut", x, out, 1, stride=stride, act=None)
    return net.act(f"{name}.relu", net.add(f"{name}.add", y, x), "relu")


# expansion, maps, blocks, stride of the first
_INVERTED = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))


@architecture("mobilenetv2", "MobileNetV2 of any width and image size, 1000 classes (nGraph-HE2, Table 8)")
def mobilenetv2(net: Net, size: int = 224, width: float = 1.0, classes: int = 1000) -> Tensor:
    """Inverted residuals with linear bottlenecks; the last convolution keeps 1280 maps for widths below 1."""
    if size < 1 or not 0 < width <= 8:
        raise ZooError(f"size {size}, width {width}: choose a size of 1 or more and a width above 0, up to 8")
    images = min(max(8, 64 * 32 * 32 // (size * size)), 64)
    x = net.input(3, size, size, images=images)
    x = net.conv_norm("stem", x, by_eight(32 * width), 3, stride=2, pad=1, act="relu6", shift=_RELU6_CENTRE)
    number = 0
    for expansion, maps, blocks, stride in _INVERTED:
        for block in range(blocks):
            number += 1
            x = _inverted(net, f"block{number}", x, by_eight(maps * width), expansion, stride if block == 0 else 1)
    x = net.conv_norm("last", x, by_eight(1280 * max(1.0, width)), 1, act="relu6", shift=_RELU6_CENTRE)
    return net.fc("fc", net.global_average_pool("mean", x), classes, last=True)


def by_eight(maps: float) -> int:
    """The nearest multiple of 8, at least 8, and the next one where that would lose more than a tenth."""
    rounded = max(8, int(maps + 4) // 8 * 8)
    return rounded + 8 if rounded < 0.9 * maps else rounded


def _inverted(net: Net, name: str, x: Tensor, out: int, expansion: int, stride: int) -> Tensor:
    y = x
    if expansion != 1:
        y = net.conv_norm(f"{name}.expand", y, x.shape[0] * expansion, 1, act="relu6", shift=_RELU6_CENTRE)
    y = net.conv_norm(
        f"{name}.depthwise", y, y.shape[0], 3, stride=stride, pad=1, groups=y.shape[0], act="relu6", shift=_RELU6_CENTRE
    )
    added = stride == 1 and x.shape[0] == out
    y = net.conv_norm(f"{name}.project", y, out, 1, act=None, gain=_BRANCH_GAIN if added else 1.0)
    return net.add(f"{name}.add", x, y) if added else y
