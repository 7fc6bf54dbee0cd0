"""Sessions as traces of OpenTelemetry: what a collector gets, and what it does not."""

from __future__ import annotations

import http.server
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import hushnet
import numpy as np
import pytest
from hushnet.cli.telemetry import Spans
from onnx import TensorProto, helper

ROWS = np.random.default_rng(5).uniform(-1, 1, (4, 6)).astype(np.float32)
CANARY = 0.123456789


@contextmanager
def collector() -> Iterator[tuple[str, list[tuple[str, bytes]]]]:
    """Its address, and what came: paths and bodies."""
    came: list[tuple[str, bytes]] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            came.append((self.path, body))
            self.send_response(200)
            self.send_header("Content-Type", "application/x-protobuf")
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}", came
    finally:
        server.shutdown()
        server.server_close()


def spans_of(bodies: list[bytes]) -> list[Any]:
    """All spans of exports, in the words of OTLP."""
    message = pytest.importorskip("opentelemetry.proto.collector.trace.v1.trace_service_pb2")
    parsed = [message.ExportTraceServiceRequest.FromString(body) for body in bodies]
    return [s for p in parsed for r in p.resource_spans for scope in r.scope_spans for s in scope.spans]


def value(of: Any) -> Any:
    """An attribute's value."""
    return getattr(of, of.WhichOneof("value"))


def network(trust: str) -> hushnet.Model:
    rng = np.random.default_rng(3)
    weights = [
        helper.make_tensor(name, TensorProto.FLOAT, shape, rng.normal(0, 0.5, shape).astype(np.float32).ravel())
        for name, shape in (("w", (6, 5)), ("v", (5, 3)))
    ]
    act = ("Mul", ["a", "a"]) if trust == "non-interactive" else ("Relu", ["a"])
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"]),
        helper.make_node(act[0], act[1], ["b"]),
        helper.make_node("MatMul", ["b", "v"], ["y"]),
    ]
    ends = [helper.make_tensor_value_info(n, TensorProto.FLOAT, ["n", d]) for n, d in (("x", 6), ("y", 3))]
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:], weights)
    return hushnet.compile(helper.make_model(graph), trust=trust, calibration=ROWS)


def test_what_is_told_of_a_session_is_counts_and_times_in_every_trust_model() -> None:
    models = {trust: network(trust) for trust in ("client-aided", "two-party", "non-interactive")}
    rows = ROWS.copy()
    rows[0, 0] = CANARY
    with hushnet.serve(models, reports=True, max_sessions=2) as handle:
        for trust in models:
            with hushnet.connect(f"hush://127.0.0.1:{handle.port}/{trust}") as client:
                client.infer(rows)
        # This one goes before it has sent anything to work on.
        hushnet.connect(f"hush://127.0.0.1:{handle.port}/client-aided").close()
    import json

    told = [json.loads(text) for text in handle.reports()]
    assert [t["model"] for t in told[:3]] == list(models) and handle.reports() == []
    for report in told[:3]:
        assert set(report) == {
            "session",
            "model",
            "platform",
            "start",
            "seconds",
            "waited",
            "setup_seconds",
            "stages",
            "blocks",
            "images",
            "received",
            "sent",
            "outcome",
        }
        assert report["outcome"] == "ok" and report["images"] == 4 and report["blocks"] >= 1
        assert report["platform"] == f"hushnet-{report['model']}"
        assert report["received"] > 0 < report["sent"] and report["stages"]
        assert sum(seconds for _, seconds in report["stages"]) > 0
        assert str(CANARY) not in json.dumps(report) and "127.0.0.1" not in json.dumps(report)


def test_a_collector_gets_one_trace_a_session(tmp_path: Path) -> None:
    pytest.importorskip("opentelemetry.exporter.otlp.proto.http")
    from tests.test_serve import served

    network("two-party").save(tmp_path / "net.hush")
    with collector() as (url, came), served(tmp_path / "net.hush", "--otlp", url) as (process, about, _):
        for _ in range(2):
            with hushnet.connect(about["url"]) as client:
                client.infer(ROWS)
        process.terminate()
        assert process.wait(60) == 0
    assert {path for path, _ in came} == {"/v1/traces"}
    spans = spans_of([body for _, body in came])
    sessions = [s for s in spans if s.name == "session"]
    assert len(sessions) == 2 and len({s.trace_id for s in sessions}) == 2
    for session in sessions:
        told = {a.key: value(a.value) for a in session.attributes}
        assert told.pop("hushnet.session") >= 0 and told.pop("hushnet.bytes.received") > 0
        assert told.pop("hushnet.bytes.sent") > 0
        assert told == {
            "hushnet.model": "net",
            "hushnet.platform": "hushnet-two-party",
            "hushnet.outcome": "ok",
            "hushnet.blocks": 1,
            "hushnet.images": 4,
        }
        below = [s for s in spans if s.parent_span_id == session.span_id]
        assert {s.trace_id for s in below} == {session.trace_id} and len(below) >= 2
        for span in below:
            assert session.start_time_unix_nano <= span.start_time_unix_nano <= span.end_time_unix_nano
            assert not span.attributes
    # No address of a client is in anything that left.
    assert all(b"127.0.0.1" not in body for _, body in came)


def test_a_collector_that_is_away_costs_traces_alone(tmp_path: Path) -> None:
    pytest.importorskip("opentelemetry.exporter.otlp.proto.http")
    from tests.test_serve import served

    network("two-party").save(tmp_path / "net.hush")
    with served(tmp_path / "net.hush", "--otlp", "http://127.0.0.1:9") as (process, about, _):
        with hushnet.connect(about["url"]) as client:
            client.infer(ROWS)
        process.terminate()
        assert process.wait(60) == 0


def test_addresses_that_are_none_are_refused() -> None:
    for bad in ("127.0.0.1:4318", "grpc://host", "http://"):
        with pytest.raises(hushnet.InputError, match="--otlp"):
            Spans(bad)


def test_without_its_packages_a_sentence_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.http.trace_exporter", None)
    with pytest.raises(hushnet.InputError, match=r"hushnet\[otel\]"):
        Spans("http://127.0.0.1:4318")
