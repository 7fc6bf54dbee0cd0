"""Sessions of a server as traces of OpenTelemetry, for ``hushnet serve --otlp``."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any
from urllib.parse import urlsplit

import hushnet

# Seconds for a batch of spans to reach the collector.
TIMEOUT = 5.0
# What a session's span is told of a report; docs/serving.md says why each may leave.
_FIELDS = {
    "session": "hushnet.session",
    "model": "hushnet.model",
    "platform": "hushnet.platform",
    "outcome": "hushnet.outcome",
    "blocks": "hushnet.blocks",
    "images": "hushnet.images",
    "received": "hushnet.bytes.received",
    "sent": "hushnet.bytes.sent",
}


class Spans:
    """Sends one trace a session to a collector, from a thread of its own; one that is away costs traces alone."""

    def __init__(self, url: str) -> None:
        """Takes the collector's address; traces go to ``/v1/traces`` below it, unless it has a path of its own.

        Raises:
            InputError: no address of HTTP, or the packages are not installed.
        """
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.netloc:
            raise hushnet.InputError(f"--otlp {url}: give a collector's address, for example http://127.0.0.1:4318")
        from importlib.metadata import version

        try:
            from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
            from opentelemetry.sdk.resources import Resource
            from opentelemetry.sdk.trace import TracerProvider
            from opentelemetry.sdk.trace.export import BatchSpanProcessor
        except ImportError:
            raise hushnet.InputError(
                "--otlp needs packages that are not installed: pip install 'hushnet[otel]'"
            ) from None
        endpoint = url if parts.path.strip("/") else f"{url.rstrip('/')}/v1/traces"
        about = Resource.create({"service.name": "hushnet", "service.version": version("hushnet")})
        self.provider = TracerProvider(resource=about, shutdown_on_exit=False)
        exporter = OTLPSpanExporter(endpoint=endpoint, timeout=TIMEOUT)
        self.provider.add_span_processor(BatchSpanProcessor(exporter))
        self.tracer = self.provider.get_tracer("hushnet.serve", version("hushnet"))

    def send(self, reports: Iterable[str]) -> None:
        """Hands on what the server tells of sessions that ended."""
        for text in reports:
            self._session(json.loads(text))

    def _session(self, report: dict[str, Any]) -> None:
        from opentelemetry.trace import SpanKind, Status, StatusCode, set_span_in_context

        start = int(report["start"])
        told = {name: report[field] for field, name in _FIELDS.items()}
        session = self.tracer.start_span("session", kind=SpanKind.SERVER, start_time=start, attributes=told)
        if report["outcome"] != "ok":
            session.set_status(Status(StatusCode.ERROR, report["outcome"]))
        below, at = set_span_in_context(session), start
        parts = [("line", report["waited"]), ("set-up", report["setup_seconds"]), *report["stages"]]
        for name, seconds in parts:
            if seconds <= 0:
                continue
            span = self.tracer.start_span(name, context=below, start_time=at)
            at += int(seconds * 1e9)
            span.end(at)
        session.end(start + int(report["seconds"] * 1e9))

    def close(self) -> None:
        """Sends what still waits, for some seconds at most."""
        self.provider.shutdown()
