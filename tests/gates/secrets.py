"""The server's side cannot name what holds a client's secret, nor the client's side the server's (SECURITY.md).

A side is a list of files, or, where both halves of a method stand in one file, the types of that side: their
definitions and `impl` blocks. Every type whose name or `Drop` says that it may hold a secret is classified here; one
that is not has failed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from tests.gates import rust
from tests.gates.rust import Source

CRATES = ("rlwe", "mpc", "layers", "runtime")

# What a client alone holds: keys, masks and errors of its ciphertexts, and sessions with them.
CLIENT: dict[str, set[str]] = {
    "rlwe/src/batch_cipher.rs": {"ClientKey"},
    "rlwe/src/batch_shares/client.rs": {"ShareKey"},
    "rlwe/src/bfv/client.rs": {"SecretKey"},
    "rlwe/src/ckks/client.rs": {"KeyGenerator", "SecretKey"},
    "rlwe/src/coefficients/client.rs": {"CoefficientKey", "CoefficientScratch"},
    "rlwe/src/one_poly/client.rs": {"Blind", "OnePolyClient"},
    "rlwe/src/packed/client.rs": {"PackedClient"},
    "layers/src/packed/client.rs": {"Client"},
    "layers/src/rotation_free/client.rs": {"Prepared", "RotationFreeClient"},
    "runtime/src/client_aided/client.rs": {"Client", "Secrets"},
    "runtime/src/client_aided/coefficients/client.rs": {"TileKeys"},
    "runtime/src/client_aided/tiles.rs": {"Worker"},
    "runtime/src/non_interactive/client.rs": {"NonInteractiveClient"},
    "runtime/src/non_interactive/kept.rs": {"KeptSecret"},
    "runtime/src/session/client.rs": {"AnyClient"},
    # What shows that a client may ask; the server knows hashes.
    "runtime/src/transport/token.rs": {"AccessToken"},
    "runtime/src/two_party/client.rs": {"TwoPartyClient"},
    # r of prepared inferences, and the client's shares.
    "runtime/src/two_party/units/client.rs": {"ClientUnit", "UnitFolder"},
}
# What a server alone holds: weights, masks and randomness of its answers, and sessions with them.
SERVER: dict[str, set[str]] = {
    "rlwe/src/batch_shares/server.rs": {"ShareServer", "ShareServerStage"},
    "rlwe/src/one_poly/server.rs": {"OnePolyServer", "WeightKey"},
    "rlwe/src/packed/server.rs": {"PackedServer", "WeightPoly"},
    "layers/src/batch_shares.rs": {"BatchShareLinear"},
    "layers/src/cheetah/server.rs": {"CheetahLinear"},
    "layers/src/coefficients/server.rs": {"CoefficientLinear"},
    "layers/src/convfhe/server.rs": {"ConvFheLinear", "ConvFheSession"},
    "layers/src/packed/server.rs": {"KeyRefs", "Server"},
    "layers/src/rotation_free/server.rs": {"Keys", "RotationFreeLinear", "ServerShare"},
    "layers/src/slots/linear.rs": {"SlotLinear"},
    "layers/src/words.rs": {"WordLinear"},
    "runtime/src/client_aided/coefficients/server.rs": {"TileServer"},
    "runtime/src/client_aided/layer.rs": {"Layer"},
    "runtime/src/client_aided/server.rs": {"ServerPlan"},
    "runtime/src/non_interactive/key_store.rs": {"KeyStore"},
    "runtime/src/non_interactive/server.rs": {"KeepingKeys", "NonInteractiveModel"},
    "runtime/src/session/server.rs": {"AnyModel"},
    "runtime/src/two_party/prepared.rs": {"KeptPreparation"},
    "runtime/src/two_party/server.rs": {"TwoPartyModel"},
    "runtime/src/two_party/units/answer.rs": {"WordModel"},
    "runtime/src/two_party/units/server.rs": {"UnitStore"},
}
# What either party holds of its own: its half of a protocol that both run, or room for its work.
EITHER: dict[str, set[str]] = {
    "rlwe/src/batch_cipher.rs": {"CipherScratch"},
    "rlwe/src/ckks/encoder.rs": {"Plaintext", "ScalarPlaintext", "SmallPlaintext"},
    "rlwe/src/ckks/fft.rs": {"ComplexBuffer"},
    # In products of shares each party has a key of its own and multiplies under the other's.
    "rlwe/src/wide/holder.rs": {"WideHolder"},
    "rlwe/src/wide/multiplier.rs": {"WideMultiplier", "WidePlain"},
    "layers/src/matrix_product/holder.rs": {"MatrixHolder"},
    "layers/src/matrix_product/multiplier.rs": {"MatrixMultiplier", "Plain"},
    "runtime/src/two_party/methods/matrix_product/half.rs": {"MatrixHalf"},
    "mpc/src/block.rs": {"Prg"},
    "mpc/src/kept.rs": {"KeptPads", "Supply"},
    "mpc/src/ot/ferret.rs": {"Base", "Planted", "Punctured", "Sender"},
    "mpc/src/ot/rows.rs": {"Rows"},
    "mpc/src/ot/iknp.rs": {"Receiver", "Sender"},
    "mpc/src/ot/softspoken.rs": {"Receiver", "Sender"},
    # What units a client names on the wire, and one party's half of a unit.
    "runtime/src/two_party/units/mod.rs": {"Claim", "Half"},
}
# What both may see: public keys, key material for the server's evaluation, shapes of a stage, descriptions of messages.
PUBLIC: dict[str, set[str]] = {
    "rlwe/src/batch_shares/client.rs": {"SharePublicKey"},
    "rlwe/src/bfv/keys.rs": {"GaloisKey", "GaloisKeys", "PublicKey"},
    "rlwe/src/ckks/ciphertext.rs": {"PublicKey"},
    "rlwe/src/ckks/bootstrap/keys.rs": {"BootstrapKeys", "Encapsulation"},
    "rlwe/src/ckks/switching.rs": {"GaloisKey", "GaloisKeys", "RelinKey", "SwitchingKey"},
    "rlwe/src/pack_lwe.rs": {"MergeKeys"},
    "rlwe/src/packed/key.rs": {"PackedPublicKey"},
    "rlwe/src/wide/key.rs": {"WidePublicKey"},
    "mpc/src/simd/avx2.rs": {"Key"},
    "mpc/src/simd/avx512.rs": {"Key"},
    "mpc/src/simd/mod.rs": {"FixedKey", "Keyed"},
    "layers/src/batch_shares.rs": {"BatchShareClient"},
    "layers/src/cheetah/mod.rs": {"CheetahClient"},
    "layers/src/coefficients/client.rs": {"CoefficientClient"},
    "layers/src/convfhe/mod.rs": {"ConvFheClient"},
    "layers/src/packed/client.rs": {"EvaluationKeys"},
    "layers/src/slots/linear.rs": {"SlotClient"},
    "runtime/src/calibrate/mod.rs": {"Client"},
    # The seed of masks, and sums of masks; secrets come with every call.
    "runtime/src/client_aided/coefficients/client.rs": {"TileClient"},
    "runtime/src/non_interactive/engine/mod.rs": {"EvaluationKeys", "KeysNeeded"},
    # Where a client keeps its keys: a path and an address.
    "runtime/src/non_interactive/kept.rs": {"KeyFolder"},
    "runtime/src/non_interactive/key_store.rs": {"KeyHash", "KeyPolicy"},
    "runtime/src/non_interactive/messages.rs": {"KeyFrame", "KeyKind"},
    # The hash of keys, and whether they are known.
    "runtime/src/wire.rs": {"Keys"},
    # Who is served and who waits: numbers and times.
    "runtime/src/transport/slots.rs": {"State"},
    "runtime/src/transport/turns.rs": {"State"},
}

# The server's files, by trust model; first those that all trust models share.
SERVER_FILES: dict[str, tuple[str, ...]] = {
    "all": (
        "runtime/src/session/server.rs",
        "runtime/src/transport/greeting.rs",
        "runtime/src/transport/models.rs",
        "runtime/src/transport/pages_server.rs",
        "runtime/src/transport/peers.rs",
        "runtime/src/transport/raw_server.rs",
        "runtime/src/transport/record.rs",
        "runtime/src/transport/server.rs",
        "runtime/src/transport/shared.rs",
        "runtime/src/transport/websocket_server.rs",
        "python/src/server.rs",
    ),
    "client-aided": (
        "rlwe/src/batch_server.rs",
        "rlwe/src/coefficients/server.rs",
        "layers/src/coefficients/server.rs",
        "runtime/src/client_aided/coefficients/server.rs",
        "runtime/src/client_aided/layer.rs",
        "runtime/src/client_aided/server.rs",
    ),
    "two-party": (
        "rlwe/src/batch_shares/server.rs",
        "rlwe/src/bfv/evaluator.rs",
        "rlwe/src/bfv/finish.rs",
        "rlwe/src/one_poly/server.rs",
        "rlwe/src/packed/server.rs",
        "layers/src/cheetah/server.rs",
        "layers/src/convfhe/server.rs",
        "layers/src/rotation_free/server.rs",
        "runtime/src/two_party/frames/server.rs",
        "runtime/src/two_party/prepared.rs",
        "runtime/src/two_party/server.rs",
        "runtime/src/two_party/units/answer.rs",
        "runtime/src/two_party/units/server.rs",
    ),
    "non-interactive": (
        "rlwe/src/ckks/evaluator.rs",
        "rlwe/src/ckks/linear.rs",
        "rlwe/src/ckks/multiply.rs",
        "rlwe/src/ckks/rotate.rs",
        "layers/src/ckks_batch/run.rs",
        "layers/src/packed/server.rs",
        "runtime/src/non_interactive/engine/server.rs",
        "runtime/src/non_interactive/key_store.rs",
        "runtime/src/non_interactive/server.rs",
    ),
}
CLIENT_FILES: dict[str, tuple[str, ...]] = {
    "all": (
        "runtime/src/io.rs",
        "runtime/src/session/client.rs",
        "runtime/src/transport/client.rs",
        "python/src/client.rs",
        "wasm/src/host.rs",
        "wasm/src/session.rs",
    ),
    "client-aided": (
        "rlwe/src/coefficients/client.rs",
        "layers/src/coefficients/client.rs",
        "runtime/src/client_aided/client.rs",
        "runtime/src/client_aided/coefficients/client.rs",
        "runtime/src/client_aided/exchange.rs",
        "runtime/src/client_aided/tiles.rs",
    ),
    "two-party": (
        "rlwe/src/batch_shares/client.rs",
        "rlwe/src/bfv/client.rs",
        "rlwe/src/one_poly/client.rs",
        "rlwe/src/packed/client.rs",
        "layers/src/cheetah/client.rs",
        "layers/src/convfhe/client.rs",
        "layers/src/rotation_free/client.rs",
        "runtime/src/two_party/client.rs",
        "runtime/src/two_party/frames/client.rs",
        "runtime/src/two_party/stored.rs",
        "runtime/src/two_party/units/client.rs",
    ),
    "non-interactive": (
        "rlwe/src/ckks/client.rs",
        "layers/src/packed/client.rs",
        "runtime/src/non_interactive/client.rs",
        "runtime/src/non_interactive/engine/client.rs",
        "runtime/src/non_interactive/kept.rs",
    ),
}
# Folders of two-party linear methods go by path: in every folder below, `client.rs` is the client's and all its types
# are a client's secrets, `server.rs` is the server's and its types a server's, and every other file is of both sides
# and names no secret of either.
METHODS = "runtime/src/two_party/methods/"
# Files of both sides, such as the loopback run in one process, whose name says otherwise.
NEITHER: set[str] = set()
# Files that hold both halves of a method: the types of each side.
SERVER_TYPES = {"layers/src/batch_shares.rs": {"BatchShareLinear"}, "layers/src/slots/linear.rs": {"SlotLinear"}}
CLIENT_TYPES = {"layers/src/batch_shares.rs": {"BatchShareClient"}, "layers/src/slots/linear.rs": {"SlotClient"}}

_SUSPECT = re.compile(r"Key|Secret|Blind|State$|Client$")
# Names that other types have, too.
_COMMON = {"Client", "Keys", "Layer", "Prepared", "Server", "Worker"}
_KINDS = "|".join(sorted({k for table in (CLIENT, SERVER) for kinds in table.values() for k in kinds} - _COMMON))
_ALIAS = re.compile(rf"\b({_KINDS})\s+as\s+(?!_\b)\w|\btype\s+\w+[^=;]*=[^;]*\b({_KINDS})\b")
_ZEROISED = re.compile(r"\bimpl\b[^{;]*\bDrop\s+for\s+(\w+)[^{]*\{")


def of_methods(sources: dict[str, Source], half: str) -> dict[str, set[str]]:
    """The files of one half (`client` or `server`) of all linear methods, with the types that each defines."""
    return {
        name: set(rust.types(s))
        for name, s in sources.items()
        if name.startswith(METHODS) and name.endswith(f"/{half}.rs")
    }


def problems(root: Path) -> list[str]:
    """Names of the other side's secrets, secrets without a class, and what the tables name and the tree lacks."""
    sources = {
        s.path.removeprefix("crates/"): s for crate in (*CRATES, "python", "wasm") for s in rust.sources(root, crate)
    }
    asking, answering = of_methods(sources, "client"), of_methods(sources, "server")
    client, server = CLIENT | asking, SERVER | answering
    client_files = {**CLIENT_FILES, "two-party": (*CLIENT_FILES["two-party"], *asking)}
    server_files = {**SERVER_FILES, "two-party": (*SERVER_FILES["two-party"], *answering)}
    between = tuple(name for name in sources if name.startswith(METHODS) and name not in client and name not in server)
    out = [*_missing(sources), *_unclassified(sources), *_halves(sources)]
    for side, files, types, secrets in (
        ("server", {**server_files, "both sides of a method": between}, SERVER_TYPES, client),
        ("client", {**client_files, "both sides of a method": between}, CLIENT_TYPES, server),
    ):
        others = {kind for name, s in sources.items() for kind in rust.types(s) if kind not in secrets.get(name, set())}
        plain = set().union(*secrets.values()) - others
        for trust, names in files.items():
            for source in (sources[n] for n in names if n in sources):
                whole = [(0, len(source.code))]
                out += _named(
                    source,
                    whole,
                    secrets,
                    plain - _COMMON if names is between else plain,
                    f"the {side}'s side ({trust})",
                )
                out += [
                    f"{source.path}:{line}: a file of one side must not import all names of {'::'.join(path[:-1])}"
                    for path, line in rust.uses(source)
                    if path[-1] == "*" and (path[0] in ("crate", "self", "super") or path[0].startswith("hushnet_"))
                ]
        for name, found in types.items():
            if name in sources:
                spans = [span for t in found for span in rust.items_of(sources[name], t)]
                out += _named(sources[name], spans, secrets, plain, f"the {side}'s side ({', '.join(sorted(found))})")
    secret = {name: client.get(name, set()) | server.get(name, set()) | EITHER.get(name, set()) for name in sources}
    return (
        out
        + [p for s in sources.values() for p in _renamed(s)]
        + [p for n, s in sources.items() for p in _shown(s, secret[n])]
    )


def _halves(sources: dict[str, Source]) -> Iterator[str]:
    """Folders of methods that lack a half."""
    folders = {
        name.rpartition("/")[0] for name in sources if name.startswith(METHODS) and name.count("/") > METHODS.count("/")
    }
    for folder in sorted(folders):
        for half in ("client", "server"):
            if f"{folder}/{half}.rs" not in sources:
                yield f"crates/{folder}: a linear method has a file {half}.rs, and there is none"


def _missing(sources: dict[str, Source]) -> Iterator[str]:
    tables = (CLIENT, SERVER, EITHER, PUBLIC, SERVER_TYPES, CLIENT_TYPES)
    listed = {name for table in (SERVER_FILES, CLIENT_FILES) for names in table.values() for name in names}
    by_path = {name for half in ("client", "server") for name in of_methods(sources, half)}
    for name in sorted({n for table in tables for n in table} | listed | NEITHER):
        if name not in sources:
            yield f"crates/{name}: the table of tests/gates/secrets.py names this file, and there is none"
            continue
        for kind in sorted(set().union(*(table.get(name, set()) for table in tables)) - set(rust.types(sources[name]))):
            yield (
                f"crates/{name}: the table of tests/gates/secrets.py names type {kind}, and there is none in this file"
            )
    for name in sorted(set(sources) - listed - by_path - NEITHER):
        if re.search(r"(^|[/_])(client|server)(\.rs|/)", name):
            yield f"crates/{name}: tests/gates/secrets.py does not say which side this file belongs to"


def _unclassified(sources: dict[str, Source]) -> Iterator[str]:
    for name, source in sources.items():
        if not name.startswith(CRATES) or (name.startswith(METHODS) and name.endswith(("/client.rs", "/server.rs"))):
            continue
        known = set().union(*(table.get(name, set()) for table in (CLIENT, SERVER, EITHER, PUBLIC)))
        wiped = _wiped(source)
        for kind, start in rust.types(source).items():
            if (_SUSPECT.search(kind) or kind in wiped) and kind not in known:
                yield (
                    f"crates/{name}:{source.line(start)}: tests/gates/secrets.py does not say whose secret {kind} is, "
                    "or that it is public"
                )


@cache
def _wiped(source: Source) -> set[str]:
    """Types of a file that wipe their memory when they are dropped."""
    return {
        m.group(1)
        for m in _ZEROISED.finditer(source.code)
        if "eroize" in source.code[m.start() : rust.item_end(source.code, m.start())]
    } | set(re.findall(r"ZeroizeOnDrop[^;{]*?\bstruct\s+(\w+)", source.code))


def _named(
    source: Source, spans: list[tuple[int, int]], secrets: dict[str, set[str]], plain: set[str], side: str
) -> Iterator[str]:
    """Mentions of secrets in parts of a file.

    Of the name where every type of that name is one (`plain`), else of paths to it.
    """
    own = rust.types(source)
    lines = [(source.line(a), source.line(b)) for a, b in spans]
    for place, kinds in secrets.items():
        parts = place.removesuffix(".rs").split("/")
        modules = {*parts[2:], f"hushnet_{parts[0]}", "crate", "super"} - {"mod"}
        for kind in sorted(k for k in kinds - set(own) if k in source.code):
            if kind in plain:
                found = [source.line(m.start()) for m in re.finditer(rf"\b{kind}\b", source.code)]
            else:
                found = [
                    line
                    for path, line in rust.paths(source)
                    if kind in path[1:] and path[path.index(kind, 1) - 1] in modules
                ]
            if found := [line for line in found if any(a <= line <= b for a, b in lines)]:
                yield f"{source.path}:{min(found)}: {side} must not name {kind} of crates/{place}"


@cache
def _renamed(source: Source) -> tuple[str, ...]:
    return tuple(_aliases(source))


def _aliases(source: Source) -> Iterator[str]:
    """Other names for a secret, under which it could be named unseen."""
    for match in _ALIAS.finditer(source.code):
        kind = match.group(1) or match.group(2)
        yield f"{source.path}:{source.line(match.start())}: {kind} holds a secret and must not have another name"


def _shown(source: Source, secret: set[str]) -> Iterator[str]:
    """Secrets that can be printed."""
    for kind in sorted(secret):
        derived = re.search(
            rf"#\[derive\([^)]*\bDebug\b[^)]*\)\](?:\s*#\[[^\]]*\])*\s*(?:pub(?:\([^)]*\))?\s+)?(?:struct|enum)\s+{kind}\b",
            source.code,
        )
        written = re.search(rf"\bimpl\b[^{{;]*\b(?:Debug|Display)\s+for\s+{kind}\b", source.code)
        if found := derived or written:
            yield f"{source.path}:{source.line(found.start())}: {kind} holds a secret and must not be printable"
