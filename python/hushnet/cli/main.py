"""``hushnet``: compile, check, compare, explain, run, serve, infer, bench, demo, measure-machine, zoo."""

from __future__ import annotations

import importlib
import json
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal, cast

import numpy as np
import typer
from rich.text import Text

import hushnet
from hushnet import _native, report, zoo
from hushnet.cli.common import (
    check_output,
    declared_ranges,
    emit,
    err,
    in_flags,
    out,
    progress_bar,
    read_arrays,
    read_shapes,
    write_outputs,
)

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Run a trained neural network on inputs that the server never sees.",
    epilog=(
        "Exit status: 0: done; 1: an error, or no trust model takes the network (check, "
        "compare); 2: the command line is "
        "wrong; 3: a plan that falls short (compile --strict); 130: interrupted."
    ),
)
ARRAYS = (".npy", ".npz")

Json = typer.Option(False, "--json", help="Print one JSON document instead of text.")
Threads = typer.Option(None, "--threads", min=1, help="Worker threads (default: all cores).")
Insecure = typer.Option(False, "--insecure-parameters", help="Accept plans below 128 bits; everything printed says so.")
Trace = typer.Option(None, "--trace", help="Write the trace (per stage: seconds, bytes, rounds, noise margin) as JSON.")


Shape = typer.Option(
    [],
    "--shape",
    help="Full shape of an input, the batch first: x=1,3,48,192. Once for each input that leaves axes open.",
)
Labels = typer.Option(None, "--labels", help="Right answers of the inputs (.npy, whole numbers): accuracy is printed.")
StrictRows = typer.Option(False, "--strict-rows", help="NaN for every row of which a value left its planned range.")
Until = typer.Option(
    None,
    "--until",
    help="End the network at this tensor or node (several: comma-separated); the rest can run on the client.",
)
Outputs = typer.Option(
    None,
    "--outputs",
    help="The model's outputs that stay, comma-separated (default: all, without labels that follow from scores).",
)
# Panels of --help: options that one trust model alone has.
TWO_PARTY = "Two-party plans: both sides private"
NON_INTERACTIVE = "Non-interactive plans: the server alone computes"
NETWORKS = "lan, wan, or bandwidth and round trip like 200mbit,5ms"


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"hushnet {version('hushnet')}")
        raise typer.Exit


@app.callback()
def common(
    _: bool = typer.Option(False, "--version", callback=_version, is_eager=True, help="Say which version this is."),
) -> None:
    """Run a trained neural network on inputs that the server never sees."""


@app.command("compile")
def compile_(
    model: Path = typer.Argument(..., help="ONNX file."),
    output: Path = typer.Option(..., "-o", "--output", help="The plan to write (.hush). It holds the weights."),
    batch: int | None = typer.Option(
        None,
        min=1,
        help="Images that will usually be sent at once (default: 2048; two-party: 1; non-interactive: 4096).",
    ),
    trust: str = typer.Option(
        "client-aided",
        help="Who computes the non-linear layers: client-aided, two-party or non-interactive (nobody: polynomials).",
    ),
    reveal: str | None = typer.Option(
        None, help="What the client learns, output (default) or argmax.", rich_help_panel=TWO_PARTY
    ),
    network: str | None = typer.Option(
        None, help=f"What time is predicted for, loopback (default), {NETWORKS}.", rich_help_panel=TWO_PARTY
    ),
    method: str | None = typer.Option(
        None,
        help=f"One for all layers: {', '.join(name for name, _ in _native.linear_methods())} "
        "(default: the cheapest of each).",
        rich_help_panel=TWO_PARTY,
    ),
    nonlinear: str | None = typer.Option(
        None,
        help="One for all of ReLU, clip, max-pool and argmax: ot or garbled (default: the cheaper of each).",
        rich_help_panel=TWO_PARTY,
    ),
    queries: int | None = typer.Option(
        None, min=1, help="Images that a stored set-up serves (default 1).", rich_help_panel=TWO_PARTY
    ),
    activation: str | None = typer.Option(
        None,
        help="What takes the place of other activations: square, swish-rg5-deg2, swish-rg7-deg4 or "
        "poly:degree=d,range=r.",
        rich_help_panel=NON_INTERACTIVE,
    ),
    hide_weights: bool = typer.Option(
        False, "--hide-weights", help="Re-randomise and flood the results.", rich_help_panel=NON_INTERACTIVE
    ),
    calibration: Path | None = typer.Option(
        None, help="Sample inputs (.npy/.npz): ranges are taken from them, and axes that the model leaves open."
    ),
    shape: list[str] = Shape,
    until: str | None = Until,
    outputs: str | None = Outputs,
    input_range: tuple[float, float] | None = typer.Option(
        None,
        help="Least and largest input value (without calibration: 0 1). Values outside are clamped, and their "
        "rows are named.",
    ),
    feature_ranges: Path | None = typer.Option(
        None,
        help="The same for every feature (.npy): an array [2, ...] of the input's shape with least and largest values, "
        "of table columns or of an image's channels.",
    ),
    precision: float | None = typer.Option(
        None,
        help="Bits: 999 rows of 1000 have errors below 2^-this of the output's range (default: 7). The cheapest "
        "plan that reaches it is taken.",
    ),
    labels: Path | None = typer.Option(
        None, help="Right answers of the calibration data (.npy, whole numbers): accuracy of the model and of the plan."
    ),
    strict: bool = typer.Option(
        False, "--strict", help="Exit with status 3 where the precision is not reached or accuracy falls."
    ),
    margin: float | None = typer.Option(
        None, min=1.0, help="Planned range over the largest value of the calibration data (default: 1.25)."
    ),
    weight_bits: int | None = typer.Option(
        None, min=2, max=16, help="Default: the fewest that reach the precision; 8 without calibration."
    ),
    activation_bits: str = typer.Option("auto", help="'auto' or a number of bits."),
    max_memory: float | None = typer.Option(None, help="GiB that client and server together may use."),
    as_json: bool = Json,
) -> None:
    """Choose packing, parameters and protocol for a network, and write the plan."""
    options: dict[str, Any] = {"input_range": declared_ranges(input_range, feature_ranges)}
    options |= {} if weight_bits is None else {"weight_bits": weight_bits}
    if trust != "non-interactive" or activation_bits != "auto":
        options["activation_bits"] = activation_bits if activation_bits == "auto" else int(activation_bits)
    own = {"activation": activation, "hide_weights": hide_weights or None, "precision": precision}
    options |= {k: v for k, v in own.items() if v is not None}
    options |= {
        k: v
        for k, v in {
            "reveal": reveal,
            "network": network,
            "method": method,
            "nonlinear": nonlinear,
            "queries": queries,
            "margin": margin,
        }.items()
        if v is not None
    }
    if max_memory is not None:
        options["max_memory"] = int(max_memory * 2**30)
    check_output(output)
    if labels is not None:
        options["labels"] = read_arrays(labels)
    samples = read_arrays(calibration) if calibration else None
    compiled = hushnet.compile(
        _onnx(model),
        batch=batch,
        trust=trust,
        calibration=samples,
        shapes=read_shapes(shape),
        until=_until(until),
        outputs=_until(outputs),
        **options,
    )
    compiled.save(output)
    explained = compiled.explain()
    if as_json:
        emit({"plan": str(output), "shortfalls": compiled.shortfalls, "explain": explained})
    else:
        out.print(report.render(explained))
        out.print(f"Wrote {output} (with weights: it stays on the server).")
    for sentence in compiled.shortfalls:
        err.print(f"Warning: {in_flags(sentence)}", style="bold red", markup=False, highlight=False)
    if strict and compiled.shortfalls:
        raise typer.Exit(3)


@app.command()
def check(
    model: Path = typer.Argument(..., help="ONNX file."),
    trust: str = typer.Option("all", help="client-aided, two-party, non-interactive or all."),
    shape: list[str] = Shape,
    until: str | None = Until,
    batch: int | None = typer.Option(None, min=1, help="Images that cost is predicted for (default: as compile)."),
    calibration: Path | None = typer.Option(
        None, help="Sample inputs (.npy/.npz): ranges, and axes that the model leaves open."
    ),
    as_json: bool = Json,
) -> None:
    """For each trust model.

    The predicted cost, or every node that stands in the way with what to do, and where to cut the network.
    """
    from hushnet.cli.check import run_check

    found = run_check(
        _onnx(model),
        trust,
        batch=batch,
        calibration=read_arrays(calibration) if calibration else None,
        shapes=read_shapes(shape),
        until=_until(until),
    )
    emit(found.as_json(str(model))) if as_json else found.print()
    if not found.compiles:
        raise typer.Exit(1)


@app.command()
def compare(
    model: Path = typer.Argument(..., help="ONNX file."),
    calibration: Path = typer.Option(..., help="Sample inputs (.npy/.npz): ranges, errors and agreement."),
    labels: Path | None = typer.Option(None, help="Right answers of the calibration data (.npy): accuracy."),
    batch: int = typer.Option(1, min=1, help="Images sent at once, the same for all ways."),
    methods: bool = typer.Option(False, "--methods", help="Single methods and engines too."),
    shape: list[str] = Shape,
    until: str | None = Until,
    outputs: str | None = Outputs,
    as_json: bool = Json,
) -> None:
    """All trust models side by side: who learns what, accuracy, error, cost, and a recommendation."""
    from hushnet.cli.compare import show

    found = hushnet.compare(
        _onnx(model),
        calibration=read_arrays(calibration),
        labels=None if labels is None else read_arrays(labels),
        batch=batch,
        methods=methods,
        shapes=read_shapes(shape),
        until=_until(until),
        outputs=_until(outputs),
    )
    emit(found.as_json()) if as_json else show(found)
    if all(row.refused for row in found.rows):
        raise typer.Exit(1)


@app.command()
def explain(
    plan: Path,
    trace: Path | None = typer.Option(None, help="A trace written by run or infer: measured beside predicted."),
    network: str | None = typer.Option(
        None, help=f"What time is predicted for, loopback, {NETWORKS}.", rich_help_panel=TWO_PARTY
    ),
    verbose: bool = typer.Option(False, "--verbose", help="Rigorous bounds of errors too."),
    html: Path | None = typer.Option(None, "--html", help="Write one self-contained page with pictures instead."),
    as_json: bool = Json,
    insecure: bool = Insecure,
) -> None:
    """Per layer: method, parameters, time, bytes, precision, and who learns what."""
    check_output(html)
    measured = _trace(trace) if trace else None
    explained = hushnet.Model.load(plan, allow_insecure=insecure).explain(measured, network=network)
    if html is not None:
        html.write_text(report.page(explained), encoding="utf-8")
    if as_json:
        emit(explained)
    elif html is None:
        out.print(report.render(explained, verbose=verbose))
    else:
        out.print(f"Wrote {html}.")


def _trace(path: Path) -> dict[str, Any]:
    """A trace as ``run`` and ``infer`` write it."""
    try:
        found = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise hushnet.InputError(f"{path} is not a trace: {error}. Give a file that run --trace has written.") from None
    if not isinstance(found, dict):
        raise hushnet.InputError(f"{path} is not a trace. Give a file that run --trace has written.")
    return found


def _summary(result: hushnet.Result) -> dict[str, Any]:
    trace = result.trace
    images = trace["images"]
    checked = {"out_of_range": trace["out_of_range"]} if "out_of_range" in trace else {}
    return (
        {
            "images": images,
            "seconds": trace["seconds"],
            "images_per_second": images / trace["seconds"] if trace["seconds"] else None,
            "bytes_up": trace["bytes_up"],
            "bytes_down": trace["bytes_down"],
            "outputs": {name: list(value.shape) for name, value in result.outputs.items()},
            "rows_out_of_range": list(result.out_of_range),
        }
        | checked
        | ({"labels": {k: v.tolist() for k, v in result.labels.items()}} if result.labels else {})
    )


def _finish(
    result: hushnet.Result, output: Path | None, trace: Path | None, as_json: bool, *, strict: bool, labels: Path | None
) -> None:
    outputs = result.strict() if strict else result.outputs
    accuracy = None if labels is None else result.accuracy(read_arrays(labels))
    if output:
        write_outputs(output, outputs)
    if trace:
        trace.write_text(json.dumps(result.trace, indent=1))
    summary = _summary(result) | ({} if accuracy is None else {"accuracy": accuracy})
    if as_json:
        if not output:
            # JSON has no NaN
            summary["values"] = {
                name: np.where(np.isnan(value), np.array(None), value).tolist() for name, value in outputs.items()
            }
        emit(summary)
        return
    up, down = (summary[k] / summary["images"] / 1e6 for k in ("bytes_up", "bytes_down"))
    out.print(
        f"{summary['images']} images in {summary['seconds']:.3f} s ({summary['images_per_second']:.0f} images/s), "
        f"{up:.4f} MB up and {down:.4f} MB down an image."
    )
    for reach in summary.get("out_of_range", []):
        out.print(
            f"The operand of the polynomial at '{reach['tensor']}' reaches {reach['largest']:.4g}, beyond its range of "
            f"{reach['range']:.4g}, "
            f"in {reach['outside']} values: the answers of these images may be wrong."
        )
    if summary.get("out_of_range") == []:
        out.print("Every polynomial's operand kept to its range.")
    if accuracy is not None:
        out.print(f"Accuracy of the encrypted run: {accuracy:.4g}.", highlight=False)
    if result.out_of_range:
        out.print(_left(result), highlight=False, markup=False)
    for name, value in outputs.items():
        first = np.array2string(value[0].ravel()[:10], precision=4)
        out.print(f"{name} {tuple(value.shape)}: first image {first}" + (f" -> {output}" if output else ""))
    for name, value in result.labels.items():
        listed = ", ".join(str(v) for v in value[:10]) + (", ..." if len(value) > 10 else "")
        out.print(f"Classes by {name}: {listed}.", highlight=False, markup=False)


def _left(result: hushnet.Result) -> str:
    """The rows that left a planned range, in a sentence."""
    rows, error = result.out_of_range, result.range_error
    named = ", ".join(map(str, rows[:20])) + (", ..." if len(rows) > 20 else "")
    first = f" The first is {error.value:.6g} in '{error.tensor}' of row {error.image}." if error else ""
    return (
        f"{len(rows)} of {result.trace['images']} rows left a planned range and may have wrong answers: "
        f"{named}.{first} Other rows stand. "
        "Compile with calibration data that covers such inputs, or with a larger --margin."
    )


@app.command()
def run(
    plan: Path,
    images: Path = typer.Argument(..., help="Inputs (.npy, .npz, or MNIST IDX)."),
    output: Path | None = typer.Option(None, "-o", "--output", help="Where to write the outputs (.npz or .npy)."),
    threads: int | None = Threads,
    transport: str = typer.Option("loopback", help="loopback (a real socket) or pipe (in memory)."),
    network: str | None = typer.Option(
        None, help=f"Slow the connection down to {NETWORKS}.", rich_help_panel=TWO_PARTY
    ),
    check: bool = typer.Option(
        False,
        "--check",
        help="Run the network in the clear too, and tell which polynomials' operands left their ranges.",
        rich_help_panel=NON_INTERACTIVE,
    ),
    labels: Path | None = Labels,
    strict_rows: bool = StrictRows,
    trace: Path | None = Trace,
    as_json: bool = Json,
    insecure: bool = Insecure,
) -> None:
    """Both parties on this machine, the real protocol over a loopback socket."""
    check_output(output, ARRAYS)
    check_output(trace)
    inputs = read_arrays(images)
    model = hushnet.Model.load(plan, allow_insecure=insecure)
    check_output(output, ARRAYS, [port["name"] for port in model.plan.document["outputs"]])
    with progress_bar(as_json) as bar:
        result = hushnet.run(
            model,
            inputs,
            threads=threads,
            progress=bar,
            transport=cast(Literal["pipe", "loopback"], transport),  # others are refused by the run itself
            network=network,
            check=check,
            allow_insecure=insecure,
        )
    _finish(result, output, trace, as_json, strict=strict_rows, labels=labels)


@app.command()
def serve(
    plan: Path,
    listen: str = typer.Option("127.0.0.1:8765", help="host:port"),
    tls: tuple[Path, Path] | None = typer.Option(None, help="Certificate chain and key (PEM)."),
    threads: int | None = Threads,
    max_sessions: int = typer.Option(16, min=1),
    idle_timeout: float = typer.Option(60.0, help="Seconds without a message after which a session is closed."),
    record: Path | None = typer.Option(
        None, help="Append everything that clients send to this file: all that the server sees of it."
    ),
    trace: Path | None = typer.Option(
        None,
        "--trace",
        help="Append this party's trace of every session, one JSON object a line.",
        rich_help_panel=TWO_PARTY,
    ),
    weight_memory: float | None = typer.Option(
        None, min=0.0, help="GiB for weights in evaluation form (default 2).", rich_help_panel=TWO_PARTY
    ),
    as_json: bool = Json,
    insecure: bool = Insecure,
) -> None:
    """Serve a plan. /ws speaks the protocol, /healthz and /metrics tell how the server is."""
    host, _, port = listen.rpartition(":")
    if not host or not port.isdigit() or int(port) > 65535:
        raise hushnet.InputError(f"--listen {listen}: give host:port, for example 0.0.0.0:8765")
    check_output(record)
    check_output(trace)
    model = hushnet.Model.load(plan, allow_insecure=insecure)
    options: dict[str, Any] = {"max_sessions": max_sessions, "idle_timeout": idle_timeout, "allow_insecure": insecure}
    if record:
        options["record"] = str(record)
    if tls:
        options |= {"tls_cert": str(tls[0]), "tls_key": str(tls[1])}
    if threads:
        options["threads"] = threads
    if weight_memory is not None:
        options["weight_memory"] = int(weight_memory * 2**30)
    handle = hushnet.serve(model, host=host.strip("[]"), port=int(port), **options)
    scheme = "hushs" if tls else "hush"
    url = f"{scheme}://{host}:{handle.port}"
    websocket = f"{'wss' if tls else 'ws'}://{host}:{handle.port}/ws"
    if as_json:
        print(json.dumps({"url": url, "websocket": websocket, "port": handle.port}), flush=True)
    else:
        out.print(report.trust_text(model.plan))
        out.print(f"Serving {model.plan.document['name']} at {url} and {websocket} (Ctrl-C ends).")
    _until_interrupted(handle, trace)


def _until_interrupted(handle: _native.ServerHandle, trace: Path | None) -> None:
    try:
        while not handle.join(None if trace is None else 0.2):
            _append(trace, handle.traces())
    except KeyboardInterrupt:
        handle.stop()
    _append(trace, handle.traces())


def _append(path: Path | None, traces: list[str]) -> None:
    if path is not None and traces:
        with path.open("a") as file:
            file.writelines(f"{t}\n" for t in traces)


@app.command()
def infer(
    url: str = typer.Argument(
        ..., help="hush://host:port or hushs://host:port (TLS); ws:// and wss:// through proxies"
    ),
    images: Path = typer.Argument(..., help="Inputs (.npy, .npz, or MNIST IDX)."),
    output: Path | None = typer.Option(None, "-o", "--output"),
    ca: Path | None = typer.Option(None, help="Trust this CA or self-signed certificate (PEM)."),
    insecure_tls: bool = typer.Option(False, help="Do not check the server's certificate."),
    setups: Path | None = typer.Option(
        None, help="Folder to keep set-ups in for the next session.", rich_help_panel=TWO_PARTY
    ),
    setups_quota: float | None = typer.Option(
        None, help="GiB that all set-ups in the folder may take (default 16).", min=0, rich_help_panel=TWO_PARTY
    ),
    setups_days: float | None = typer.Option(
        None, help="Set-ups not used for so many days are removed (default 30).", min=0.001, rich_help_panel=TWO_PARTY
    ),
    max_memory: float | None = typer.Option(
        None, help="GiB that the client may take for the server's plan (default 32).", min=0
    ),
    plan_digest: str | None = typer.Option(
        None, help="Refuse a public plan of another SHA-256.", rich_help_panel=TWO_PARTY
    ),
    threads: int | None = Threads,
    labels: Path | None = Labels,
    strict_rows: bool = StrictRows,
    trace: Path | None = Trace,
    as_json: bool = Json,
) -> None:
    """Encrypt inputs, compute with a server, decrypt the outputs."""
    check_output(output, ARRAYS)
    check_output(trace)
    x = read_arrays(images)
    count = len(next(iter(x.values())) if isinstance(x, dict) else x)
    options: dict[str, Any] = {
        "ca": str(ca) if ca else None,
        "insecure_tls": insecure_tls,
        "threads": threads,
        "images": count or None,
        "setups": setups,
    }
    options |= {"setups_days": setups_days, "plan_digest": plan_digest}
    options |= {
        name: int(gib * 2**30)
        for name, gib in (("setups_quota", setups_quota), ("max_memory", max_memory))
        if gib is not None
    }
    with hushnet.connect(url, **options) as connection:
        check_output(output, ARRAYS, [port["name"] for port in connection.plan["outputs"]])
        with progress_bar(as_json) as bar:
            result = connection.infer(x, progress=bar)
    _finish(result, output, trace, as_json, strict=strict_rows, labels=labels)


def _benchmarks() -> Any:
    """The package of the benchmarks.

    It stands apart, so that users' wheels hold no rivals and no insecure stand-ins.
    """
    try:
        return importlib.import_module("hushnet_bench")
    except ModuleNotFoundError as missing:
        if missing.name != "hushnet_bench":
            raise
        raise hushnet.HushnetError(
            "The benchmarks are a package of their own, hushnet-bench, which is not installed. "
            "Install it from a checkout of the repository: run `pip install ./bench` there, or `make setup`."
        ) from None


@app.command()
def bench(
    name: str | None = typer.Argument(None, help="Which benchmark; --list names them."),
    list_: bool = typer.Option(False, "--list", help="Name the benchmarks."),
    quick: bool = typer.Option(False, "--quick", help="The smallest size."),
    threads: int | None = Threads,
    size: int | None = typer.Option(None, help="Image side, where a benchmark has sizes."),
    batch: int | None = typer.Option(None, min=1, help="Images."),
    cases: str | None = typer.Option(None, help="Only these cases, comma-separated, where a benchmark has several."),
    peers: str | None = typer.Option(None, help="Only these other libraries, comma-separated; 'none' for ours alone."),
    plot: Path | None = typer.Option(None, help="Write a picture (PNG)."),
    as_json: bool = Json,
) -> None:
    """Reproduce a published table beside our own figures (package hushnet-bench)."""
    benches = _benchmarks()
    if list_ or name is None:
        rows = [{"name": b.name, "about": b.about, "source": b.source} for b in benches.registry().values()]
        if as_json:
            emit(rows)
        else:
            for row in rows:
                out.print(Text.assemble((row["name"], "bold"), f": {row['about']} ({row['source']})"))
        return
    options = {k: v for k, v in {"threads": threads, "size": size, "batch": batch}.items() if v is not None}
    for key, text in (("cases", cases), ("peers", peers)):
        if text is not None:
            options[key] = [] if text == "none" else text.split(",")  # type: ignore[assignment]
    with progress_bar(as_json) as bar:
        result = benches.run(name, quick=quick, progress=bar, **options)
    emit(result) if as_json else out.print(benches.render(result))
    if plot:
        benches.plot(result, plot)


@app.command()
def demo(
    name: str = typer.Argument("digits", help="digits, or a real trained network: ocr, photo, file-type, embedding."),
    inputs: list[Path] = typer.Argument(
        None, help="Files to run on: pictures, any files, or text with a sentence a line (default: inputs are made)."
    ),
    out_dir: Path = typer.Option(Path("hushnet-demo"), "--out", help="Folder for pictures, tables and plans."),
    images: int = typer.Option(360, min=1, help="Held-out digits to classify."),
    count: int = typer.Option(8, min=1, max=1000, help="Inputs to make for a real network."),
    trust: str = typer.Option("client-aided", help="client-aided or two-party (real networks)."),
    threads: int | None = Threads,
    as_json: bool = Json,
) -> None:
    """Encrypted answers beside those in the clear: handwritten digits, or a real network that `zoo get` fetches."""
    if name == "digits":
        from hushnet.cli.demo import run_demo

        result = run_demo(out_dir, images, quiet=as_json)
    else:
        from hushnet.cli import real

        result = real.run_demo(name, list(inputs or []), out_dir, count, trust, threads, quiet=as_json)
    if as_json:
        emit(result)


@app.command("calibrate", hidden=True, context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def _calibrate() -> None:
    """The former name of measure-machine."""
    raise hushnet.InputError(
        "`hushnet calibrate` is now `hushnet measure-machine`: it measures unit costs, while --calibration names "
        "sample inputs."
    )


@app.command("measure-machine")
def measure_machine(
    output: Path | None = typer.Option(
        None, "-o", "--output", help="File to write (default: the user's, which the planner then reads)."
    ),
    seconds: float = typer.Option(0.3, min=0.01, max=60, help="Time for each unit cost."),
    as_json: bool = Json,
) -> None:
    """Measure what each kind of work costs on this machine, for predicted times."""
    from hushnet.machine import rows

    found, path = hushnet.measure_machine(output, seconds=seconds)
    if as_json:
        emit({"path": str(path), "unit_costs": found})
        return
    # every entry but the machine's name is a number
    costs = {name: value for name, value in found.items() if isinstance(value, float | int)}
    for row in rows():
        out.print(f"{row.name:16} {costs[row.name] * 1e9:9.4f} ns  {row.about}", highlight=False)
    listed = {"machine", *(row.name for row in rows())}
    out.print("Two-party plans (docs/two-party.md has their terms):")
    for name in sorted(set(costs) - listed):
        out.print(f"{name:28} {costs[name] * 1e9:14.4f} ns", highlight=False)
    out.print(f"Wrote {path}; HUSHNET_UNIT_COSTS names another file.", highlight=False)


@app.command("zoo")
def zoo_(
    name: str | None = typer.Argument(None, help="An architecture, or `get`."),
    real_name: str | None = typer.Argument(None, metavar="[MODEL]", help="After `get`: the trained network to fetch."),
    output: Path | None = typer.Option(None, "-o", "--output", help="Where to write the ONNX file."),
    table: Path | None = typer.Option(None, help="A JSON table with further networks for `get` (docs/models.md)."),
    seed: int = 0,
    size: int | None = typer.Option(None, help="Image side (mobilenetv2)."),
    width: float | None = typer.Option(None, help="Width multiplier (mobilenetv2)."),
    as_json: bool = Json,
) -> None:
    """Write an architecture of the papers as ONNX with seeded weights, or fetch a trained network (`get NAME`).

    Without a name, list all.
    """
    from hushnet.cli import real

    if name is None and as_json:
        emit([*zoo.names(), *zoo.real_models(table)])
    elif name is None:
        out.print("\n".join(zoo.names()))
        out.print(real.listing(table))
    if name == "get":
        found = real.get(real_name, output, table)
        emit(found) if as_json else real.print_got(found)
    if name in (None, "get"):
        return
    if name in zoo.real_models(table):
        raise hushnet.InputError(f"{name} is a trained network. `hushnet zoo get {name}` fetches it.")
    if name not in zoo.names():
        raise hushnet.InputError(f"no architecture {name!r}: choose one of {', '.join(zoo.names())}")
    options: dict[str, Any] = {k: v for k, v in {"size": size, "width": width}.items() if v is not None}
    model = zoo.build(name, seed=seed, **options)
    path = output or Path(f"{name}.onnx")
    path.write_bytes(model.SerializeToString())
    emit({"model": str(path)}) if as_json else out.print(f"Wrote {path}")


def _until(names: str | None) -> list[str]:
    return names.split(",") if names else []


def _onnx(path: Path) -> str:
    if not path.exists():
        raise hushnet.InputError(f"{path}: there is no such file. Give the path of an ONNX model.")
    return str(path)


def main() -> None:
    """Entry point: typed errors become one line on standard error (an object with ``--json``) and exit code 1."""
    try:
        app()
    except (hushnet.HushnetError, ValueError, OSError) as error:
        if "--json" in sys.argv:
            print(json.dumps({"error": {"type": type(error).__name__, "message": in_flags(str(error))}}))
        else:
            said = Text.assemble((f"{type(error).__name__}:", "bold red"), " ", in_flags(str(error)))
            err.print(said, highlight=False)
        raise SystemExit(1) from None
