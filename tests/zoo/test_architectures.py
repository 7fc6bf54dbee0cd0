"""Every architecture: valid ONNX, published size and cost, sane numbers, the same bytes for a seed."""

from __future__ import annotations

import hashlib
import math

import numpy as np
import onnx
import onnxruntime
import pytest
from hushnet import data, zoo
from hushnet.zoo.residual import by_eight

from .test_modern import KNOWN as MODERN

# (name, options, image, classes, parameters, MACs): counted by hand where the sum is written out, else the published
# figures (parameters exactly, MACs to the digits that are usually given).
KNOWN = [
    ("cryptonets-relu", {}, (1, 28, 28), 10, 25 * 5 + 5 + 845 * 100 + 100 + 1010, 169 * 5 * 25 + 84_500 + 1_000),
    ("cryptonets-square", {}, (1, 28, 28), 10, 25 * 5 + 845 * 100 + 1000, 169 * 5 * 25 + 84_500 + 1_000),
    ("mnist-cnn", {}, (1, 28, 28), 10, 125 + 5 * 3 + 6_250 + 50 * 3 + 8_010, 144 * 125 + 16 * 6_250 + 8_000),
    (
        "cifar10-cnn",
        {},
        (3, 32, 32),
        10,
        864 + 18_432 + 73_728 + 3 * 224 + 1_290,
        1024 * 864 + 256 * 18_432 + 64 * 73_728 + 1_280,
    ),
    ("mlp-784-128-128-10", {}, (1, 28, 28), 10, 785 * 128 + 129 * 128 + 129 * 10, 784 * 128 + 128 * 128 + 1_280),
    (
        "alexnet",
        {},
        (3, 32, 32),
        10,
        2_472_266,
        64 * (64 * 363) + 16 * (192 * 1600) + 4 * (384 * 1728 + 256 * 3456 + 256 * 2304) + 2_560,
    ),
    ("vgg16", {}, (3, 32, 32), 10, 14_728_266, 0.313e9),
    ("resnet14-narrow", {}, (3, 32, 32), 10, 464 + 4_928 + 24_192 + 95_488 + 379_392 + 5_130, 27_972_608),
    (
        "resnet20",
        {},
        (3, 32, 32),
        10,
        272_474,
        (432 + 6 * 2304) * 1024 + (4608 + 5 * 9216 + 512) * 256 + (18432 + 5 * 36864 + 2048) * 64 + 640,
    ),
    ("resnet56", {}, (3, 32, 32), 10, 855_770, 0.1261e9),
    ("resnet18", {}, (3, 32, 32), 10, 11_173_962, 0.556e9),
    ("resnet50", {}, (3, 32, 32), 10, 23_520_842, 1.30e9),
    ("resnet101", {}, (3, 32, 32), 10, 42_512_970, 2.51e9),
    ("resnet152", {}, (3, 32, 32), 10, 58_156_618, 3.72e9),
    ("resnet50-224", {}, (3, 224, 224), 1000, 25_557_032, 4.09e9),
    ("mobilenetv2", {}, (3, 224, 224), 1000, 3_504_872, 300.8e6),
    ("squeezenet", {}, (3, 227, 227), 1000, 1_235_496, 0.388e9),
    ("squeezenet", {"version": "1.0", "size": 224}, (3, 224, 224), 1000, 1_248_424, 0.82e9),
    ("squeezenet", {"version": "1.1", "size": 224}, (3, 224, 224), 1000, 1_235_496, 0.35e9),
    (
        "plain20-f3-d20-w1",
        {},
        (3, 32, 32),
        10,
        269_722,
        432 * 1024 + 6 * 2304 * 1024 + 4608 * 256 + 5 * 9216 * 256 + 18432 * 64 + 5 * 36864 * 64 + 640,
    ),
]
# The MobileNetV2 checkpoints' published table: width, size -> millions of MACs, millions of parameters.
MOBILENET = [
    (0.35, 96, 11, 1.66),
    (0.35, 224, 59, 1.66),
    (0.5, 128, 32, 1.95),
    (0.75, 160, 107, 2.61),
    (1.0, 96, 56, 3.47),
]
SMALL = [
    "alexnet",
    "cifar10-cnn",
    "cryptonets-relu",
    "cryptonets-square",
    "mlp-784-128-128-10",
    "mnist-cnn",
    "plain20-f3-d20-w1",
    "resnet18",
    "vgg16",
]


def infer(model: onnx.ModelProto, x: np.ndarray) -> np.ndarray:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return session.run(["logits"], {"image": x})[0]


def test_every_architecture_has_known_figures() -> None:
    plain = {n for n in zoo.names() if n.startswith("plain20-")}
    assert {name for name, *_ in KNOWN} | plain | set(MODERN) == set(zoo.names())


@pytest.mark.parametrize(
    ("name", "options", "image", "classes", "parameters", "macs"), KNOWN, ids=lambda v: v if isinstance(v, str) else ""
)
def test_valid_with_known_size(
    name: str, options: dict, image: tuple, classes: int, parameters: int, macs: float
) -> None:
    model = zoo.build(name, **options)
    onnx.checker.check_model(model, full_check=True)
    assert model.opset_import[0].version == 17
    about = zoo.describe(model)
    assert (about.inputs, about.outputs) == ({"image": image}, {"logits": (classes,)})
    assert about.parameters == parameters
    assert about.macs == (macs if isinstance(macs, int) else pytest.approx(macs, rel=0.005))
    assert about.macs == sum(layer.macs for layer in about.layers)
    assert model.graph.input[0].type.tensor_type.shape.dim[0].dim_param == "N"
    assert all(np.isfinite(onnx.numpy_helper.to_array(t)).all() for t in model.graph.initializer)


@pytest.mark.parametrize(("width", "size", "megamacs", "megaparameters"), MOBILENET)
def test_mobilenet_of_every_width(width: float, size: int, megamacs: float, megaparameters: float) -> None:
    about = zoo.describe(zoo.build("mobilenetv2", width=width, size=size))
    assert about.macs / 1e6 == pytest.approx(megamacs, abs=1)
    assert about.parameters / 1e6 == pytest.approx(megaparameters, rel=0.015)


def test_mobilenet_rounds_its_maps_to_eights() -> None:
    assert [by_eight(v) for v in (1, 11.2, 5.6, 8.4, 12, 44.8, 1280 * 1.4, 24 * 0.75)] == [
        8,
        16,
        8,
        8,
        16,
        48,
        1792,
        24,
    ]
    wide = zoo.describe(zoo.build("mobilenetv2", width=1.4, size=32))
    assert wide.parameters / 1e6 == pytest.approx(6.06, rel=0.015) and wide.layers[-2].output == (1792, 1, 1)
    assert zoo.describe(zoo.build("mobilenetv2", width=0.35, size=32)).layers[-2].output == (1280, 1, 1)


@pytest.mark.parametrize(("kernel", "depth", "width"), [(3, 20, 1), (5, 8, 3), (3, 14, 3), (3, 20, 3)])
def test_plain_networks_mean_what_their_names_say(kernel: int, depth: int, width: int) -> None:
    layers = zoo.describe(zoo.build(f"plain20-f{kernel}-d{depth}-w{width}")).layers
    assert len(layers) == depth
    assert [layer.output[0] for layer in layers[: -1 : (depth - 2) // 3]] == [
        16 * width,
        16 * width,
        32 * width,
        64 * width,
    ]
    sizes = [layer.output[1] for layer in layers[:-1]]
    assert sizes == sorted(sizes, reverse=True) and set(sizes) == {32, 16, 8}
    assert layers[1].parameters == (16 * width) ** 2 * kernel**2


@pytest.mark.parametrize("name", SMALL)
def test_outputs_are_finite_and_differ(name: str) -> None:
    model = zoo.build(name, seed=3)
    x = data.synthetic(next(iter(zoo.describe(model).inputs.values())), 16, seed=9)
    y = infer(model, x)
    assert y.shape == (16, 10) and np.isfinite(y).all()
    assert 0.5 < y.std() < 10 and np.abs(y).max() < 50
    assert y.std(axis=0).min() > 0.1
    assert len(set(y.argmax(axis=1))) > 1


@pytest.mark.parametrize(("size", "width"), [(32, 0.35), (97, 0.5)])
def test_mobilenet_at_other_sizes_runs(size: int, width: float) -> None:
    model = zoo.build("mobilenetv2", size=size, width=width, classes=7)
    y = infer(model, data.synthetic((3, size, size), 6, seed=2))
    assert y.shape == (6, 7) and np.isfinite(y).all() and y.std(axis=0).min() > 0.05 and np.abs(y).max() < 100


def test_deep_trunks_stay_in_range() -> None:
    model = onnx.shape_inference.infer_shapes(zoo.build("resnet50"))
    sums = [node.output[0] for node in model.graph.node if node.op_type in ("Add", "BatchNormalization")]
    model.graph.output.extend(v for v in model.graph.value_info if v.name in sums)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    values = session.run(sums, {"image": data.synthetic((3, 32, 32), 4, seed=8)})
    assert max(float(np.abs(v).max()) for v in values) < 40
    assert min(float(v.std()) for v in values) > 0.05


@pytest.mark.parametrize("activation", sorted(zoo.ACTIVATIONS))
def test_activations_compute_what_they_are_called(activation: str) -> None:
    net = zoo.Net(weights={})
    model = net.finish(activation, net.act("act", net.input(1, 4, 5), activation))
    x = np.linspace(-8, 8, 40, dtype=np.float32).reshape(2, 1, 4, 5)
    exact = {
        "relu": np.maximum(x, 0),
        "relu6": np.clip(x, 0, 6),
        "square": x**2,
        "swish": x / (1 + np.exp(-x)),
        "sigmoid": 1 / (1 + np.exp(-x)),
        "hard-sigmoid": np.clip(x / 6 + 0.5, 0, 1),
        "hard-swish": x * np.clip(x / 6 + 0.5, 0, 1),
        "gelu": x * (1 + np.vectorize(math.erf)(x / math.sqrt(2))) / 2,
        "swish-rg5-deg2": 0.1 * x**2 + 0.5 * x + 0.24,
        "swish-rg7-deg4": -0.001328 * x**4 + 0.128 * x**2 + 0.5 * x + 0.1773,
    }
    np.testing.assert_allclose(infer(model, x), exact[activation], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("activation", ["square", "swish", "swish-rg5-deg2", "swish-rg7-deg4"])
def test_the_comparison_s_networks_take_its_activations(activation: str) -> None:
    for name, image in (("mnist-cnn", (1, 28, 28)), ("cifar10-cnn", (3, 32, 32))):
        model = zoo.build(name, activation=activation)
        onnx.checker.check_model(model, full_check=True)
        y = infer(model, data.synthetic(image, 8, seed=1))
        assert np.isfinite(y).all() and y.std(axis=0).min() > 0.1


# SHA-256 of the parameters: changes here break every seeded model that someone has published.
PINNED = {
    "cryptonets-relu": "a95cff6200b402d73cef08243515b94ddc0dc218ec9b1da315172ddf6f6d0147",
    "resnet18": "9a812cf63f35f2c475710b3a5b989bde150708262958785e819e6a61de684356",
    "squeezenet": "ac2f9213cd4243c85bd35f1618be6ba0384b757c1c639152ae202b7ce510a048",
}


@pytest.mark.parametrize("name", sorted(PINNED))
def test_a_seed_gives_the_same_parameters_everywhere(name: str) -> None:
    digest = hashlib.sha256()
    for tensor in zoo.build(name, seed=7).graph.initializer:
        digest.update(tensor.name.encode() + onnx.numpy_helper.to_array(tensor).tobytes())
    assert digest.hexdigest() == PINNED[name]


def test_bytes_depend_on_the_seed_alone() -> None:
    first, again, other = (zoo.build("mnist-cnn", seed=s).SerializeToString() for s in (5, 5, 6))
    assert first == again and first != other


def test_given_weights_are_used_as_they_are() -> None:
    seeded = zoo.build("mnist-cnn", seed=1)
    weights = {t.name: onnx.numpy_helper.to_array(t) for t in seeded.graph.initializer}
    assert zoo.build("mnist-cnn", weights=weights).SerializeToString() == seeded.SerializeToString()


def test_wrong_requests_say_what_is_possible() -> None:
    with pytest.raises(zoo.ZooError, match="no architecture 'lenet'.*cryptonets-relu"):
        zoo.build("lenet")
    with pytest.raises(zoo.ZooError, match="no option depth.*size=224, width=1.0"):
        zoo.build("mobilenetv2", depth=3)
    with pytest.raises(zoo.ZooError, match="no activation 'mish'.*swish"):
        zoo.build("mnist-cnn", activation="mish")
    with pytest.raises(zoo.ZooError, match="does not fit its .* choose a larger image"):
        zoo.build("squeezenet", size=12)
    with pytest.raises(zoo.ZooError, match="width 0"):
        zoo.build("mobilenetv2", width=0)
    with pytest.raises(zoo.ZooError, match="no SqueezeNet '2'"):
        zoo.build("squeezenet", version="2")
    weights = {t.name: onnx.numpy_helper.to_array(t) for t in zoo.build("cryptonets-relu").graph.initializer}
    with pytest.raises(zoo.ZooError, match=r"fc3.bias: give finite numbers of shape \(10,\)"):
        zoo.build("cryptonets-relu", weights=weights | {"fc3.bias": np.zeros(9)})
    with pytest.raises(zoo.ZooError, match="fc3.bias: give finite"):
        zoo.build("cryptonets-relu", weights=weights | {"fc3.bias": np.full(10, np.nan)})
    with pytest.raises(zoo.ZooError, match="no parameters extra"):
        zoo.build("cryptonets-relu", weights=weights | {"extra": np.zeros(1)})
    with pytest.raises(zoo.ZooError, match=r"fc3.bias of shape \(10,\) is missing"):
        zoo.build("cryptonets-relu", weights={k: v for k, v in weights.items() if k != "fc3.bias"})


def test_describe_refuses_unknown_sizes() -> None:
    model = zoo.build("cryptonets-relu")
    model.graph.input[0].type.tensor_type.shape.dim[2].dim_param = "H"
    with pytest.raises(zoo.ZooError, match="not fixed"):
        zoo.describe(model)
