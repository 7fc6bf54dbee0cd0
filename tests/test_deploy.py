"""The examples of deploy/ parse, and name flags, pages, ports and signals that the server has."""

from __future__ import annotations

import configparser
import hashlib
import json
import shlex
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any

import hushnet
import pytest
import typer
from hushnet.cli.main import app

from tests.test_telemetry import ROWS, network

DEPLOY = Path(__file__).parent.parent / "deploy"


def parsed(text: str) -> list[Any]:
    """Documents of the YAML that these examples keep to: maps, lists and scalars by indentation, comments on lines of
    their own.
    """
    documents = []
    for part in text.split("\n---\n"):
        lines = [line for line in part.splitlines() if line.strip() and not line.lstrip().startswith("#")]
        assert not any("\t" in line or line != line.rstrip() for line in lines)
        value, rest = block([(len(line) - len(line.lstrip()), line.strip()) for line in lines])
        assert rest == [], rest
        documents.append(value)
    return documents


def block(lines: list[tuple[int, str]]) -> tuple[Any, list[tuple[int, str]]]:
    """The value that begins at the first line, and the lines behind it."""
    depth, first = lines[0]
    if first.startswith("- "):
        items = []
        while lines and lines[0][0] == depth and lines[0][1].startswith("- "):
            item = lines[0][1][2:]
            if (": " in item or item.endswith(":")) and not item.startswith('"'):
                value, lines = block([(depth + 2, item), *lines[1:]])
            else:
                value, lines = json.loads(item) if item.startswith('"') else item, lines[1:]
            items.append(value)
        return items, lines
    found: dict[str, Any] = {}
    while lines and lines[0][0] == depth and not lines[0][1].startswith("- "):
        key, mark, value = lines[0][1].partition(":")
        assert mark and key not in found, lines[0]
        lines = lines[1:]
        if value:
            found[key] = json.loads(value) if value.strip().startswith('"') else value.strip()
        else:
            assert lines and lines[0][0] > depth, key
            found[key], lines = block(lines)
    return found, lines


def unit() -> configparser.ConfigParser:
    parser = configparser.ConfigParser(interpolation=None, strict=False)
    parser.optionxform = str  # type: ignore[assignment]
    parser.read_string((DEPLOY / "hushnet.service").read_text())
    return parser


def container() -> dict[str, list[str]]:
    """Instructions of the Containerfile with their arguments."""
    found: dict[str, list[str]] = {}
    for line in (DEPLOY / "Containerfile").read_text().splitlines():
        if line and not line.startswith("#"):
            instruction, _, rest = line.partition(" ")
            found.setdefault(instruction, []).append(rest)
    return found


def pods() -> list[Any]:
    return parsed((DEPLOY / "kubernetes.yaml").read_text())


def commands() -> dict[str, list[str]]:
    """Arguments of `hushnet` in each example."""
    start = shlex.split(unit()["Service"]["ExecStart"])
    [pod] = [d for d in pods() if d["kind"] == "Deployment"]
    [serving] = pod["spec"]["template"]["spec"]["containers"]
    return {
        "hushnet.service": start[start.index("hushnet") + 1 :],
        "Containerfile": json.loads(container()["CMD"][-1]),
        "kubernetes.yaml": serving["args"],
    }


@pytest.mark.parametrize("name", ["hushnet.service", "Containerfile", "kubernetes.yaml"])
def test_examples_name_flags_that_the_server_takes(name: str) -> None:
    verb, *arguments = commands()[name]
    command = typer.main.get_command(app).commands[verb]
    context = command.make_context(verb, list(arguments))  # as the command line reads it; nothing runs
    taken = context.params
    assert verb == "serve" and [p.name for p in taken["plans"]] == ["models"]
    assert taken["tls"] and taken["tokens"] and taken["admin"] and str(taken["log_format"].value) == "json"
    assert "--tokens" in arguments and not any("token=" in a for a in arguments)


def test_a_flag_that_is_unknown_is_found() -> None:
    command = typer.main.get_command(app).commands["serve"]
    with pytest.raises(Exception, match="no-such-flag"):
        command.make_context("serve", [*commands()["Containerfile"][1:], "--no-such-flag"])


def test_the_unit_drains_and_reloads() -> None:
    service = unit()["Service"]
    arguments = commands()["hushnet.service"]
    assert service["KillSignal"] == "SIGTERM" and "-HUP" in service["ExecReload"]
    grace = float(arguments[arguments.index("--grace") + 1])
    assert float(service["TimeoutStopSec"]) > grace + 2
    assert int(service["LimitNOFILE"]) > 1024 and service["LimitCORE"] == "0"


def test_the_container_runs_as_nobody_in_particular() -> None:
    found = container()
    assert next(iter(found)) == "FROM" and found["ENTRYPOINT"] == ['["hushnet"]'] and found["USER"] == ["10001"]
    assert found["STOPSIGNAL"] == ["SIGTERM"] and found["EXPOSE"] == ["8765 9765"]


def test_probes_ask_pages_that_operators_have() -> None:
    deployment, service, policy = pods()
    assert [d["kind"] for d in (deployment, service, policy)] == ["Deployment", "Service", "NetworkPolicy"]
    spec = deployment["spec"]["template"]["spec"]
    [serving] = spec["containers"]
    ports = {port["name"]: port["containerPort"] for port in serving["ports"]}
    arguments = serving["args"]
    for name, flag in (("clients", "--listen"), ("admin", "--admin")):
        assert arguments[arguments.index(flag) + 1].rpartition(":")[2] == ports[name]
    pages = (Path(__file__).parent.parent / "crates/runtime/src/transport/pages_server.rs").read_text()
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        asked = serving[probe]["httpGet"]
        assert asked["port"] == "admin" and f'.route("{asked["path"]}"' in pages
    assert service["spec"]["ports"][0]["targetPort"] == "clients"
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    assert service["spec"]["selector"] == labels == policy["spec"]["podSelector"]["matchLabels"]
    assert {m["name"] for m in serving["volumeMounts"]} == {v["name"] for v in spec["volumes"]}
    grace = float(arguments[arguments.index("--grace") + 1])
    assert float(spec["terminationGracePeriodSeconds"]) > grace + 2


@pytest.mark.parametrize("name", ["hushnet.service", "Containerfile", "kubernetes.yaml"])
def test_examples_run_as_they_are_written(name: str, tmp_path: Path) -> None:
    """Other folders and ports, and the arguments as they stand; probes are answered, and SIGTERM ends it well."""
    models, secrets = tmp_path / "models", tmp_path / "secrets"
    models.mkdir()
    secrets.mkdir()
    network("two-party").save(models / "net.hush")
    made = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "30", "-subj", "/CN=localhost"]
    made += ["-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]
    made += ["-keyout", str(secrets / "key.pem"), "-out", str(secrets / "cert.pem")]
    subprocess.run(made, check=True, capture_output=True)
    token = "a-token-of-thirty-two-characters"
    (secrets / "tokens").write_text(f"ann sha256:{hashlib.sha256(token.encode()).hexdigest()}\n")
    folders = {"${STATE_DIRECTORY}": tmp_path, "${CREDENTIALS_DIRECTORY}": secrets}
    folders |= {"/models": models, "/secrets": secrets}
    arguments = commands()[name]
    for before, after in folders.items():
        arguments = [a.replace(before, str(after), 1) if a.startswith(before) else a for a in arguments]
    for flag in ("--listen", "--admin"):
        arguments[arguments.index(flag) + 1] = "127.0.0.1:0"
    command = [sys.executable, "-m", "hushnet", *arguments, "--json"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        assert process.stdout is not None
        about = json.loads(process.stdout.readline())
        url = f"hushs://localhost:{about['port']}/net"
        with pytest.raises(hushnet.ProtocolError, match="token"):
            hushnet.connect(url, ca=str(secrets / "cert.pem"))
        with hushnet.connect(url, ca=str(secrets / "cert.pem"), token=token) as client:
            client.infer(ROWS)
        for page in ("/livez", "/readyz", "/v2/health/live", "/v2/health/ready", "/metrics"):
            with urllib.request.urlopen(about["admin"] + page, timeout=10) as answer:
                assert answer.status == 200
        process.send_signal(signal.SIGHUP)
        with hushnet.connect(url, ca=str(secrets / "cert.pem"), token=token) as client:
            client.infer(ROWS)
        process.terminate()
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.wait()
        process.stdout.close()  # type: ignore[union-attr]
