"""What every column and every row of an explanation says, a sentence or two each (docs/glossary.md has the same)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rich.console import Group

from .fitting import Table

_ANSWERS = {
    "Agreement": "Share of the calibration rows whose label under the plan is that of the original network.",
    "Labels": "Share of other rows like the calibration rows that are expected to keep their label.",
    "Accuracy": "Share of right labels on the calibration rows, of the plan and of the original network.",
    "Error": "How far an output is from the original network's, approximations of activations included.",
    "Jumps": "Calibration rows that an error may carry across a comparison or a rounding, and those that stay.",
    "Precision": "Bits: errors of 999 rows of 1000 are below 2^-this of the range of the outputs (`--precision`).",
    "Of it": "The part of the error that comes from roundings and noise, not from approximations.",
    "Rigorous bound": "What no error of roundings and noise exceeds, for any input within the planned ranges.",
}
_SECURITY = {"Security": "Work of the best known attack on the encryption, as a power of two."}
_TOTALS = {
    "Batch": "Images that costs are predicted for; a block is what one set of ciphertexts holds.",
    "Time": "Predicted seconds of computation, without the network.",
    "Traffic": "Bytes from the client to the server (up) and back (down), without set-up.",
    "Peak memory": "The most that each party holds at a time.",
}
GLOSSARY: dict[str, dict[str, str]] = {
    "client-aided": {
        **_ANSWERS,
        **_SECURITY,
        **_TOTALS,
        "Ring degree N": "Coefficients of a ciphertext's polynomials; larger is more secure and slower.",
        "log2 q": "Bits of the ciphertexts' modulus. More bits hold larger values, and need a larger ring degree.",
        "Wrong result": "Probability that noise changes a result.",
        "layer": "A layer's name in the ONNX file, or a step of the client between layers.",
        "what": "The layer's shape, or what the client computes there in the clear.",
        "up": "Bytes of ciphertexts from the client to the server.",
        "down": "Bytes of ciphertexts from the server to the client.",
        "client": "Predicted seconds of the client.",
        "server": "Predicted seconds of the server.",
        "tiles": "Pieces that the layer is computed in; more tiles take less memory.",
        "k/d/u": "Bits. The modulus is 2^k. Values are scaled by 2^d. The server leaves the u lowest bits out.",
        "up/down/sum": "Bits of a word that travels: of requests, of answers, and of sums of masks in the set-up.",
        "mask": "The random part of ciphertexts: fresh for every block, or shared by all blocks under fresh keys.",
        "input range": "The largest value that the layer's input may have, and the bits that it is rounded to.",
        "margin": "Bits between the largest possible noise and noise that would change a result.",
        "memory c/s": "Memory of the layer for the client and for the server.",
        "seconds client": "The client's seconds: predicted / measured.",
        "seconds server": "The server's seconds: predicted / measured.",
        "bytes up": "Bytes to the server: predicted / measured.",
        "bytes down": "Bytes to the client: predicted / measured.",
        "noise bits": "log2 of the noise in results: bound / largest that was seen.",
        "largest value of planned": "The largest value that was seen, and the range that is planned for it.",
        "Set-up, once a session": "Bytes that the server sends before the first image, and what the client keeps.",
        "Other engine": "What the plan would cost with many images in a ciphertext (batch) or one image (packed).",
    },
    "two-party": {
        **_ANSWERS,
        **_SECURITY,
        "Shares": "Values between layers are split in two random numbers modulo 2^l, one for each party.",
        "Ciphertexts": "Ring degree N and modulus of the encryption that linear layers use.",
        "Answers": "Bits of each word that the server sends back.",
        "Network": "The network that time is predicted for (`--network`).",
        "stage": "A step of the plan: a layer's name in the ONNX file, or what the planner puts between layers.",
        "kind": (
            "linear, relu, max_pool, function and product are steps of the network. share splits the input, truncate "
            "drops low bits, reveal opens the output to the client."
        ),
        "what": "The layer's shape, or how the step is done.",
        "ciphertexts": "Bytes of ciphertexts, both ways.",
        "protocols": (
            "Bytes of protocols on shares (oblivious transfer, garbled circuits), both ways. Of a linear stage: "
            "transfers made ahead for the stages behind it."
        ),
        "rounds": "Messages that wait for one another; each costs half a round trip.",
        "time": "Predicted seconds of both parties and of the network.",
        "method": "How the layer is computed: docs/two-party.md has the methods (`--method`, `--nonlinear`).",
        "runner-up": "The next best method, and how much longer the network would take with it.",
        "range": "The largest value that the plan has room for, and its bits.",
        "units off": "Share of results that are wrong by one unit in the last place.",
        "memory": "Memory of the step.",
        "Time, one core a party": "Predicted seconds over three networks.",
        "Bytes": "All bytes of the inference, both ways, by what they are.",
        "Once a session": "Bytes before the first image, and the oblivious transfers that they prepare.",
        "Rounds": "Messages that wait for one another.",
        "Prepared": "What an image costs before it is known and with it, where `hushnet prepare` is used.",
        "Memory": "The most that each party holds at a time.",
    },
    "non-interactive": {
        **_ANSWERS,
        **_SECURITY,
        **_TOTALS,
        "Ring degree N": "Coefficients of a ciphertext's polynomials, and the images or slots in one ciphertext.",
        "Levels": "Primes of the modulus. A product uses up one; depth is how many the network needs.",
        "Key switching": "Extra primes for products of ciphertexts and rotations.",
        "Hidden weights": "Noise that hides the weights in the results (`--hide-weights`).",
        "stage": "A layer's name in the ONNX file, or a step of encryption.",
        "what": "The layer's shape, and how it is computed.",
        "ciphertexts": "Ciphertexts behind the step, and polynomials in each.",
        "level": "Primes that are left behind the step.",
        "scale": "What values are multiplied by before they are rounded.",
        "room": "Bits between the largest value and one that would wrap.",
        "error": "Largest error of noise behind the step.",
        "range": "Largest argument that the polynomial is fitted for; with a trace, the largest that was seen of it.",
        "server": "Seconds of the server, measured (with `--trace`).",
        "Keys, once a session": "Bytes of public keys that the client sends before the first image.",
        "Encoded weights": "Weights ready to be multiplied by: how much the server keeps, how much it encodes again.",
        "Operations": "What the server does with ciphertexts for a block.",
    },
}


def terms(shown: Any) -> Iterator[str]:
    """Headers of columns and names of rows of all tables in a printable, each once and in order."""
    seen: set[str] = set()
    for table in _tables(shown):
        if table.show_header:
            found = [str(column.header) for column in table.columns]
        else:
            found = [str(cell) for cell in table.columns[0].cells]
        for name in found:
            if name and name not in seen:
                seen.add(name)
                yield name


def _tables(shown: Any) -> Iterator[Table]:
    if isinstance(shown, Table):
        yield shown
    elif isinstance(shown, Group):
        for part in shown.renderables:
            yield from _tables(part)


def glossary(shown: Any, trust: str) -> Table:
    """A table of what is printed: every column and row of ``shown`` with what it says."""
    table = Table(title="What the columns say", title_justify="left", show_header=False, box=None, padding=(0, 2, 0, 0))
    for name in terms(shown):
        table.add_row(name, GLOSSARY[trust][name])
    return table
