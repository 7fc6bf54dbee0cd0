"""`make constant-time`.

No branch, no address and no division of the compiled code depends on a secret (docs/mpc.md, "Constant time").

Runs the programs `constant_time` of hushnet-mpc and hushnet-rlwe under valgrind's memcheck, whose marks for undefined
memory stand for secrets; looks for divisions in the disassembled reductions; compares times of reductions of fixed and
of random words. Leaks that are planted on purpose must be found by each of the three, or the check fails: it could not
have seen a real one.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PROFILE = os.environ.get("PROFILE", "fast")
# Valgrind 3.19 knows AVX2 and AES, not AVX-512: the programs see a processor without it.
VALGRIND = ["valgrind", "--quiet", "--error-limit=no"]
PROGRAM = "constant_time"
CRATES = ("hushnet-mpc", "hushnet-rlwe")
PROBES = ["reduce_wide", "reduce", "multiply"]
# Leaks that the program of hushnet-mpc makes on purpose, and what valgrind says of them.
PLANTED = {"branch": "Conditional jump or move depends", "address": "Use of uninitialised value"}
# A reduction needs no call: one may be a library's division behind a pointer.
DIVISION = re.compile(r"\t(i?div|call)")


def fail(message: str) -> None:
    sys.exit(f"constant-time: {message}")


def ensure_valgrind() -> None:
    if shutil.which("valgrind"):
        return
    print("constant-time: valgrind is not installed")
    if os.geteuid() == 0 and shutil.which("apt-get"):
        print("constant-time: installing it with apt-get")
        subprocess.run(["apt-get", "update", "-qq"], check=False)
        subprocess.run(["apt-get", "install", "-y", "-qq", "valgrind"], check=False)
    if not shutil.which("valgrind"):
        fail("valgrind is needed and could not be installed; install it with your system's packages and run this again")


def command(crate: str) -> list[str]:
    """Builds the program of a crate; the extension is named for the features of dependencies, as in the Makefile."""
    packages = ["-p", crate, "-p", "hushnet-python"]
    features = ["--features", f"{crate}/memcheck,pyo3/extension-module"]
    return ["cargo", "build", "-q", "--locked", *packages, "--profile", PROFILE, *features, "--example", PROGRAM]


def build(crate: str) -> Path:
    # With CARGO_PROFILE_FAST_DEBUG=line-tables-only reports name lines, for one more build of everything.
    subprocess.run(command(crate), cwd=ROOT, check=True)
    built = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / PROFILE / "examples" / PROGRAM
    kept = built.with_name(f"{PROGRAM}_{crate}")
    shutil.copy2(built, kept)
    return kept


def run(program: Path, *arguments: str, under: list[str] = VALGRIND) -> tuple[int, str]:
    # A party that fails leaves the other waiting, so that time is bounded.
    done = subprocess.run(
        [*under, str(program), *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=1800,
    )
    return done.returncode, done.stdout


def memcheck(crate: str, program: Path, part: list[str], planted: dict[str, str]) -> None:
    """Leaks that are `planted` at the end of the program are found, each by its own message, and none before."""
    code, output = run(program, *part)
    print("\n".join(line for line in output.splitlines() if " reports " in line))
    if code != 0 or "\n0 reports of branches" not in output:
        fail(f"{crate}: valgrind reports, or the program failed ({code}):\n{output[-8000:]}")
    for kind, message in planted.items():
        if f"found  planted {kind}" not in output or message not in output:
            fail(f"the planted {kind} was not found: the check is blind ({code}):\n{output[-4000:]}")
        print(f"found  planted {kind}")


def timing(program: Path) -> None:
    code, output = run(program, "--timing", under=[])
    print(output, end="")
    if code != 0:
        fail("reductions of fixed and of random words take different times")
    code, output = run(program, "--timing", "--plant", under=[])
    if code != 1:
        fail(f"the planted division was not found by its times: the check is blind\n{output}")
    print(f"found  planted division by its times:{output.split('planted')[0]}")


def disassembly(program: Path) -> None:
    if not shutil.which("objdump"):
        print("objdump is not installed: divisions are looked for by times only")
        return
    listing = subprocess.run(
        ["objdump", "-d", "--no-show-raw-insn", str(program)], stdout=subprocess.PIPE, text=True, check=True
    ).stdout
    functions = dict(re.findall(r"^[0-9a-f]+ <(\S+)>:\n(.*?)(?=^\n|\Z)", listing, re.M | re.S))

    def divides(name: str) -> bool:
        bodies = [body for symbol, body in functions.items() if re.search(rf"5probe\d+{name}(17h|\b|B|E)", symbol)]
        if not bodies:
            fail(f"the function {name} is not in the disassembly")
        return any(DIVISION.search(body) for body in bodies)

    for name in PROBES:
        if divides(name):
            fail(f"{name} divides, by a processor's instruction or in a function that it calls")
    if not divides("planted_division"):
        fail("the planted division was not found in the disassembly: the check is blind")
    print(f"no division in {', '.join(PROBES)}; found  planted division in the disassembly")


def main() -> None:
    ensure_valgrind()
    mpc, rlwe = (build(crate) for crate in CRATES)
    disassembly(mpc)
    # Alone, since it compares times; then valgrind's runs beside each other, each of which has one core.
    timing(mpc)
    with ThreadPoolExecutor(2) as pool:
        runs = [
            pool.submit(memcheck, CRATES[0], mpc, ["protocols"], PLANTED),
            pool.submit(memcheck, CRATES[0], mpc, ["transfers"], {}),
            pool.submit(memcheck, CRATES[1], rlwe, [], {}),
        ]
    for done in runs:
        done.result()
    print("constant-time: no branch, address or division depends on a secret")


if __name__ == "__main__":
    main()
