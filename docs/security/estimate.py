"""Cost of the known attacks on ring-LWE (as LWE of dimension N), by published formulas. Standard library only.

Seconds for all rows.

    python docs/security/estimate.py            # recomputes lwe.csv and lpn.csv, prints differences
    python docs/security/estimate.py --write    # and writes them

Attacks (all figures are log2 of operations, number of samples unlimited):
  usvp   primal by embedding: success condition of ADPS16 section 6.3, embedding of small secrets by Bai and Galbraith
  (ACISP 2014), geometric
         series assumption with the q-vectors that lattice reduction leaves (the flat start of a q-ary profile)
  bdd    primal with one larger call at the end (Liu and Nguyen, CT-RSA 2013; dimension eta by the Gaussian heuristic)
  hybrid bdd after guessing zeta coordinates of the secret to be zero, with few exceptions (Howgrave-Graham, CRYPTO
  2007; Albrecht,
         Curtis, Wunderer, SAC 2019, without meet in the middle)
  dual   dual with enumeration and Fourier transform (MATZOV 2022, theorem 7.6; sieve on the first block by Guo and
  Johansson, ASIACRYPT 2021),
         independence heuristic taken as true, which favours the attacker
Sparse ephemeral secrets (`sparse h`: h coefficients +-1, all others 0) have two attacks of their own, favouring the
attacker: zeta coordinates are given up, of which w may be non-zero; what they are is found by a meet in the middle that
costs the square root of all choices, always meets and needs no time to check a choice (after Howgrave-Graham, CRYPTO
2007; Cheon, Hhan, Hong, Son, IEEE Access 2019):
  hybrid primal by embedding on the n - zeta coordinates that are left
  dual   dual on them (as above, without its own guesses)
Cost of BKZ with block size beta in dimension d:
  core     2^(0.292 beta)                                                  (ADPS16)
  bdgl16   8 d 2^(0.292 beta + 16.4)                                       (Becker, Ducas, Gama, Laarhoven, SODA 2016)
  matzov   5.46^2 (d - beta) 2^(0.29613500308205365 b + 20.387885985467914), b = beta - beta ln(4/3) / ln(beta / (2 pi
  e))
           (circuits of Albrecht, Gheorghiu, Postlethwaite, Schanck, ASIACRYPT 2020, corrected and improved by MATZOV
           2022)
The security guidelines of 2024 (Bossuat and others, ePrint 2024/463) are by the Lattice Estimator under `matzov`.
"""

from __future__ import annotations

import argparse
import csv
import functools
import io
import math
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import lpn

HERE = Path(__file__).parent
C_PROGRESSIVE = 5.46
LIST_DECODING = (0.29613500308205365, 20.387885985467914)
MODELS = ("core", "bdgl16", "matzov")


@dataclass(frozen=True)
class Lwe:
    """An LWE instance: n, log2 q, and the standard deviations of a coefficient of secret and error.

    The last number is the largest magnitude of a secret that is small and uniform, and 0 for any other secret.
    """

    n: int
    log2_q: float
    secret: float
    error: float
    ternary: bool = True
    m: float = math.inf

    @property
    def ln_q(self) -> float:
        """Natural logarithm of the modulus."""
        return self.log2_q * math.log(2)

    @property
    def scale(self) -> float:
        """What the secret's part of the lattice is multiplied by."""
        return max(self.error / self.secret, 1.0)


@functools.cache
def ln_delta(beta: int) -> float:
    """Ln of the root Hermite factor (Chen's thesis; measured below 40)."""
    if beta < 40:
        return math.log(1.01295 if beta > 28 else 1.0142)
    return math.log(beta / (2 * math.pi * math.e) * (math.pi * beta) ** (1 / beta)) / (2 * (beta - 1))


def add(*bits: float) -> float:
    """log2 of a sum."""
    top = max(bits)
    return top if math.isinf(top) else top + math.log2(sum(2.0 ** (b - top) for b in bits))


def free_dimensions(beta: float) -> float:
    """Dimensions for free (Ducas, EUROCRYPT 2018)."""
    return max(beta * math.log(4 / 3) / math.log(beta / (2 * math.pi * math.e)), 0.0) if beta > 18 else 0.0


def sieve_cost(dimension: float) -> float:
    """One sieve under `matzov`."""
    return math.log2(C_PROGRESSIVE) + LIST_DECODING[0] * dimension + LIST_DECODING[1]


def bkz_cost(model: str, beta: int, d: int) -> float:
    """log2 of the operations of BKZ with block size ``beta`` on a lattice of dimension ``d``, by a cost model."""
    if model == "core":
        return 0.292 * beta
    lll = 3 * math.log2(d)
    if model == "bdgl16":
        return add(lll, 0.292 * beta + 16.4 + (math.log2(8 * d) if beta < d else 0.0))
    calls = math.log2(C_PROGRESSIVE * max(d - beta, 1))
    return add(lll, calls + sieve_cost(beta - free_dimensions(beta)))


def profile(lwe: Lwe, d: int, beta: int, i: int, guessed: int = 0, tail: bool = False) -> float:
    """Ln |b_i*| of the reduced lattice of dimension d (b_0 first).

    With `tail`, ln of the volume of the projection from i on.
    """
    s = ln_delta(beta)
    columns = lwe.n - guessed
    volume = (d - columns) * lwe.ln_q + columns * math.log(lwe.scale)

    def start(k: int) -> float:
        return (volume - k * lwe.ln_q) / (d - k) + (d - k - 1) * s

    k = 0
    if start(0) > lwe.ln_q:
        low, high = 0, max(d - columns, 1)
        while low < high:
            middle = (low + high) // 2
            low, high = (low, middle) if start(middle) <= lwe.ln_q else (middle + 1, high)
        k = min(low, d - 1)
    first = start(k)
    if not tail:
        return lwe.ln_q if i < k else first - 2 * s * (i - k)
    flat, from_ = max(k - i, 0), max(i, k)
    count = d - from_
    return flat * lwe.ln_q + count * (first - 2 * s * (from_ - k)) - s * count * (count - 1)


def dimensions(lwe: Lwe, beta: int, guessed: int = 0) -> Iterable[int]:
    """Lattice dimensions worth trying: around and below that of the shortest vector."""
    n = lwe.n - guessed
    best = math.sqrt(n * max(lwe.ln_q - math.log(lwe.scale), 0.1) / ln_delta(beta))
    top = min(math.ceil(best), int(min(lwe.m, 1e9)) + n)
    low = max(n + 1, beta + 1)
    if top <= low:
        return (low,)
    steps = 48
    return sorted({low + (top - low) * k // steps for k in range(steps + 1)})


def embeds(lwe: Lwe, beta: int, d: int) -> bool:
    """Whether BKZ-beta finds the embedded vector (ADPS16): |projection| <= |b*_(d - beta)|."""
    # One dimension of the lattice is the embedding's, of length sigma: its volume counts sigma for one q.
    shift = (math.log(lwe.error) - lwe.ln_q) / d
    return math.log(lwe.error) + 0.5 * math.log(beta) <= profile(lwe, d, beta, d - beta) + shift


def least(test: Callable[[int], bool], low: int, high: int) -> int:
    """Least value that passes a monotone test."""
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if test(middle) else (middle + 1, high)
    return low


def usvp(lwe: Lwe, model: str) -> tuple[float, int, int]:
    """(cost, beta, d)."""
    beta = least(lambda b: any(embeds(lwe, b, d) for d in dimensions(lwe, b)), 40, 2 * lwe.n)
    d = next(d for d in dimensions(lwe, beta) if embeds(lwe, beta, d))
    return bkz_cost(model, beta, d), beta, d


def ln_ball(n: int) -> float:
    """Natural logarithm of the volume of the unit ball in n dimensions."""
    return n / 2 * math.log(math.pi) - math.lgamma(n / 2 + 1)


def final_dimension(lwe: Lwe, beta: int, d: int, guessed: int) -> int:
    """Least dimension eta of a last SVP call in which the error, with the embedding's coordinate, is shortest.

    d + 1 where there is none.
    """

    def shortest(eta: int) -> bool:
        volume = profile(lwe, d, beta, d - eta, guessed, tail=True) + math.log(lwe.error)
        heuristic = (volume - ln_ball(eta + 1)) / (eta + 1)
        return math.log(lwe.error) + 0.5 * math.log(eta + 1) <= heuristic

    top = min(d, beta + 400)
    return least(shortest, 2, top) + 1 if shortest(top) else d + 1


def ln_choose(n: float, k: float) -> float:
    """Natural logarithm of the binomial coefficient of n over k, for real n and k."""
    return math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)


def guesses(lwe: Lwe, zeta: int, weight: int) -> tuple[float, float]:
    """log2 of the ternary vectors (zeta coordinates, at most `weight` non-zeros), and of their probability."""
    space = add(*[(ln_choose(zeta, h)) / math.log(2) + h for h in range(weight + 1)])
    hit = add(
        *[
            ln_choose(zeta, h) / math.log(2) + h * math.log2(2 / 3) + (zeta - h) * math.log2(1 / 3)
            for h in range(weight + 1)
        ]
    )
    return space, min(hit, 0.0)


def bdd(lwe: Lwe, model: str, zeta: int = 0) -> tuple[float, int, int, int]:
    """(cost, beta, eta, d); with zeta > 0, coordinates are guessed (ternary secrets)."""
    top = usvp(lwe, model)[1]

    def cost(beta: int) -> tuple[float, int, int, int]:
        best = (math.inf, beta, 0, 0)
        for d in dimensions(lwe, beta, zeta):
            eta = final_dimension(lwe, beta, d, zeta)
            if eta > d:
                continue
            reduction, call = bkz_cost(model, beta, d), bkz_cost(model, eta + 1, eta + 1)
            total = add(reduction, call)
            if zeta:
                # As many guesses as take as long as the reduction.
                weight = 0
                while weight < zeta and guesses(lwe, zeta, weight + 1)[0] + call < reduction:
                    weight += 1
                space, hit = guesses(lwe, zeta, weight)
                total = add(reduction, call + space) - hit
            best = min(best, (total, beta, eta, d))
        return best

    low, high = max(40, top - 80), top + 1
    # Unimodal but for the steps of dimensions: coarse, then fine.
    coarse = min((cost(b) for b in range(low, high + 1, 8)), default=(math.inf, 0, 0, 0))
    return min(cost(b) for b in range(max(40, coarse[1] - 8), min(high, coarse[1] + 8) + 1))


def hybrid(lwe: Lwe, model: str) -> tuple[float, int]:
    """(cost, zeta): the best of a few numbers of guessed coordinates, zeta > 0."""
    if not lwe.ternary:
        return math.inf, 0
    return min((bdd(lwe, model, zeta)[0], zeta) for zeta in (1, 2, 4, 8, 16, 32, 64, 128) if zeta < lwe.n // 4)


def entropy(sigma: float) -> float:
    """Bits of a coefficient of the secret, as MATZOV counts a discrete Gaussian of this deviation."""
    x = math.pi**2 * sigma**2
    return (0.5 + math.log(math.sqrt(2 * math.pi) * sigma) + math.log(1 / math.tanh(x))) / math.log(2)


def dual(lwe: Lwe, model: str) -> tuple[float, int, int, int, int]:
    """(cost, beta, p, enumerated, transformed) of MATZOV's attack, with n samples.

    Under `core`, sieves in dimension beta cost 2^(0.292 beta).
    """
    x = math.pi**2 * lwe.secret**2
    branch = 2 * math.exp(8 * x * math.exp(-2 * x) * math.tanh(x)) / math.sqrt(math.e)
    coefficient = math.log2(1 / (1 - math.exp(-1 / (2 * lwe.secret**2))))
    h = entropy(lwe.secret)
    multiply, update = math.log2(32**2), math.log2(4 * 5 * 32)

    @functools.cache
    def cost(beta: int, p: int, k_enum: int, k_fft: int) -> float:
        k_lat = lwe.n - k_fft - k_enum
        m = int(min(lwe.m, lwe.n))
        d = m + k_lat
        if k_lat < 1 or beta >= d:
            return math.inf
        sieve = beta
        if model != "core":
            free = math.floor(free_dimensions(beta))
            sieve = min(d, math.floor(beta - free + math.log2((d - beta) * C_PROGRESSIVE) / LIST_DECODING[0]))
        ln_length = (
            m / d * math.log(lwe.error)
            + k_lat / d * (math.log(lwe.secret) + lwe.ln_q)
            + 0.5 * math.log(4 / 3)
            + 0.5 * math.log(sieve / (2 * math.pi * math.e))
            + ln_delta(beta) * (d - sieve)
        )
        exponent = 4 * math.exp(min(2 * (ln_length + math.log(math.pi) - lwe.ln_q), 50))
        exponent += k_fft / 3 * (lwe.secret * math.pi / p) ** 2
        vectors = exponent / math.log(2) + math.log2(k_enum * h + k_fft * math.log(p) + math.log(2))
        runs = math.log2(math.ceil(2.0 ** min(max(vectors - 0.2075 * sieve, 0.0), 60)))
        runs = max(runs, vectors - 0.2075 * sieve)
        reduction = bkz_cost(model, beta, d)
        if model != "core":
            reduction = add(reduction, sieve_cost(sieve) if model == "matzov" else 0.292 * sieve + 16.4)
        transform = multiply + math.log2(k_fft) + (k_fft + 1) * math.log2(p) if k_fft else -math.inf
        guess = coefficient + k_enum * (math.log2(branch) + h) + add(transform, update + vectors)
        return add(runs + reduction, guess)

    def over_beta(p: int, k_enum: int, k_fft: int) -> tuple[float, int]:
        # Unimodal in beta.
        low, high = 40, min(lwe.n, 3000)
        while high - low > 3:
            a, b = low + (high - low) // 3, high - (high - low) // 3
            low, high = (low, b) if cost(a, p, k_enum, k_fft) <= cost(b, p, k_enum, k_fft) else (a, high)
        return min((cost(b, p, k_enum, k_fft), b) for b in range(max(40, low - 2), high + 3))

    best = (math.inf, 0, 0, 0, 0)
    for p in (2, 3, 4, 5, 6):
        for step in (10, 2):
            centre = best[3:] if step == 2 and best[2] == p else (0, 0)
            enums = range(0, 41, 10) if step == 10 else range(max(centre[0] - 8, 0), centre[0] + 9, 2)
            ffts = range(0, 141, 10) if step == 10 else range(max(centre[1] - 8, 0), centre[1] + 9, 2)
            if step == 2 and best[2] != p:
                continue
            for k_enum in enums:
                for k_fft in ffts:
                    bits, beta = over_beta(p, k_enum, k_fft)
                    best = min(best, (bits, beta, p, k_enum, k_fft))
    return best


# coordinates that stay, and non-zero ones that are guessed
KEPT, GUESSED = tuple(1024 * k for k in (1, 2, 3, 4, 6, 8, 12)), tuple(range(0, 25, 2))


def sparse_guesses(n: int, weight: int) -> Iterable[tuple[int, int, float, float]]:
    """(kept, guessed non-zeros, log2 of the choices' square root, log2 of the probability) worth trying."""
    for kept in KEPT:
        zeta, hits, choices = n - kept, -math.inf, -math.inf
        for w in range(min(weight, max(GUESSED)) + 1):
            ways = ln_choose(zeta, w) + ln_choose(kept, weight - w) - ln_choose(n, weight)
            hits = add(hits, ways / math.log(2))
            choices = add(choices, ln_choose(zeta, w) / math.log(2) + w)
            if w in GUESSED and hits > -130 and w < weight:
                yield kept, w, choices / 2, min(hits, 0.0)


def sparse_primal(lwe: Lwe, model: str, weight: int) -> tuple[float, int]:
    """(cost, zeta): embedding after coordinates of a sparse secret are given up."""
    best = (math.inf, 0)
    for kept, w, choices, hit in sparse_guesses(lwe.n, weight):
        left = Lwe(kept, lwe.log2_q, math.sqrt((weight - w) / kept), lwe.error, False)
        if choices - hit >= best[0]:
            continue

        def found(beta: int, left: Lwe = left) -> bool:
            return any(embeds(left, beta, d) for d in dimensions(left, beta))

        top = 1500
        if not found(top):
            continue
        beta = least(found, 40, top)
        d = next(d for d in dimensions(left, beta) if embeds(left, beta, d))
        best = min(best, (add(bkz_cost(model, beta, d), choices) - hit, lwe.n - kept))
    return best


def sparse_dual(lwe: Lwe, weight: int) -> float:
    """Cost of the dual attack after coordinates of a sparse secret are given up, under `matzov`."""

    def cost(left: Lwe, beta: int, m: int, choices: float) -> float:
        d = m + left.n
        sieve = beta - math.floor(free_dimensions(beta))
        sieve = min(d, math.floor(sieve + math.log2((d - beta) * C_PROGRESSIVE) / LIST_DECODING[0]))
        ln_length = (
            m / d * math.log(left.error)
            + left.n / d * (math.log(left.secret) + left.ln_q)
            + 0.5 * math.log(4 / 3)
            + 0.5 * math.log(sieve / (2 * math.pi * math.e))
            + ln_delta(beta) * (d - sieve)
        )
        exponent = 4 * math.exp(min(2 * (ln_length + math.log(math.pi) - left.ln_q), 50))
        vectors = exponent / math.log(2) + math.log2(2 * choices * math.log(2) + 1)
        runs = max(vectors - 0.2075 * sieve, 0.0)
        return add(runs + add(bkz_cost("matzov", beta, d), sieve_cost(sieve)), vectors + choices)

    return min(
        cost(Lwe(kept, lwe.log2_q, math.sqrt((weight - w) / kept), lwe.error, False), beta, m, choices) - hit
        for kept, w, choices, hit in sparse_guesses(lwe.n, weight)
        for beta in range(60, 501, 10)
        for m in (kept // 4, kept // 2, kept, 2 * kept)
        if m + kept > beta
    )


SECRETS = {"ternary": math.sqrt(2 / 3), "error": math.sqrt(10.5)}
# figures above this are not worth telling apart
MOST = 300.0


def instance(ring_degree: int, log2_q: float, secret: str, error_variance: float) -> Lwe:
    """A row of sets.csv; `secret` is `ternary` (uniform), `error` (the error's, as in normal form), or `sparse h`."""
    if secret.startswith("sparse "):
        deviation = math.sqrt(int(secret.split()[1]) / ring_degree)
        return Lwe(ring_degree, log2_q, deviation, math.sqrt(error_variance), False)
    return Lwe(ring_degree, log2_q, SECRETS[secret], math.sqrt(error_variance), secret == "ternary")


def shown(bits: float) -> str:
    """Bits of security with one decimal, as the tables write them."""
    return f"{bits:.1f}" if bits < MOST else f">{MOST:.0f}"


def lwe_row(key: tuple[str, str, str, str], cheap: bool = False) -> dict[str, str]:
    """All figures of one instance; `cheap` leaves hybrid and dual out."""
    lwe = instance(int(key[0]), float(key[1]), key[2], float(key[3]))
    out = dict(zip(("ring_degree", "log2_q", "secret", "error_variance"), key))
    primal, last = usvp(lwe, "matzov"), bdd(lwe, "matzov")
    out |= {"beta": str(primal[1]), "dimension": str(primal[2]), "usvp": shown(primal[0]), "bdd": shown(last[0])}
    out |= {"core_svp": shown(usvp(lwe, "core")[0]), "bdgl16": shown(usvp(lwe, "bdgl16")[0])}
    if key[2].startswith("sparse "):
        weight = int(key[2].split()[1])
        guessed = sparse_primal(lwe, "matzov", weight)
        dual_bits = sparse_dual(lwe, weight)
        out |= {"hybrid": shown(guessed[0]), "hybrid_zeta": str(guessed[1]), "dual": shown(dual_bits)}
        return out | {"least": shown(min(primal[0], last[0], guessed[0], dual_bits))}
    if cheap:
        return out
    # Far from the limit nothing below it is worth the time.
    guess = hybrid(lwe, "matzov") if primal[0] < 160 else (math.inf, 0)
    other = dual(lwe, "matzov")
    out |= {
        "hybrid": shown(guess[0]) if guess[1] else "",
        "hybrid_zeta": str(guess[1]) if guess[1] else "",
        "dual": shown(other[0]),
    }
    return out | {"least": shown(min(primal[0], last[0], guess[0], other[0]))}


def read(name: str) -> list[dict[str, str]]:
    """The rows of a CSV file beside this script, by column names."""
    with (HERE / name).open(newline="") as file:
        return list(csv.DictReader(file))


def instances(sets: Iterable[Mapping[str, str]]) -> list[tuple[str, str, str, str]]:
    """What sets.csv has, each once."""
    keys = {(r["ring_degree"], r["log2_q"], r["secret"], r["error_variance"]) for r in sets}
    return sorted(keys, key=lambda k: (int(k[0]), -float(k[1]), k[2]))


def text(rows: list[dict[str, str]]) -> str:
    """Rows as CSV text, with the columns of the first row."""
    out = io.StringIO()
    writer = csv.DictWriter(out, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue()


def lpn_rows() -> list[dict[str, str]]:
    """Figures of every set of lpn-sets.csv."""
    out = []
    for r in read("lpn-sets.csv"):
        figures = lpn.row(lpn.Lpn(*(int(r[k]) for k in ("trees", "ones", "log_group", "depth"))))
        out.append({"set": r["set"], **{k: str(v) for k, v in figures.items()}})
    return out


def main() -> int:
    """Recomputes both tables, and writes them with ``--write``; 1 where a stored table differs."""
    parser = argparse.ArgumentParser(description="Recomputes lwe.csv and lpn.csv from sets.csv and lpn-sets.csv.")
    parser.add_argument("--write", action="store_true", help="write the files")
    write = parser.parse_args().write
    tables = {"lwe.csv": text([lwe_row(key) for key in instances(read("sets.csv"))]), "lpn.csv": text(lpn_rows())}
    changed = 0
    for name, new in tables.items():
        old = (HERE / name).read_text() if (HERE / name).exists() else ""
        if old != new:
            changed += 1
            sys.stdout.write(f"{name}: differs from what the formulas give\n")
        if write:
            (HERE / name).write_text(new)
    return 0 if write else changed


if __name__ == "__main__":
    sys.exit(main())
