"""Parameters and measured totals of an explanation in words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..units import seconds, size

Report = Mapping[str, Any]
Rows = list[tuple[str, str]]


def parameters(report: Report) -> Rows:
    """Names and values of the parameters of any trust model."""
    p = report["parameters"]
    rows: Rows = [("Engine", report["engine"]), ("Ring degree N", str(p["ring_degree"]))]
    grade = "INSECURE" if p.get("insecure") else f"{p['security_bits']} bits"
    rows.append(("Security", f"{grade}; N allows a modulus of {p['modulus_bits_limit']} bits"))
    mode = report["trust"]["mode"]
    if mode == "two-party":
        rows.append(("Shares", f"modulo 2^{p['ring_bits']}"))
        rows.append(("Moduli of ciphertexts", f"{', '.join(map(str, p['modulus_bits'])) or 'none'} bits"))
        network = report["network"]
        speed = "unlimited" if network["bits_per_second"] is None else f"{network['bits_per_second'] / 1e6:.0f} Mbit/s"
        trip = seconds(network["round_trip_seconds"])
        rows.append(("Network of predicted times", f"{network['name']}: {speed}, round trip {trip}"))
        by_network = report["totals"].get("seconds_by_network", {})
        rows.append(("Time by network", ", ".join(f"{name} {seconds(s)}" for name, s in by_network.items())))
    elif mode == "non-interactive":
        rows.append(("Images in a block", str(p["images_per_block"])))
        bits = ", ".join(f"{b:.0f}" for b in p["data_prime_bits"])
        rows.append(("Modulus", f"{p['modulus_bits']} bits; {p['levels']} primes of {bits} bits"))
        if p["flood_bits"] is not None:
            rows.append(("Hidden weights", f"results re-randomised and flooded with {p['flood_bits']} bits"))
    else:
        rows.append(("Images in a block", str(p["images_per_block"])))
        widths = p["modulus_bits"]
        rows.append(("Modulus", f"{widths['least']} to {widths['most']} bits"))
        rows.append(("Wrong result", p["failure_probability"]))
    for key, label in (("secret", "Secret key"), ("error", "Error of ciphertexts")):
        if key in p:
            rows.append((label, p[key]))
    return rows


def measured(report: Report) -> list[tuple[str, str, str]]:
    """Totals of a run: label, predicted, measured; bytes are predicted for as many images as ran."""
    t, seen = report["totals"], report["measured"]
    planned, ran = t.get("batch", 1), seen.get("images", 0)
    rows = [("Images", str(planned), str(ran))]
    if "seconds" in t:
        rows.append(("Seconds", f"{seconds(t['seconds'])} for {planned} images", _of(seen, "seconds", seconds)))
    exact = (seen.get("total") or {}).get("predicted") or {}
    blocks = seen.get("blocks", 0) / t["blocks"] if t.get("blocks") else None
    for key, label in (("bytes_up", "Bytes of the client"), ("bytes_down", "Bytes of the server")):
        whole = exact.get(key, t[key] * blocks if blocks is not None else None)
        rows.append((label, "" if whole is None else size(whole), _of(seen, key, size)))
    if "setup_bytes" in t:
        sent = [seen[k] for k in ("setup_bytes_up", "setup_bytes_down") if k in seen]
        rows.append(("Bytes of the set-up", size(t["setup_bytes"]), size(sum(sent)) if sent else ""))
    else:
        for key, label in (("setup_bytes_up", "Set-up, client"), ("setup_bytes_down", "Set-up, server")):
            if t.get(key) or seen.get(key, 0) > 1024:
                rows.append((label, size(t.get(key, 0)), _of(seen, key, size)))
    peak = t["client_peak_memory_bytes"] + t.get("server_peak_memory_bytes", 0)
    rows.append(
        (
            "Memory, the whole process",
            f"{size(peak)} of keys, messages and weights",
            _of(seen, "peak_memory_bytes", size),
        )
    )
    if "threads" in seen:
        rows.append(("Threads", "1", str(seen["threads"])))
    return rows


def _of(seen: Report, key: str, show: Any) -> str:
    return show(seen[key]) if isinstance(seen.get(key), (int, float)) else ""
