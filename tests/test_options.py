"""Options of ``compile``: one place for names, types, ranges, defaults and texts, and all that follows from it."""

from __future__ import annotations

import inspect
import re
import sys
from dataclasses import fields, replace
from pathlib import Path

import hushnet
import numpy as np
import pytest
import typer
from hushnet import options, planner
from hushnet.cli.common import in_flags
from hushnet.cli.main import app
from hushnet.graph import Graph
from hushnet.options import KINDS, ClientAided, NonInteractive, TwoParty, made, table
from hushnet.planner import quantise
from hushnet.planner.non_interactive import primes
from hushnet.planner.two_party import nonlinear, search

ROOT = Path(__file__).parent.parent
ALL = [(trust, field) for trust, kind in KINDS.items() for field in table(kind).values()]


def test_overloads_say_the_options_of_every_trust_model_and_lint_checks_programs_against_them() -> None:
    """``tests/typed_options.py`` has right and wrong calls; ``make lint`` runs mypy on it."""
    settings = (ROOT / "pyproject.toml").read_text()
    assert 'modules = ["tests.typed_options"]' in settings and "warn_unused_ignores = true" in settings
    program = (ROOT / "tests/typed_options.py").read_text()
    assert program.count("  # type: ignore[call-") == 9 and "-m tests.gates" in (ROOT / "Makefile").read_text()
    assert re.search(r"\n\t\$\(BIN\)/mypy\n", (ROOT / "Makefile").read_text())
    assert 'packages = ["hushnet", "hushnet_bench"]' in (ROOT / "pyproject.toml").read_text()


@pytest.mark.parametrize(("trust", "field"), ALL, ids=[f"{t}-{f.name}" for t, f in ALL])
def test_every_option_says_what_it_does_its_range_and_its_default(trust: str, field: options.Field) -> None:
    option = field.option
    assert len(option.about.split()) > 4 and option.about.endswith("."), option.about
    assert field.default_said, "no word on what holds without it"
    if int in field.numbers:
        assert option.unit, "a whole number without a unit"
    if field.numbers:
        assert option.least is not None or option.above is not None
    made(trust, {field.name: field.default})


@pytest.mark.parametrize(("trust", "field"), ALL, ids=[f"{t}-{f.name}" for t, f in ALL])
def test_values_outside_of_an_options_range_are_refused_with_what_to_give(trust: str, field: options.Field) -> None:
    option, wrong = field.option, []
    values = [v for v in (*field.values, *option.choices) if v is not None]
    if field.numbers:
        wrong = [True, "some", float("nan")]
        wrong += [option.least - 1] if option.least is not None else []
        wrong += [option.above] if option.above is not None else []
        wrong += [option.most + 1] if option.most is not None else []
        wrong += [2.5] if float not in field.numbers else []
    elif values:
        wrong = ["none of them", 7, True]
    elif field.kinds in ((bool,), (str,)):
        wrong = [1]
    for value in wrong:
        with pytest.raises(hushnet.PlanError, match=rf"^{field.name} is .*; (give|choose) ") as caught:
            made(trust, {field.name: value})
        assert str(caught.value).endswith(".")
    good = [*values, *(e for e in (option.least, option.most) if field.numbers and e is not None)]
    for value in good:
        assert getattr(made(trust, {field.name: value}), field.name) == value


def test_limits_of_options_are_those_of_the_planner() -> None:
    for kind, degrees in ((ClientAided, quantise.RING_DEGREES), (TwoParty, search.RING_DEGREES)):
        assert table(kind)["ring_degree"].values == degrees
    assert table(NonInteractive)["ring_degree"].values == primes.RING_DEGREES
    assert set(table(TwoParty)["nonlinear"].values) == set(nonlinear.PROTOCOLS)
    assert table(ClientAided)["most_bits"].default == quantise.AUTO_BITS[0]


def test_key_sizes_that_are_stated_are_those_of_the_compiler() -> None:
    source = (ROOT / "crates/layers/src/packed/options.rs").read_text()
    limits = dict(re.findall(r"^pub const (\w*KEY_BYTES): u64 = ([\d_]+);$", source, re.M))
    plain, bootstraps = (int(limits[name]) for name in ("KEY_BYTES", "BOOTSTRAP_KEY_BYTES"))
    said = table(NonInteractive)["key_bytes"].default_said
    assert said == f"{plain / 1e6:g} MB, with bootstraps {bootstraps / 1e9:g} GB"


def test_unknown_names_are_met_with_the_nearest_one_and_whose_it_is() -> None:
    for trust, name, said in (
        ("client-aided", "reveal", r"no option 'reveal' with trust='client-aided'\. Two-party plans take it\."),
        ("client-aided", "reveel", r"no option 'reveel': did you mean 'reveal'\? Two-party plans take it\."),
        ("two-party", "engin", r"did you mean 'engine'\? Client-aided and non-interactive plans take it\."),
        ("two-party", "marign", r"did you mean 'margin'\? Plans of every trust model take it\."),
        ("two-party", "precision_bits", r"did you mean 'precision'\?"),
        ("non-interactive", "colour", r"no option 'colour'\. The options are activation, batch, "),
    ):
        with pytest.raises(hushnet.PlanError, match=said):
            made(trust, {name: 1})
        # the model is not read
        with pytest.raises(hushnet.PlanError, match=said):
            hushnet.compile("absent.onnx", **{"trust": trust, name: 1})


def test_options_of_reading_are_refused_where_a_graph_is_planned() -> None:
    with pytest.raises(hushnet.PlanError, match="until: a planner gets a graph"):
        planner.compile(Graph("g", ["x"], ["x"], {"x": (4,)}, []), until="x")


def test_help_and_completion_list_every_option() -> None:
    for function in (hushnet.compile, hushnet.from_sklearn, hushnet.from_torch):
        listed = inspect.signature(function).parameters
        for _, field in ALL:
            assert field.name in listed
    for _, field in ALL:
        assert re.search(rf"^ +{field.name}: ", hushnet.compile.__doc__ or "", re.MULTILINE), field.name


def test_the_command_line_has_the_flags_that_options_name() -> None:
    parameters = {p.name: p for p in typer.main.get_command(app).commands["compile"].params}
    flags = {f.name: f.option.flag for _, f in ALL if f.option.flag}
    fixed = {"model", "output", "trust", "strict", "feature_ranges", "as_json"}
    assert {n: p.opts[0] for n, p in parameters.items() if n not in fixed} == flags
    assert {"engine", "reveal", "hide_weights", "max_memory"} <= set(flags)
    for name in flags:
        assert table(KINDS[options.takers(name)[0]])[name].option.about.split(".")[0] in parameters[name].help, name


def test_other_commands_say_the_same_of_an_option() -> None:
    commands = typer.main.get_command(app).commands
    known = {p.name: p.help for p in commands["compile"].params}
    for verb, names in (("check", ("shape", "until", "batch", "calibration")), ("compare", ("labels", "outputs"))):
        found = {p.name: p for p in commands[verb].params}
        for name in names:
            assert found[name].help == known["shapes" if name == "shape" else name], (verb, name)
    needed = {p.name: p for p in commands["compare"].params}["calibration"]
    assert needed.required and known["calibration"].startswith(needed.help)


def test_a_server_has_the_run_times_defaults() -> None:
    known = inspect.signature(hushnet._native.serve).parameters
    native = {"keys_days": "keys_age", "store_days": "store_age"}
    native |= {f"prepared{end}": f"units{end}" for end in ("", "_quota", "_client_quota")}
    native["prepared_days"] = "units_age"
    for name, parameter in inspect.signature(hushnet.serve).parameters.items():
        if name not in ("model", "allow_insecure"):
            assert parameter.default == known[native.get(name, name)].default, name


def test_messages_name_flags() -> None:
    for trust, given, said in (
        ("client-aided", {"reveal": "argmax"}, "no option --reveal with --trust client-aided"),
        ("client-aided", {"margin": 0.5}, "--margin is 0.5"),
        ("client-aided", {"weight_bit": 8}, "did you mean --weight-bits?"),
        ("blind", {}, "--trust is 'blind'"),
    ):
        with pytest.raises(hushnet.PlanError) as caught:
            made(trust, given)
        assert said in in_flags(str(caught.value)), in_flags(str(caught.value))


def test_the_page_of_options_is_what_the_options_say() -> None:
    page = (ROOT / "docs/options.md").read_text()
    assert page.endswith(options.document()), (
        "docs/options.md: write its tables again with `python -m hushnet.options docs/options.md`"
    )


def test_options_reach_the_planner(tmp_path: Path) -> None:
    from sklearn.linear_model import LogisticRegression

    x = np.random.default_rng(0).normal(size=(60, 4))
    model = LogisticRegression().fit(x, (x[:, 0] > 0).astype(int))
    for engine in ("batch", "packed"):
        plan = hushnet.from_sklearn(model, calibration=x, batch=1, engine=engine, name=engine).plan
        assert (plan.document["engine"], plan.name) == (engine, engine)
    assert not [f.name for f in fields(ClientAided) if f.name not in (*table(ClientAided), "trust")]
    assert replace(made("two-party", {"batch": None})).images == 1 and made("client-aided", {}).images == 2048


def test_outputs_that_tell_classes_reach_the_planner(monkeypatch: pytest.MonkeyPatch) -> None:
    from sklearn.linear_model import LinearRegression, LogisticRegression

    seen: list[tuple[str, ...]] = []

    def stop(graph: Graph, asked: options.Options, classes: tuple[str, ...]) -> None:
        seen.append(tuple(classes))
        raise hushnet.PlanError("stop")

    monkeypatch.setattr(planner, "plan", stop)
    x = np.random.default_rng(0).normal(size=(60, 4))
    for estimator in (LogisticRegression(), LinearRegression()):
        with pytest.raises(hushnet.PlanError, match="stop"):
            hushnet.from_sklearn(estimator.fit(x, (x[:, 0] > 0).astype(int)), trust="two-party")
    assert seen == [("probabilities",), ()]


def test_bits_that_are_tried_depend_on_what_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[int | None, int | str, str | None, int]] = []
    rounded: list[str] = []

    def stop(graph: Graph, given: TwoParty, weight_bits: int, activation_bits: int | str, *_: object) -> None:
        rounded.append(given.rounding)
        asked.append((weight_bits, activation_bits, given.method, given.most_bits))
        raise hushnet.PlanError("stop")

    monkeypatch.setattr(sys.modules["hushnet.planner.compile"], "_fixed_point", stop)
    graph = Graph("g", ["x"], ["x"], {"x": (4,)}, [])
    x = np.zeros((3, 4))

    def tried(**given: object) -> list[tuple[int | None, int | str, str | None, int]]:
        asked.clear()
        with pytest.raises(hushnet.PlanError, match="stop"):
            planner.compile(graph, trust="two-party", calibration=x, **given)
        return list(asked)

    usual = [(bits, "auto", None, 12) for bits in (8, 10, 12, 14)] + [(12, "auto", None, 14), (13, "auto", None, 16)]
    # with sums that calibration bounds at last
    sums = [(14, "auto", None, 14), (14, "auto", None, 16)]

    def wide(method: str) -> list[tuple[int | None, int | str, str | None, int]]:
        """Wide rings in front of these sums, the widest behind them."""
        widest = [(16, "auto", method, most) for most in (16, 20)]
        return [*usual, (14, 14, method, 12), (16, 16, method, 12), *sums, *widest]

    assert tried() == wide("rotation-free")
    assert tried(batch=8) == wide("batch")
    assert tried(method="cheetah") == [(*row[:2], "cheetah", row[3]) for row in [*usual, *sums]]
    assert tried(activation_bits=10) == [(bits, 10, None, 12) for bits in (8, 10, 12, 14)]
    assert tried(weight_bits=9) == [(9, "auto", None, 12)]
    assert set(rounded) == {"nearest"}
    # with rows that say how inputs go together, errors of weights are fed back after the first attempt
    x = np.zeros((16, 4))
    rounded.clear()
    assert tried() == [usual[0], *wide("rotation-free")]
    assert rounded == ["nearest", *["feedback"] * 6, "nearest", "nearest", *["feedback"] * 4]
    rounded.clear()
    assert tried(activation_bits=10) == [(bits, 10, None, 12) for bits in (8, 8, 10, 12, 14)]
    assert rounded == ["nearest", *["feedback"] * 4]
