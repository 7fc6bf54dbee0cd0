"""Demos of real networks: inputs, answers, a comparison that sees what is wrong. Small networks stand in for them."""

from __future__ import annotations

import io
import json
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import hushnet
import numpy as np
import onnx
import pytest
from hushnet import data, demos, zoo
from hushnet.cli import digits, real
from hushnet.demos import measure, tasks
from onnx import TensorProto, helper, numpy_helper
from PIL import Image

CLASSES = ["alpha", "beta", "gamma"]


def bytes_network(path: Path) -> Path:
    """A look-up of 257 rows, the largest over places, three classes: magika's kind."""
    rng = np.random.default_rng(4)
    weights = {
        "table": rng.normal(0, 1, (257, 8)).astype(np.float32),
        "dense": rng.normal(0, 1, (8, 3)).astype(np.float32),
    }
    nodes = [
        helper.make_node("Gather", ["table", "bytes"], ["rows"]),
        helper.make_node("ReduceMax", ["rows"], ["most"], axes=[1], keepdims=0),
        helper.make_node("MatMul", ["most", "dense"], ["logits"]),
        helper.make_node("Softmax", ["logits"], ["label"]),
    ]
    graph = helper.make_graph(
        nodes,
        "bytes",
        [helper.make_tensor_value_info("bytes", TensorProto.INT32, ["n", 12])],
        [helper.make_tensor_value_info("label", TensorProto.FLOAT, ["n", 3])],
        [numpy_helper.from_array(value, name) for name, value in weights.items()],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> demos.Task:
    """The task of magika, for files of twelve bytes and three types."""
    files = (bytes_network(tmp_path / "net.onnx"), tmp_path / "config.json")
    files[1].write_text(json.dumps({"target_labels_space": CLASSES}))

    def make(count: int, seed: int, _: object) -> demos.Samples:
        ids = np.random.default_rng(seed).integers(0, 257, (count, 12)).astype(np.int32)
        names = tuple(f"file {i}" for i in range(count))
        return demos.Samples(names, {"bytes": ids}, names)

    task = replace(tasks.TASKS["magika"], make=make)
    monkeypatch.setitem(measure.TASKS, "magika", task)
    monkeypatch.setattr(zoo, "fetch", lambda name, **_: files)
    return task


def test_a_comparison_counts_answers_errors_and_bytes(small: demos.Task) -> None:
    seen = demos.compare("magika", count=12, batch=8, threads=1)
    assert seen.same == len(seen.samples) == 12 and set(seen.answers) <= set(CLASSES)
    assert 0 < seen.error <= seen.predicted_error and seen.over == seen.out_of_range == 0
    figures = json.loads(json.dumps(seen.figures()))
    assert figures["count"] == figures["same"] == 12 and figures["sessions"] == 2
    assert figures["bytes_up"] > figures["bytes_down"] > 0 and figures["peak_memory_bytes"] > 0


def test_a_comparison_sees_wrong_answers(small: demos.Task, monkeypatch: pytest.MonkeyPatch) -> None:
    honest = hushnet.run

    def wrong(model, inputs, **options):
        result = honest(model, inputs, **options)
        return replace(result, outputs={k: np.roll(v, 1, axis=-1) for k, v in result.outputs.items()})

    monkeypatch.setattr(hushnet, "run", wrong)
    seen = demos.compare("magika", count=6, threads=1)
    assert seen.same < 6 and seen.over == 6 - sum(np.ptp(v) < 1e-3 for v in seen.plain_outputs["label"])


def test_an_input_outside_its_range_is_counted(small: demos.Task, monkeypatch: pytest.MonkeyPatch) -> None:
    honest = hushnet.run
    monkeypatch.setattr(hushnet, "run", lambda *a, **k: replace(honest(*a, **k), out_of_range=(1,)))
    seen = demos.compare("magika", count=5, batch=3, threads=1)
    assert seen.out_of_range == 2 and seen.sessions == 2 and seen.same == 5


def test_the_command_writes_a_table_and_its_figures(small, tmp_path, capsys) -> None:
    found = real.run_demo("file-type", [], tmp_path / "out", 4, "client-aided", 1, quiet=False)
    (row,) = found["models"]
    lines = Path(row["written"]).read_text().splitlines()
    assert lines[0].split("\t") == ["input", "encrypted", "ONNX Runtime", "same"] and len(lines) == 5
    assert json.loads(Path(found["table"]).read_text())[0]["same"] == 4
    assert "4 of 4 answers are those of ONNX Runtime" in " ".join(capsys.readouterr().out.split())
    with pytest.raises(hushnet.InputError, match="Choose one of digits, ocr"):
        real.run_demo("nothing", [], tmp_path, 1, "client-aided", 1, quiet=True)
    with pytest.raises(hushnet.InputError, match="is no file"):
        real.run_demo("photo", [tmp_path / "absent.png"], tmp_path, 1, "client-aided", 1, quiet=True)


def test_regions_of_text_and_when_they_are_the_same() -> None:
    scores = np.zeros(tasks.PAGE)
    scores[10:20, 30:90] = 0.9
    scores[40:50, 5:40] = 0.5
    scores[100, 100] = 1.0
    assert tasks.regions(scores) == [(10, 30, 20, 90), (40, 5, 50, 40)]
    same = tasks.TASKS["pp-ocr-detector"].same
    text = json.dumps(tasks.regions(scores))
    scores[40:50, 40] = 0.4
    assert same(text, json.dumps(tasks.regions(scores)))
    scores[40:50, 40:60] = 0.4
    assert not same(text, json.dumps(tasks.regions(scores)))
    scores[10:20, 30:90] = 0
    assert not same(text, json.dumps(tasks.regions(scores)))


def test_a_recogniser_says_classes_without_repeats_and_blanks(tmp_path: Path) -> None:
    path = bytes_network(tmp_path / "net.onnx")
    with pytest.raises(demos.DemoError, match="no list of characters"):
        tasks.characters(path)
    model = onnx.load(path)
    model.metadata_props.add(key="character", value="a\nb\nc")
    named = tmp_path / "named.onnx"
    onnx.save(model, named)
    best = np.array([[1, 1, 0, 1, 2, 4, 3, 3, 0]])
    outputs = {"y": np.eye(5)[best]}
    samples = demos.Samples(("line",), {}, ("line",))
    assert tasks.TASKS["pp-ocr-recogniser"].answers(outputs, samples, [named], lambda _: {}) == ["aab c"]


def test_word_pieces() -> None:
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "un", "##able", "able", "cafe", ",", "##s", "\u4e2d"]
    split = data.WordPiece({w: i for i, w in enumerate(words)})
    assert split.pieces("Unable, Cafés\u4e2d") == ["un", "##able", ",", "cafe", "##s", "\u4e2d"]
    assert split.pieces("unkind") == ["[UNK]"]
    coded = split.encode(["able", "unable unable unable"], 5)
    assert coded["input_ids"].tolist() == [[2, 6, 3, 0, 0], [2, 4, 5, 4, 3]]
    assert coded["attention_mask"].tolist() == [[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]]
    with pytest.raises(data.DataError, match="lacks"):
        data.WordPiece({"a": 0})


def test_inputs_are_the_same_every_time_and_of_many_kinds() -> None:
    tokens = data.byte_tokens(b"  abc \n", first=4, last=4)
    assert tokens.tolist() == [97, 98, 99, 32, 32, 97, 98, 99]
    assert data.byte_tokens(b"x" * 5000).tolist() == [120] * 2048
    assert data.byte_tokens(b"").tolist() == [256] * 2048
    made = data.files(20)
    assert made == data.files(20) and len({name for name, _ in made}) == 20 and all(len(c) > 64 for _, c in made)
    texts = data.sentences(200)
    assert len({t for _, t in texts}) == 200 and len({topic for topic, _ in texts}) > 4
    with pytest.raises(data.DataError, match="can be made"):
        data.sentences(10_000)
    line = data.text_line("invoice 12", np.random.default_rng(3))
    assert line.dtype == np.uint8 and line.shape[1] > line.shape[0] and line.std() > 10
    assert np.array_equal(line, data.text_line("invoice 12", np.random.default_rng(3)))
    page, boxes = data.text_page(["garden", "water"], np.random.default_rng(1), rows=160, columns=320)
    assert page.shape == (160, 320, 3) and len(boxes) == 2 and boxes[0][2] < boxes[1][0]
    for samples, shape in (
        (tasks.TASKS["open-nsfw"].make(4, 0, ()), (4, 224, 224, 3)),
        (tasks.TASKS["pp-ocr-angle"].make(4, 0, ()), (4, 3, 48, 192)),
        (tasks.TASKS["pp-ocr-detector"].make(2, 0, ()), (2, 3, 160, 320)),
    ):
        (value,) = samples.arrays.values()
        assert value.shape == shape and value.dtype == np.float32 and value.std() > 0.05


def test_what_is_no_picture_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(b"no picture")
    with pytest.raises(data.DataError, match="cannot be read as a picture"):
        data.read_picture(tmp_path / "a.png")
    with pytest.raises(data.DataError, match="cannot be read"):
        data.read_file(tmp_path / "absent")


def test_the_demo_of_digits_needs_what_every_install_has(tmp_path: Path) -> None:
    """None of the packages of the extra `demo` is there to be imported."""
    program = (
        "import sys\n"
        "for name in ('sklearn', 'scipy', 'matplotlib', 'PIL', 'onnxruntime'): sys.modules[name] = None\n"
        f"sys.argv = ['hushnet', 'demo', '--images', '20', '--json', '--out', {str(tmp_path)!r}]\n"
        "from hushnet.cli import main\n"
        "main()\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["equal_to_plaintext_fixed_point"] and told["images"] == 20
    svg = Path(told["picture"]).read_text()
    assert svg.count('font-weight="bold"') == 20
    # the digits, and what the server received
    assert len(re.findall("data:image/png;base64,", svg)) == 2


def test_pictures_of_the_demo_show_their_bytes() -> None:
    grey = np.random.default_rng(3).integers(0, 256, (5, 7), dtype=np.uint8)
    assert np.array_equal(np.asarray(Image.open(io.BytesIO(digits.png(grey)))), grey)
