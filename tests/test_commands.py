"""Every command that a document shows exists as it is written; those of the README and of the pages for users run.

So does every piece of Python in a document.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import hushnet
import numpy as np
import pytest
import typer
from hushnet import demos, webpage, zoo
from hushnet.cli.main import app
from sklearn.datasets import load_breast_cancer
from sklearn.linear_model import LogisticRegression
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from tests.test_messages import Done, hush

ROOT = Path(__file__).parent.parent
# what a changelog tells was so once
DOCUMENTS = sorted({*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), ROOT / "fuzz/README.md"} - {ROOT / "CHANGELOG.md"})
# pages whose commands and Python run here, in their order and in a folder of their own
PAGES = ("getting-started", "trust-models", "bring-a-model", "speed")
# what a shell would do with the rest of a line is not the command's
_END = re.compile(r"\s[|;&>]\s?|\s#")
_GROUP = typer.main.get_command(app)


def spans(text: str) -> Iterator[tuple[str, bool]]:
    """Lines of code blocks, and code inside of sentences (which may leave out arguments)."""
    for place, part in enumerate(re.split(r"^```.*$", text, flags=re.MULTILINE)):
        if place % 2:
            yield from ((line, True) for line in part.splitlines())
        else:
            yield from ((span, False) for span in re.findall(r"`([^`\n]+)`", part))


def commands(text: str) -> Iterator[tuple[list[str], bool]]:
    """Command lines of ``hushnet``, ``make`` and ``python -m``, as words; whether they stand in a block."""
    for line, whole in spans(text):
        line = re.sub(r"^(\$ |taskset -c \S+ |([A-Z_]+=\S+ )+)", "", line.strip())
        line = re.sub(r"^(\S*/)?(hushnet|make|python)(?= )", r"\2", line)
        # "hushnet ckks ..." is what a hash begins with (docs/ckks.md, docs/non-interactive.md)
        if re.match(r"hushnet (?!ckks |evaluation keys )[a-z-]|make [a-z]|python -m", line):
            yield shlex.split(_END.split(line)[0]), whole


def problem(words: list[str], *, whole: bool) -> str:
    """What is wrong with a command line; "" where nothing is."""
    if words[0] == "make":
        rules = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
        asked = {word for word in words[1:] if not re.match(r"[A-Z_]+=", word)}
        return "" if asked <= set(rules) else f"no such rule: {words[1:]}"
    if words[0] == "python":
        found = importlib.util.find_spec(words[2])
        return "" if found is not None else f"no module {words[2]}"
    return _of_hushnet(words[1:], whole=whole)


def _of_hushnet(words: list[str], *, whole: bool) -> str:
    if words[0].startswith("--"):
        known = {option for p in _GROUP.params for option in (*p.opts, *p.secondary_opts)} | {"--help"}
        return "" if words[0] in known else f"no option {words[0]}"
    if words[0] == "COMMAND":
        return "" if words[1:] == ["--help"] else "what is COMMAND?"
    command = _GROUP.commands.get(words[0])
    if command is None:
        return f"no command {words[0]}"
    given = [word for word in words[1:] if word != "--help"]
    try:
        # a span in a sentence may be a part of a command: options are parsed, missing arguments are not asked for
        context = command.make_context(words[0], given, resilient_parsing=not whole)
    except Exception as error:
        said = getattr(error, "format_message", error.__str__)()
        return f"{type(error).__name__}: {said}"
    return _unknown(words[0], context.params)


def _unknown(verb: str, given: dict[str, object]) -> str:
    """A name of a benchmark, demo or network that there is not. Names in capitals stand for any."""
    name = given.get("name")
    if not isinstance(name, str) or name.isupper():
        return ""
    known: set[str] = {"bench": set(_benchmarks()), "demo": {"digits", *demos.DEMOS}, "zoo": {"get", *zoo.names()}}.get(
        verb, {name}
    )
    real = given.get("real_name")
    if isinstance(real, str) and not real.isupper() and real not in zoo.real_models():
        return f"no network {real}"
    wrong = set(name.split("|")) - known
    return f"{verb}: no {', '.join(sorted(wrong))}" if wrong else ""


def _benchmarks() -> list[str]:
    import hushnet_bench

    return list(hushnet_bench.registry())


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_every_command_of_a_document_exists(document: Path) -> None:
    wrong = [
        f"{shlex.join(words)}: {said}"
        for words, whole in commands(document.read_text())
        if (said := problem(words, whole=whole))
    ]
    assert not wrong, wrong


def test_the_documents_have_commands_and_wrong_ones_are_found() -> None:
    found = [words for document in DOCUMENTS for words, _ in commands(document.read_text())]
    verbs = {words[1] for words in found if words[0] == "hushnet"}
    assert verbs >= set(_GROUP.commands) - {"calibrate"}, set(_GROUP.commands) - verbs
    assert len(found) > 90 and {"make", "python", "hushnet"} == {words[0] for words in found}
    planted = """
```
hushnet compile model.onnx --calibration x.npy
hushnet run model.hush x.npy --colour red   # no such option
HUSHNET_SIMD=avx2 .venv/bin/hushnet infre hush://host:1 x.npy
make tee | cat
```
`hushnet bench no-such-bench`, `python -m tests.absent`, `hushnet zoo get no-such-net`,
`make test`, `hushnet run --check`, `hushnet demo ocr|photo`.
"""
    said = [problem(words, whole=whole) for words, whole in commands(planted)]
    assert [bool(s) for s in said] == [True] * 7 + [False] * 3, said
    assert "--output" in said[0] and "--colour" in said[1] and "infre" in said[2]


def test_the_readme_is_short_and_begins_with_a_picture_and_three_commands() -> None:
    text = (ROOT / "README.md").read_text()
    assert len(text.splitlines()) <= 90
    first, picture, fence, *rest = [line for line in text.splitlines() if line]
    assert first == "# Hushnet" and fence == "```" and rest.index("```") == 3
    named = re.fullmatch(r"!\[.+\]\((.+\.svg)\)", picture)
    assert named and (ROOT / named[1]).is_file()


def test_every_parameter_of_every_command_is_described_and_summaries_are_sentences() -> None:
    for name, command in _GROUP.commands.items():
        for p in command.params:
            assert getattr(p, "help", None), f"{name}: {p.name} has no help"
        summary = (command.help or "").split("\n\n")[0]
        assert summary.endswith(".") and len(summary) > 30, (name, summary)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a reader of the README has: a model, samples with labels, inputs, a certificate."""
    path = tmp_path_factory.mktemp("readme")
    x, y = load_breast_cancer(return_X_y=True)
    fitted = make_pipeline(StandardScaler(), MLPClassifier((8,), max_iter=60, random_state=0)).fit(x[:300], y[:300])
    (path / "model.onnx").write_bytes(hushnet.frontend.sklearn_model(fitted).SerializeToString())
    for name, array in {"x": x[:200], "y": y[:200], "images": x[300:340], "image": x[300:301]}.items():
        np.save(path / f"{name}.npy", array)
    return path


def runnable(document: str) -> list[list[str]]:
    """Commands of blocks that need no network, no package of others, and no minutes."""
    text = (ROOT / document).read_text()
    left_out = {"bench", "demo", "infer", "serve"}
    found = [words for words, whole in commands(text) if whole and words[0] == "hushnet"]
    return [
        words[1:] for words in found if words[1] not in left_out and words[1:3] != ["zoo", "get"] and words[1][0] != "-"
    ]


@pytest.mark.parametrize("page", PAGES)
def test_commands_and_python_of_a_page_run_in_their_order(
    page: str, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    if page != "getting-started":  # which makes its own files
        shutil.copytree(folder, tmp_path, dirs_exist_ok=True, ignore=shutil.ignore_patterns("*.hush"))
    ran = []
    for language, text in blocks((ROOT / f"docs/{page}.md").read_text()):
        if language == "python":
            run_python(text)
            ran.append("python")
        for words, _ in commands(f"```\n{text}\n```") if not language else ():
            if words[0] == "hushnet" and words[1] != "serve":
                done = asked_of_a_server(words[2:]) if words[1] == "infer" else hush(*words[1:])
                assert done.returncode == 0, (words, done.stderr)
                ran.append(words[1])
    wanted = {
        "getting-started": ["python", "check", "compare", "compile", "explain", "run", "infer", "python"],
        "trust-models": ["compile", "run", "compile", "explain", "run", "compile", "run"],
        "bring-a-model": ["check", "compile", "python", "python", "python"],
        "speed": ["compile", "run", "explain"],
    }
    assert ran == wanted[page]


def blocks(text: str) -> list[tuple[str, str]]:
    """Blocks of code with their language, which is "" for commands."""
    return re.findall(r"^```([a-z]*)\n(.*?)^```$", text, flags=re.MULTILINE | re.DOTALL)


def run_python(text: str, **names: object) -> dict[str, object]:
    """Runs a piece of Python; what needs PyTorch is compiled only where there is none."""
    code, found = compile(text, "<a document>", "exec"), {"__name__": "__main__", **names}
    if "import torch" not in text or importlib.util.find_spec("torch") is not None:
        exec(code, found)
    return found


def asked_of_a_server(words: list[str]) -> Done:
    """``hushnet infer`` of an address at which the plan of the page is served, by the command line as well."""
    program = "from hushnet.cli import main; main()"
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    command = [sys.executable, "-c", program, "serve", "private.hush", "--listen", address]
    served = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        for _ in range(600):
            done = hush("infer", f"hush://{address}", *words[1:])
            if done.returncode == 0 or "cannot connect" not in done.stderr or served.poll() is not None:
                break
            time.sleep(0.1)
        return done
    finally:
        served.terminate()
        served.wait(timeout=60)


def test_python_of_the_readme_and_of_the_models_page_runs(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True, ignore=shutil.ignore_patterns("*.hush"))
    rows, y = np.load("x.npy"), np.load("y.npy")
    pipeline = make_pipeline(StandardScaler(), LogisticRegression(max_iter=500)).fit(rows, y)
    known = {"samples": rows, "x": np.load("images.npy"), "pipeline": pipeline, "rows": rows[:20]}
    server = hushnet.serve(hushnet.compile("model.onnx", calibration=rows, batch=64))
    try:
        (text,) = (text for language, text in blocks((ROOT / "README.md").read_text()) if language == "python")
        assert "hushs://host:8765" in text
        found = run_python(text.replace("hushs://host:8765", f"hush://127.0.0.1:{server.port}"), **known)
    finally:
        server.stop()
    assert len(found["y"]) == len(known["x"])
    imports = {"make_pipeline": make_pipeline, "StandardScaler": StandardScaler, "hushnet": hushnet}
    for language, text in blocks((ROOT / "docs/models.md").read_text()):
        if language == "python":
            found = run_python(text, LogisticRegression=LogisticRegression, x=rows, y=y, rows=rows[:20], **imports)
    assert (found["result"].label == found["model"].predict(rows[:20])).all()


# Who runs the blocks of a document in a language: a test that names it, or nobody, because they are no program.
RUN_BY = {
    **{
        (f"docs/{page}.md", "python"): "tests/test_commands.py"
        for page in ("getting-started", "bring-a-model", "models")
    },
    ("README.md", "python"): "tests/test_commands.py",
    ("docs/serving.md", "json"): "tests/test_commands.py",
    # where Ray is installed
    ("docs/cluster.md", "python"): "tests/test_cluster.py",
    # where Node is installed
    ("docs/browser.md", "js"): "tests/test_web.py",
    # parts of a file and a row of a table, which leave out what a method is
    ("docs/add-a-linear-method.md", "python"): "",
    ("docs/add-a-linear-method.md", "rust"): "",
    # forms of a format, with remarks
    **{(f"docs/{page}.md", "jsonc"): "" for page in ("non-interactive", "packed", "plan-format")},
}


def test_every_piece_of_a_program_in_a_document_is_run() -> None:
    having = {
        (path.relative_to(ROOT).as_posix(), language)
        for path in DOCUMENTS
        for language, _ in blocks(path.read_text())
        if language
    }
    assert having == set(RUN_BY)
    for (document, _), test in RUN_BY.items():
        name = Path(document).name
        if test == "tests/test_commands.py":
            assert name == "README.md" or name.removesuffix(".md") in (*PAGES, "models", "serving")
        elif test:
            assert document in (ROOT / test).read_text(), (document, test)


def test_the_description_of_a_page_in_the_document_is_taken(tmp_path: Path) -> None:
    ((_, text),) = (block for block in blocks((ROOT / "docs/serving.md").read_text()) if block[0] == "json")
    path = tmp_path / "digits.json"
    path.write_text(text)
    assert webpage.read(path)["input"]["kind"] == "drawing"


def test_several_models_tokens_and_kept_keys_as_the_document_has_them(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other commands of a service, which the page shows as pairs of a server and its client."""
    monkeypatch.chdir(tmp_path)
    text = (ROOT / "docs/command-line.md").read_text()
    pairs = [
        (found[0], found[1])
        for language, block in blocks(text)
        if not language and len(found := [w for w, _ in commands(f"```\n{block}\n```") if w[0] == "hushnet"]) == 2
        if (found[0][1], found[1][1]) == ("serve", "infer")
    ]
    assert len(pairs) == 3, "with tokens, with a certificate (which has a test of its own), with kept keys"
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True, ignore=shutil.ignore_patterns("*.hush"))
    samples = np.load("x.npy")
    (tmp_path / "models").mkdir()
    hushnet.compile("model.onnx", calibration=samples, batch=64).save("models/NAME.hush")
    square = {"trust": "non-interactive", "activation": "poly:degree=2", "batch": 1}  # needs keys
    hushnet.compile("model.onnx", calibration=samples, **square).save("net.hush")
    command = shlex.split(re.findall(r"^openssl .*$", text, re.MULTILINE)[0])
    subprocess.run(command, check=True, capture_output=True, timeout=60)
    (tmp_path / "token").write_text("a-token-of-some-letters\n")
    (tmp_path / "tokens").write_text("ann a-token-of-some-letters\n")
    for name in ("token", "tokens"):
        (tmp_path / name).chmod(0o600)
    for serve, infer in (pairs[0], pairs[2]):
        with serving([word for word in serve[1:] if word != "--admin" and not word.isdigit()]) as port:
            words = [re.sub(r"host:8765|localhost:8765", f"localhost:{port}", word) for word in infer[1:]]
            trust = ["--ca", "cert.pem"] if "--tls" in serve else []
            for _ in range(2):
                done = hush(*words, *trust)
                assert done.returncode == 0 and "40 images in" in done.stdout, (words, done.stderr)
    kept = sorted(path.name for path in tmp_path.glob("*-keys/*"))
    assert any(name.endswith(".keys") for name in kept) and any(name.endswith(".client-key") for name in kept), kept


@contextmanager
def serving(words: list[str]) -> Iterator[int]:
    """``hushnet serve`` on a port of its own; which."""
    listen = ["--listen", "127.0.0.1:0", "--json"]
    if "--listen" in words:
        at = words.index("--listen")
        del words[at : at + 2]
    command = [sys.executable, "-m", "hushnet", *words, *listen]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    assert server.stdout is not None
    try:
        yield int(json.loads(server.stdout.readline())["port"])
    finally:
        server.terminate()
        server.wait(timeout=60)
        server.stdout.close()


def test_the_commands_of_the_readme_run_in_their_order(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    ran = []
    for words in runnable("README.md"):
        done = hush(*words)
        ran.append(words[0])
        assert done.returncode == 0, (words, done.stderr)
    assert ran.count("compile") == 3 and {"check", "compare", "explain", "run", "zoo"} <= set(ran)


def test_a_server_with_a_certificate_as_the_document_makes_it(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed")
    monkeypatch.chdir(folder)
    text = (ROOT / "docs" / "command-line.md").read_text()
    (make,) = re.findall(r"^openssl .*$", text, re.MULTILINE)
    subprocess.run(shlex.split(make), check=True, capture_output=True, timeout=60)
    section = text.split("## A server with TLS")[1].split("\n## ")[0]
    told = {words[1]: words[2:] for words, whole in commands(section) if whole}
    assert told["serve"][-3:] == ["--tls", "cert.pem", "key.pem"] and told["infer"][-2:] == ["--ca", "cert.pem"]
    hushnet.compile("model.onnx", calibration=np.load("x.npy"), batch=64).save("model.hush")
    server = hushnet.serve("model.hush", tls_cert="cert.pem", tls_key="key.pem")
    plain = hushnet.serve("model.hush")
    try:
        url = re.sub(r":\d+$", f":{server.port}", told["infer"][0])
        done = hush("infer", url, *told["infer"][1:])
        assert done.returncode == 0 and "40 images in" in done.stdout, done.stderr
        refused(hush("infer", url, "images.npy"), "--ca FILE", "--insecure-tls")
        refused(hush("infer", url.replace("hushs", "hush"), "images.npy"), "begins with hushs://")
        refused(hush("infer", f"hushs://localhost:{plain.port}", "images.npy"), "speaks no TLS", "begins with hush://")
    finally:
        server.stop()
        plain.stop()


def refused(done: Done, *said: str) -> None:
    text = " ".join(done.stderr.split())
    assert done.returncode == 1 and all(s in text for s in said), text


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_shells_complete_commands_options_and_names(shell: str) -> None:
    def completed(*words: str) -> str:
        line = " ".join(("hushnet", *words))
        asked = {
            "_HUSHNET_COMPLETE": f"complete_{shell}",
            "COMP_WORDS": line,
            "COMP_CWORD": str(len(words)),
            "_TYPER_COMPLETE_ARGS": line,
            "_TYPER_COMPLETE_FISH_ACTION": "get-args",
        }
        program = "from hushnet.cli import main; main()"
        done = subprocess.run(
            [sys.executable, "-c", program],
            env=os.environ | asked,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        return done.stdout

    told = completed("com")
    assert "compile" in told and "compare" in told and "serve" not in told
    if shell == "bash":
        assert "two-party" in completed("check", "m.onnx", "--trust", "tw")
        assert "--calibration" in completed("compile", "--cal")
        assert "file-type" in completed("demo", "fi") and "minilm" in completed("zoo", "get", "min")


def test_the_scripts_of_shells_can_be_shown() -> None:
    environment = os.environ | {"_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"}
    command = [sys.executable, "-m", "hushnet", "--show-completion", "bash"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, env=environment)
    assert "_HUSHNET_COMPLETE=complete_bash" in done.stdout and "complete -o" in done.stdout, done.stdout + done.stderr
