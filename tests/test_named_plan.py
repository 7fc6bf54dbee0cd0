"""A client that names the plan which it expects refuses a server of another one, in every trust model."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import hushnet
import numpy as np
import pytest

from tests.test_telemetry import ROWS, network

TRUSTS = ("client-aided", "two-party", "non-interactive")


def test_a_server_of_another_plan_is_refused(tmp_path: Path) -> None:
    models = {trust: network(trust) for trust in TRUSTS}
    for trust, model in models.items():
        model.save(tmp_path / f"{trust}.hush")
    with hushnet.serve(models) as handle:
        url = f"hush://127.0.0.1:{handle.port}"
        for trust, model in models.items():
            served = tmp_path / f"{trust}.hush"
            for named in (served, str(served), model):
                with hushnet.connect(f"{url}/{trust}", plan=named) as client:
                    public = client.public_part()
            # The public part names the same plan.
            public.save(tmp_path / "public.hush")
            with hushnet.connect(f"{url}/{trust}", plan=tmp_path / "public.hush") as client:
                client.infer(ROWS)
            other = TRUSTS[(TRUSTS.index(trust) + 1) % 3]
            with pytest.raises(hushnet.PlanError, match="serves another plan than the one that was named"):
                hushnet.connect(f"{url}/{trust}", plan=models[other])
        # From the command line; other weights of one shape are another plan where their figures leave the server.
        np.save(tmp_path / "x.npy", ROWS)
        command = [sys.executable, "-m", "hushnet", "infer", f"{url}/two-party", str(tmp_path / "x.npy")]
        good = subprocess.run([*command, "--plan", str(tmp_path / "two-party.hush")], capture_output=True, text=True)
        assert good.returncode == 0, good.stderr
        bad = subprocess.run([*command, "--plan", str(tmp_path / "client-aided.hush")], capture_output=True, text=True)
        assert bad.returncode == 1 and "another plan" in bad.stderr.replace("\n", " ")
        gone = subprocess.run([*command, "--plan", str(tmp_path / "gone.hush")], capture_output=True, text=True)
        assert gone.returncode == 1 and "gone.hush" in gone.stderr.replace("\n", "")
