"""The plan file: round trip, public part, digest, and everything that must be refused."""

import copy
import hashlib
import json

import numpy as np
import pytest
from hushnet.errors import InputError, PlanError, RangeError
from hushnet.plan import Plan
from hushnet.planner import compile, load, read, validate
from hushnet.reference.numpy import run
from planner_graphs import Builder
from safetensors import safe_open


@pytest.fixture(scope="module")
def plan():
    b = Builder((2, 6, 6), seed=1).conv(4).op("relu").pool("max_pool", (2, 2), (2, 2))
    return compile(b.dense(3).op("softmax", axis=0).done(), name="small")


def test_round_trip(plan, tmp_path):
    path = tmp_path / "a.hush"
    plan.save(path)
    plan.save(path)
    again = load(path)
    assert again.document == plan.document and again.digest == plan.digest
    assert all(
        np.array_equal(again.weights[n], w) and again.weights[n].dtype == w.dtype for n, w in plan.weights.items()
    )
    assert [p.name for p in tmp_path.iterdir()] == ["a.hush"]


def test_the_file_is_safetensors_with_the_documented_digest(plan, tmp_path):
    path = tmp_path / "a.hush"
    plan.save(path)
    with safe_open(path, framework="numpy") as f:
        metadata = f.metadata()
        arrays = {name: f.get_tensor(name) for name in f.keys()}  # noqa: SIM118
    assert metadata["format"] == "hushnet-plan" and metadata["version"] == "2"
    h = hashlib.sha256(metadata["plan"].encode())
    names = {"int8": "I8", "int16": "I16", "int64": "I64"}
    for name in sorted(arrays):
        a = arrays[name]
        h.update(
            name.encode()
            + b"\0"
            + names[a.dtype.name].encode()
            + b"\0"
            + ",".join(map(str, a.shape)).encode()
            + b"\0"
            + a.tobytes()
        )
    assert h.hexdigest() == metadata["digest"]
    assert json.loads(metadata["plan"]) == plan.document


def test_numbers_survive_bit_for_bit(plan):
    changed = Plan(copy.deepcopy(plan.document), plan.weights)
    changed.predicted["seconds"] = 0.1 + 0.2
    assert read(changed.to_bytes()).predicted["seconds"] == 0.1 + 0.2


def test_public_part_has_no_weights(plan):
    public = plan.public_part()
    assert public.is_public and not plan.is_public and public.weights == {}
    text = json.dumps(public.document)
    assert "conv1.weight" not in text and "conv1.bias" not in text
    again = read(public.to_bytes())
    assert again.is_public and len(again.stages) == len(plan.stages)
    assert "weights" in plan.stages[1], "the plan itself keeps its fields"
    with pytest.raises(PlanError, match="public part"):
        run(public, np.zeros((1, 2, 6, 6)))


def test_every_flipped_byte_is_noticed(plan):
    data = bytearray(plan.to_bytes())
    rng = np.random.default_rng(0)
    size = int.from_bytes(data[:8], "little")
    spots = set(rng.integers(0, len(data), 300).tolist()) | {0, 7, 8, 9, size + 8, len(data) - 1}
    digest_at = bytes(data).index(b'"digest"')
    for spot in spots:
        changed = bytearray(data)
        changed[spot] ^= 1 << int(rng.integers(8))
        if (
            bytes(changed[: 8 + size]).rstrip() == bytes(data[: 8 + size]).rstrip()
            and changed[8 + size :] == data[8 + size :]
        ):
            continue
        with pytest.raises(PlanError):
            read(bytes(changed))
    assert digest_at > 0


@pytest.mark.parametrize("cut", [0, 5, 8, 100, -1, -50])
def test_truncation_is_noticed(plan, cut):
    with pytest.raises(PlanError):
        read(plan.to_bytes()[:cut])


def test_other_files_are_refused(plan):
    from safetensors.numpy import save

    with pytest.raises(PlanError, match="not a hushnet plan"):
        read(save({"a": np.zeros(3, np.float32)}))
    with pytest.raises(
        PlanError, match="an older version of this program .plan format 1, this one reads 2.; compile the model again"
    ):
        read(plan.to_bytes().replace(b'"version":"2"', b'"version":"1"', 1))
    with pytest.raises(PlanError, match="a newer version"):
        read(plan.to_bytes().replace(b'"version":"2"', b'"version":"3"', 1))
    with pytest.raises(PlanError):
        read(b"PK\x03\x04" + b"\0" * 100)


def stage(document, name):
    return next(s for s in document["stages"] if s["name"] == name)


def drop_tile(d):
    stage(d, "conv1")["tiles"] = [{"inputs": [0, 6], "outputs": [0, 5]}]


BREAKS = {
    "unknown field": (lambda d: d.update(extra=1), "unknown field `extra`"),
    "trust": (lambda d: d.update(trust="blind"), "unknown variant `blind`"),
    "ring degree": (lambda d: d["params"].update(ring_degree=2000), "power of two"),
    "shape": (lambda d: d["tensors"][0].update(shape=[2, 6, 0]), "shape"),
    "scale": (lambda d: d["tensors"][1].update(scale=0.0), "scale"),
    "id": (lambda d: d["tensors"][1].update(id=7), "ids are places"),
    "stage name twice": (lambda d: d["stages"][2].update(name="conv1"), "two stages"),
    "kind": (lambda d: d["stages"][2].update(kind="other"), "stage .relu2.: unknown variant `other`"),
    "op": (lambda d: d["stages"][2]["ops"][1].update(op="relux"), "unknown variant `relux`"),
    "attribute": (lambda d: d["stages"][2]["ops"][1].update(alpha=1.0), "unknown field `alpha`"),
    "order": (lambda d: d["stages"][2]["ops"].reverse(), "before any stage has computed it"),
    "missing tensor": (lambda d: d["stages"][2]["ops"][0].update({"in": [99]}), "tensor 99, which does not exist"),
    "method": (lambda d: stage(d, "conv1").update(method="magic"), "method"),
    "geometry": (lambda d: stage(d, "conv1")["geometry"].update(stride=[2, 2]), "output height is 6"),
    "groups": (lambda d: stage(d, "conv1")["geometry"].update(groups=3), "groups"),
    "bound too small": (lambda d: d["tensors"][2].update(bound=10), "outputs can reach"),
    "modulus too narrow": (lambda d: stage(d, "conv1").update(modulus_bits=20), "bits"),
    "modulus insecure": (
        lambda d: stage(d, "conv1").update(modulus_bits=54),
        "needs a 54-bit modulus at N=2048, but at most 53",
    ),
    "dropped too much": (lambda d: stage(d, "conv1").update(drop_bits=stage(d, "conv1")["drop_bits"] + 1), "noise"),
    "mask": (lambda d: stage(d, "conv1").update(mask="none"), "unknown variant `none`"),
    "tiles": (drop_tile, "tiles cover"),
    "tile order": (lambda d: stage(d, "conv1")["tiles"][0].update(inputs=[1, 6]), "must begin at 0"),
    "tile too early": (
        lambda d: stage(d, "conv1").update(
            tiles=[{"inputs": [0, 1], "outputs": [0, 6]}, {"inputs": [1, 6], "outputs": [6, 6]}]
        ),
        "only 1 have come",
    ),
    "weights": (lambda d: stage(d, "conv1").update(weights="other"), "not in the file"),
    "half public": (lambda d: stage(d, "conv1").pop("bias"), "only one"),
    "structure": (lambda d: d["stages"][0].pop("ops"), "missing field `ops`"),
    "no outputs": (lambda d: d.update(outputs=[]), "no outputs"),
}


@pytest.mark.parametrize("what", BREAKS)
def test_wrong_plans_are_refused(plan, what):
    change, message = BREAKS[what]
    document = copy.deepcopy(plan.document)
    change(document)
    with pytest.raises(PlanError, match=message):
        validate(Plan(document, plan.weights))


def test_insecure_plans_are_read_only_when_allowed(plan):
    document = copy.deepcopy(plan.document)
    document["params"].update(insecure=True, security_bits=0)
    conv = stage(document, "conv1")
    conv.update(modulus_bits=60)
    data = Plan(document, plan.weights).to_bytes()
    with pytest.raises(PlanError, match="--insecure-parameters"):
        read(data)
    again = read(data, allow_insecure=True)
    from hushnet.report import explain

    assert explain(again)["parameters"]["insecure"]
    document["params"].update(insecure=False)
    with pytest.raises(PlanError, match="claims 0 bits of security"):
        validate(Plan(document, plan.weights))


def test_spare_weights_are_refused(plan):
    with pytest.raises(PlanError, match="no stage uses it"):
        validate(Plan(plan.document, {**plan.weights, "spare": np.zeros(3, np.int8)}))


def test_numbers_that_are_not_finite_cannot_be_written(plan):
    document = copy.deepcopy(plan.document)
    document["predicted"]["seconds"] = float("inf")
    with pytest.raises(PlanError, match="finite"):
        Plan(document, plan.weights).to_bytes()


def test_values_out_of_range_name_their_tensor(plan):
    x = np.zeros((3, 2, 6, 6))
    x[1, 0, 2, 2] = 1.01
    with pytest.raises(RangeError, match=r"x\.q.*planned range") as caught:
        run(plan, x)
    assert caught.value.tensor == "x.q" and caught.value.finite


@pytest.mark.parametrize(
    ("x", "message"),
    [
        (np.zeros((3, 2, 6, 5)), "shape"),
        (np.zeros((2, 6, 6)), "shape"),
        (np.full((1, 2, 6, 6), np.nan), "NaN"),
        (np.zeros((1, 2, 6, 6), complex), "dtype"),
        ({"y": np.zeros((1, 2, 6, 6))}, "wants"),
    ],
)
def test_wrong_inputs_are_refused(plan, x, message):
    with pytest.raises(InputError, match=message):
        run(plan, x)


def test_a_plan_above_the_limits_has_advice_for_who_compiles_it(plan):
    # to raise a limit is for who reads a stranger's plan, and no option of compile does it
    document = copy.deepcopy(plan.document)
    document["tensors"][0]["shape"] = [1 << 20, 1 << 20]
    with pytest.raises(PlanError, match=r"too large for any party: .* at most [\d,]+ are read.*images") as caught:
        validate(Plan(document, plan.weights))
    assert "trust the plan" not in str(caught.value) and "someone you trust" not in str(caught.value)
