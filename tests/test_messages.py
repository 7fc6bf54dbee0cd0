"""What a user reads: messages with brackets and colons, files of the wrong kind, paths, options, texts of objects."""

from __future__ import annotations

import io
import json
import sys
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path

import hushnet
import numpy as np
import pytest
import typer
from hushnet.cli.common import FLAGS, in_flags
from hushnet.cli.compile import heavy
from hushnet.cli.main import app, main
from onnx import TensorProto, helper, numpy_helper


@dataclass
class Done:
    returncode: int
    stdout: str
    stderr: str


def hush(*arguments: object) -> Done:
    """The command line in this process."""
    stdout, stderr, before, code = io.StringIO(), io.StringIO(), sys.argv, 0
    sys.argv = ["hushnet", *map(str, arguments)]
    try:
        with redirect_stdout(stdout), redirect_stderr(stderr):
            main()
    except SystemExit as end:
        code = int(end.code or 0)
    finally:
        sys.argv = before
    return Done(code, stdout.getvalue(), stderr.getvalue())


def words(text: str) -> str:
    return " ".join(text.split())


def layer(name: str = "net", outputs: int = 3) -> bytes:
    weight = numpy_helper.from_array(np.eye(outputs, 4, dtype=np.float32).T.copy(), "w")
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"], name="[red]m")],
        name,
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 4])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", outputs])],
        [weight],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("messages")
    (path / "model.onnx").write_bytes(layer("[bold]net[/bold] :1234: [x]"))
    np.save(path / "x.npy", np.linspace(0, 1, 20, dtype=np.float32).reshape(5, 4))
    np.save(path / "wide.npy", np.zeros((5, 13), np.float32))
    hushnet.compile(path / "model.onnx", batch=4).save(path / "model.hush")
    hushnet.compile(path / "model.onnx", trust="two-party", reveal="argmax").save(path / "argmax.hush")
    return path


def test_brackets_and_colons_are_printed_as_they_are(folder: Path) -> None:
    done = hush("run", folder / "model.hush", folder / "wide.npy")
    assert done.returncode == 1 and "[5, 13]" in done.stderr and "[images, 4]" in done.stderr, done.stderr
    for name in ("[/b].npy", "[red]a.npy", ":smile:.npy", "x:1234:.npy"):
        done = hush("run", folder / "model.hush", folder / name)
        assert done.returncode == 1 and name in done.stderr and "Traceback" not in done.stderr, done.stderr
    # names of networks and of files stand in tables and titles
    said = words(hush("explain", folder / "model.hush").stdout)
    assert "[bold]net[/bold] :1234: [x]" in said and "[red]m" in said


@pytest.mark.parametrize("command", ["explain", "serve", "run"])
def test_an_onnx_file_where_a_plan_is_wanted(folder: Path, command: str) -> None:
    more = [folder / "x.npy"] if command == "run" else []
    done = hush(command, folder / "model.onnx", *more)
    assert done.returncode == 1
    assert "an ONNX model, not a plan" in words(done.stderr) and "hushnet compile" in words(done.stderr), done.stderr


def test_a_plan_where_an_onnx_file_is_wanted(folder: Path, tmp_path: Path) -> None:
    for arguments in (["compile", folder / "model.hush", "-o", tmp_path / "o.hush"], ["check", folder / "model.hush"]):
        done = hush(*arguments)
        assert done.returncode == 1 and "a plan, which is compiled already" in words(done.stderr), done.stderr


def test_paths_are_checked_before_anything_is_computed_or_sent(folder: Path, tmp_path: Path) -> None:
    nobody = "hush://127.0.0.1:1"
    absent = tmp_path / "absent" / "y.npy"
    for arguments, said in (
        (["infer", nobody, folder / "x.npy", "-o", absent], "there is no folder"),
        (["infer", nobody, folder / "x.npy", "-o", tmp_path], "cannot hold the outputs"),
        (["infer", nobody, folder / "x.npy", "--trace", tmp_path], "is a folder"),
        (["infer", nobody, folder / "x.npy", "-o", tmp_path / "y.txt"], ".npy or .npz"),
        (["run", folder / "model.hush", folder / "x.npy", "-o", absent], "there is no folder"),
        (["compile", folder / "model.onnx", "-o", tmp_path / "absent" / "m.hush"], "there is no folder"),
        (["explain", folder / "model.hush", "--trace", folder / "x.npy"], "is not a trace"),
    ):
        done = hush(*arguments)
        assert done.returncode == 1 and said in words(done.stderr), (arguments, done.stderr)
        assert "Traceback" not in done.stderr and "refused" not in done.stderr, done.stderr


def test_messages_name_options_as_the_command_line_writes_them() -> None:
    message = "use fewer activation_bits or weight_bits, give --weight-bits; 'weight_bits' stays"
    assert in_flags(message) == (
        "use fewer --activation-bits or --weight-bits, give --weight-bits; 'weight_bits' stays"
    )
    known = {name for c in typer.main.get_command(app).commands.values() for p in c.params for name in p.opts}
    assert set(FLAGS.values()) <= known


def test_a_refusal_on_the_command_line_has_its_names(folder: Path, tmp_path: Path) -> None:
    done = hush(
        "compile", folder / "model.onnx", "-o", tmp_path / "o.hush", "--input-range", "1", "0", "--trust",
        "non-interactive",
    )  # fmt: skip
    assert done.returncode == 1 and "--input-range" in done.stderr and "input_range" not in done.stderr, done.stderr


def test_typing_errors_in_options_are_met_with_a_suggestion(folder: Path) -> None:
    for trust in ("client-aided", "two-party", "non-interactive"):
        with pytest.raises(hushnet.PlanError, match="no option 'weight_bit': did you mean 'weight_bits'"):
            hushnet.compile(folder / "model.onnx", trust=trust, weight_bit=8)
    with pytest.raises(hushnet.PlanError, match="no option 'colour'. The options are "):
        hushnet.compile(folder / "model.onnx", colour=8)


def test_run_takes_a_path_and_says_what_it_cannot_take(folder: Path) -> None:
    x = np.load(folder / "x.npy")
    want = hushnet.run(hushnet.Model.load(folder / "model.hush"), x).output
    np.testing.assert_array_equal(hushnet.run(folder / "model.hush", x).output, want)
    np.testing.assert_array_equal(hushnet.run(str(folder / "model.hush"), x).output, want)
    with pytest.raises(hushnet.InputError, match="ndarray is no compiled network"):
        hushnet.run(x, x)
    server = hushnet.serve(folder / "model.hush")
    try:
        with hushnet.connect(f"hush://127.0.0.1:{server.port}") as client:
            np.testing.assert_array_equal(client.infer(x).output, want)
            assert repr(client) == "Connection([bold]net[/bold] :1234: [x]: client-aided, inputs x)"
    finally:
        server.stop()


def test_an_index_is_printed_as_a_class(folder: Path) -> None:
    x = np.load(folder / "x.npy")
    assert hushnet.run(folder / "argmax.hush", x).label.tolist() == x[:, :3].argmax(axis=1).tolist()
    done = hush("run", folder / "argmax.hush", folder / "x.npy")
    assert "Classes by y: 2, 2, 2, 2, 2." in words(done.stdout), done.stdout
    assert json.loads(hush("run", folder / "argmax.hush", folder / "x.npy", "--json").stdout)["labels"] == {
        "y": [2] * 5
    }


def test_explanations_print_as_tables(folder: Path) -> None:
    explained = hushnet.Model.load(folder / "model.hush").explain()
    assert "The server learns" in str(explained) and "Ring degree N" in str(explained)
    html = explained._repr_html_()
    assert html.startswith("<pre>") and "The server learns" in html and "<span" in html
    assert repr(explained) == "Explanation([bold]net[/bold] :1234: [x]: client-aided, 3 steps, for 4 images)"
    assert json.loads(json.dumps(explained)) == dict(explained)
    for trust in ("two-party", "non-interactive"):
        other = hushnet.compile(folder / "model.onnx", trust=trust, batch=4).explain()
        assert "The server learns" in str(other) and trust in repr(other)


def test_texts_of_objects_are_short(folder: Path) -> None:
    model = hushnet.Model.load(folder / "model.hush")
    assert repr(model) == "Model([bold]net[/bold] :1234: [x]: client-aided, input x, for 4 images)"
    assert repr(model.plan) == "Plan([bold]net[/bold] :1234: [x]: client-aided plan, 3 stages, 2 arrays)"
    assert repr(model.plan.public_part()).endswith("client-aided public part, 3 stages, 0 arrays)")
    assert repr(hushnet.run(model, np.load(folder / "x.npy"))).startswith("Result(y (5, 3); ")


def test_errors_stand_at_the_top_with_their_fields(folder: Path) -> None:
    with pytest.raises(hushnet.UnsupportedModel) as caught:
        hushnet.compile(helper.make_model(helper.make_graph(
            [helper.make_node("NonMaxSuppression", ["x", "x"], ["y"], name="nms")], "g",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 2, 4])],
            [helper.make_empty_tensor_value_info("y")],
        )))  # fmt: skip
    assert isinstance(caught.value, hushnet.ModelError) and caught.value.issues
    x = np.load(folder / "x.npy")[:3]
    x[1, 2] = 9.0
    outside = hushnet.run(folder / "model.hush", x).range_error
    assert isinstance(outside, hushnet.RangeError) and outside.affected == [1]
    assert (outside.image, outside.element, outside.value, outside.bound) == (1, 2, 9.0, 1.0)


def test_the_help_and_the_documents_tell_exit_codes() -> None:
    said = words(hush("--help").stdout)
    document = (Path(__file__).parent.parent / "docs" / "command-line.md").read_text()
    for code in ("0", "1", "2", "3", "4", "130"):
        assert f"{code}:" in said
        assert f"| {code} |" in document
    assert hush("run").returncode == 2


@pytest.mark.parametrize("fault", [ValueError("not in list"), KeyError("t3"), AssertionError(), RecursionError("deep")])
def test_a_fault_of_our_own_is_not_told_as_the_users(
    folder: Path, monkeypatch: pytest.MonkeyPatch, fault: Exception
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise fault

    monkeypatch.setattr(hushnet.Model, "load", broken)
    done = hush("explain", folder / "model.hush")
    assert done.returncode == 4 and done.stderr.startswith("Traceback") and "in broken" in done.stderr, done
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith(f"InternalError: {type(fault).__name__}") and "not of what you gave. Report it" in last
    done = hush("explain", folder / "model.hush", "--json")
    told = json.loads(done.stdout)["error"]
    assert (done.returncode, told["type"], done.stderr) == (4, "InternalError", "") and told["traceback"]
    # what a user can mend keeps its name, its status and its one line
    monkeypatch.setattr(hushnet.Model, "load", lambda *_, **__: (_ for _ in ()).throw(MemoryError()))
    done = hush("explain", folder / "model.hush")
    assert done.returncode == 1 and done.stderr.startswith("MemoryError: This machine has too little memory."), done
    assert len(done.stderr.splitlines()) == 1


def test_an_image_of_gigabytes_is_warned_of() -> None:
    assert heavy({"bytes_up": 2**30, "bytes_down": 2**30, "batch": 2048}) == []
    (said,) = heavy({"bytes_up": 3 * 2**30, "bytes_down": 2**30, "batch": 1})
    assert said.startswith("An image sends 4 GiB. Ask for fewer bits (--precision)") and "--engine packed" in said


def test_a_beginners_mistake_is_answered_with_what_to_do(tmp_path: Path) -> None:
    """Axes in another order, bytes of pixels, files of another kind or in another order, one row of calibration."""
    weight = numpy_helper.from_array(np.ones((2, 3, 2, 2), np.float32) / 8, "w")
    graph = helper.make_graph(
        [helper.make_node("Conv", ["image", "w"], ["y"])],
        "net",
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, ["n", 3, 6, 5])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 2, 5, 4])],
        [weight],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()
    x = np.random.default_rng(0).random((12, 3, 6, 5))
    made = hushnet.compile(model, calibration=x, batch=4)
    for wrong, said in (
        (x.transpose(0, 2, 3, 1), r"x\.transpose\(0, 3, 1, 2\) has the wanted one"),
        (x.reshape(12, -1), r"x\.reshape\(-1, 3, 6, 5\)"),
        (x[:, :2], r"[\[(]images, 3, 6, 5[\])]\.?$"),
    ):
        with pytest.raises(hushnet.PlanError, match=said):
            hushnet.compile(model, calibration=wrong)
        with pytest.raises(hushnet.InputError, match=said):
            hushnet.run(made, wrong)
    few = hushnet.compile(model, calibration=x[:1], batch=4).plan.document["notes"]
    assert any("One row says little of other inputs: give some hundred" in note for note in few)
    plan = tmp_path / "plan.hush"
    made.save(plan)
    np.save(tmp_path / "bytes.npy", (255 * x).astype(np.uint8))
    told = words(hush("run", plan, tmp_path / "bytes.npy").stdout)
    assert "No row stands: scale the inputs as the calibration data was" in told
    for name, said in (("a.csv", "numpy.loadtxt('a.csv'"), ("a.png", "Scale a picture"), ("a.hush", "comes first")):
        (tmp_path / name).write_text("1,2")
        assert said in words(hush("run", plan, tmp_path / name).stderr)
    (tmp_path / "text.npy").write_text("hello")
    told = words(hush("run", plan, tmp_path / "text.npy").stderr)
    assert "no array file at all" in told and "allow_pickle" not in told


def test_names_that_are_nearly_right_are_suggested_and_messages_end(tmp_path: Path) -> None:
    (tmp_path / "m.onnx").write_bytes(layer("m"))
    np.save(tmp_path / "x.npy", np.zeros((3, 5)))
    given = ("compile", tmp_path / "m.onnx", "-o", tmp_path / "m.hush")
    for arguments, near in (((*given, "--trust", "tow-party"), "two-party"), (("zoo", "resnet-50"), "resnet50")):
        done = hush(*arguments)
        assert done.returncode == 1 and words(done.stderr).endswith(f"(did you mean '{near}'?)."), done
    assert hush(*given).returncode == 0
    done = hush("run", tmp_path / "m.hush", tmp_path / "x.npy")
    assert done.returncode == 1 and words(done.stderr).endswith("has shape [3, 5], wanted [images, 4]."), done
    assert json.loads(hush("zoo", "no", "--json").stdout)["error"]["message"].endswith(".")


def test_what_a_user_has_is_not_written_over(folder: Path, tmp_path: Path) -> None:
    """A plan named x.npy wrote over the calibration data, and so did pages, traces and answers."""
    plan, model, x, y = folder / "model.hush", tmp_path / "m.onnx", tmp_path / "x.npy", tmp_path / "y.npy"
    model.write_bytes(layer("m"))
    np.save(x, np.zeros((3, 4)))
    np.save(y, np.zeros(3, int))
    before = {path: path.read_bytes() for path in (model, x, y)}
    for arguments, said in (
        (("compile", model, "-o", x), "cannot hold a plan: give a file name that ends in .hush."),
        (("compile", model, "-o", model), "cannot hold a plan"),
        (("explain", plan, "--html", x), "cannot hold a page: give a file name that ends in .html or .htm."),
        (("run", plan, x, "-o", x), "is read by this command, and the outputs would write over it"),
        (("run", plan, x, "--labels", y, "-o", tmp_path / "." / "y.npy"), "is read by this command"),
        (("run", plan, x, "--trace", y), "is the name of a model or of data, which a trace would write over"),
        (("infer", "hush://127.0.0.1:1", x, "-o", x), "is read by this command"),
        (("serve", plan, "--record", model), "which a record would write over"),
    ):
        done = hush(*arguments)
        assert done.returncode == 1 and said in words(done.stderr), done
    assert before == {path: path.read_bytes() for path in before}
    assert hush("run", plan, x, "-o", tmp_path / "answers.npy", "--trace", tmp_path / "trace.json").returncode == 0


def test_labels_and_rows_of_another_form_are_told_how_to_become_the_right_one(folder: Path, tmp_path: Path) -> None:
    x, labels = np.linspace(0, 1, 20).reshape(5, 4), np.array([0, 1, 2, 1, 0])
    model = folder / "model.onnx"
    with pytest.raises(hushnet.PlanError, match=r"labels have shape \(5, 3\); .* labels\.argmax\(axis=1\) makes them"):
        hushnet.compile(model, calibration=x, labels=np.eye(3)[labels])
    whole, floats = (hushnet.compile(model, calibration=x, labels=v).plan.predicted for v in (labels, labels * 1.0))
    assert whole["accuracy"] == floats["accuracy"]
    made = hushnet.compile(model, calibration=x, labels=labels[:, None])
    result = hushnet.run(made, x)
    assert result.accuracy(labels) == result.accuracy(labels * 1.0)
    with pytest.raises(hushnet.PlanError, match="shape"):
        result.accuracy(np.eye(3)[labels])
    with pytest.raises(hushnet.InputError, match=r"x\.reshape\(-1, 4\)"):
        hushnet.run(made, x.reshape(5, 2, 2))
    with pytest.raises(hushnet.PlanError, match=r"x\.reshape\(-1, 4\)"):
        hushnet.compile(model, calibration=x.reshape(5, 2, 2))


def test_labels_of_other_classes_than_the_answers_have_are_refused(tmp_path: Path) -> None:
    """A regression's targets were counted as labels: its accuracy was 0, and so was the original network's."""
    model, x, y = tmp_path / "model.onnx", tmp_path / "x.npy", tmp_path / "y.npy"
    rows = np.linspace(-1, 1, 20).reshape(5, 4)
    for outputs, wrong, said in ((1, [25.0, 346, 120, 80, 51], "25 to 346"), (3, [1, 2, 3, 1, 2], "1 to 3")):
        model.write_bytes(layer(outputs=outputs))
        with pytest.raises(hushnet.PlanError, match=f"labels are {said}, and the answers tell .* classes apart"):
            hushnet.compile(model, calibration=rows, labels=wrong)
        made = hushnet.compile(model, calibration=rows)
        with pytest.raises(hushnet.PlanError, match="Values that a regression is to give are no labels"):
            hushnet.run(made, rows).accuracy(np.array(wrong))
    np.save(x, rows)
    np.save(y, np.array(["a", "b", "a", "b", "a"], object), allow_pickle=True)
    given = ("compile", model, "-o", tmp_path / "m.hush", "--calibration", x, "--labels")
    told = words(hush(*given, y).stderr)
    assert "Of labels that are words, save array.astype(str)." in told
    assert "no such file. Give a .npy or .npz file of labels." in words(hush(*given, tmp_path / "z.npy").stderr)


def test_what_is_said_of_weights_names_flags(tmp_path: Path, folder: Path) -> None:
    given = ("compile", folder / "model.onnx", "-o", tmp_path / "m.hush", "--trust", "non-interactive")
    for told in (hush(*given).stdout, hush("explain", tmp_path / "m.hush").stdout):
        assert "--hide-weights to protect" in told and "hide_weights" not in told


def test_options_are_listed_as_flags_and_a_server_that_is_not_there_is_asked_after(
    folder: Path, tmp_path: Path
) -> None:
    told = words(hush("compile", folder / "model.onnx", "-o", tmp_path / "m.hush", "--reveal", "argmax").stderr)
    listed = told.partition("The options are ")[2].rstrip(".").split(", ")
    assert len(listed) > 10 and all(name in FLAGS.values() for name in listed) and "--calibration" in listed, told
    np.save(tmp_path / "x.npy", np.zeros((3, 4)))
    told = words(hush("infer", "hush://127.0.0.1:1", tmp_path / "x.npy").stderr)
    assert "cannot connect to 127.0.0.1:1" in told and told.endswith("and may you reach its port?"), told
    done = hush("serve", folder / "model.hush", "--grace", "-1")
    assert done.returncode == 2 and "--grace" in done.stderr
