"""What Python's devices send in a secure sum when their draws are known, for the tests of the one in TypeScript.

    python -m tests.edge_js.sum_vectors

writes `edge-js/test/sums.json`; a test holds that file to what this makes.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import numpy as np
import numpy.typing as npt
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from edge.secure_sum import Participant
from edge.sum_messages import Agreed, Agreeing, Asked, KeysMessage, Neighbours, Opening, Seat, Shares
from privacy.agreement import quorum
from privacy.neighbours import MOST_NEIGHBOURS, threshold
from privacy.secret_sharing import PRIME, SHARE

FILE = Path(__file__).resolve().parents[2] / "edge-js" / "test" / "sums.json"
DEVICES, GONE, SIZE = 5, 5, 24
"""Devices of the sum, the one whose vector does not arrive, and values of a vector."""
ROUND, BUNDLE, SALT = 3, "ab" * 32, bytes(range(16))
COUNTS = (3, 5, 10, 99, 100, 101, 1000, 65536)


def draws(seed: int) -> Callable[[int], bytes]:
    """Bytes that are the same each time: sha256 of the seed and a number that counts, one behind the other."""
    kept, counted = bytearray(), 0

    def draw(count: int) -> bytes:
        nonlocal counted
        while len(kept) < count:
            kept.extend(hashlib.sha256(f"{seed} {counted}".encode()).digest())
            counted += 1
        found = bytes(kept[:count])
        del kept[:count]
        return found

    return draw


@contextmanager
def drawing(draw: Callable[[int], bytes]) -> Iterator[None]:
    """All that a device draws comes from `draw`."""

    def below(bound: int) -> int:
        assert bound == PRIME
        while True:
            content = draw(SHARE)
            found = int.from_bytes(bytes([content[0] & 1]) + content[1:])
            if found < bound:
                return found

    with (
        patch("edge.secure_sum.os", SimpleNamespace(urandom=draw)),
        patch("privacy.secret_sharing.secrets", SimpleNamespace(randbelow=below)),
        patch.object(Ed25519PrivateKey, "generate", lambda: Ed25519PrivateKey.from_private_bytes(draw(32))),
    ):
        yield


def vector(number: int) -> npt.NDArray[np.int32]:
    """Whole steps that reach both ends of 32 bits."""
    found = np.random.default_rng(number).integers(-(1 << 20), 1 << 20, SIZE, dtype=np.int32)
    found[number % SIZE], found[-number] = np.iinfo(np.int32).min, np.iinfo(np.int32).max
    return found


def dialogue() -> dict[str, Any]:
    """What all devices of a sum send and are told, as text, with one that goes away after its shares."""
    seats = {n: Seat(n, SALT) for n in range(1, DEVICES + 1)}
    drawn = {n: draws(n) for n in seats}
    parts: dict[int, Participant] = {}
    said: dict[int, dict[str, Any]] = {
        n: {"header": seat.header, "vector": vector(n).tolist()} for n, seat in seats.items()
    }
    for n, seat in seats.items():
        with drawing(drawn[n]):
            parts[n] = Participant(seat.session(BUNDLE, ROUND), n)
    keys = {n: part.keys for n, part in parts.items()}
    roster = {n: one.sign for n, one in keys.items()}
    shares: dict[int, dict[int, bytes]] = {}
    for n, part in parts.items():
        near = {other: one for other, one in keys.items() if other != n}
        told = Neighbours.of(threshold(len(near)), near, roster)
        with drawing(drawn[n]):
            shares[n] = part.share(told.near, told.signers, told.threshold)
        texts = (KeysMessage.of(part.keys), told, Shares.of(shares[n]))
        said[n] |= dict(zip(("keys", "neighbours", "shares"), (one.model_dump_json() for one in texts), strict=True))
    arrived = set(parts) - {GONE}
    for n in arrived:
        inbox = Shares.of({other: found[n] for other, found in shares.items() if other != n})
        masked = parts[n].masked(vector(n), inbox.contents)
        said[n] |= {"inbox": inbox.model_dump_json(), "masked": masked.tolist()}
    asked = Asked.of(set(parts), arrived)
    signatures = {n: parts[n].agree(set(asked.sent), set(asked.arrived)) for n in arrived}
    for n in arrived:
        revealed = Opening.of(parts[n].reveal(signatures)).model_dump_json()
        agreeing = Agreeing(signature=signatures[n].hex()).model_dump_json()
        said[n] |= {"agreeing": agreeing, "opening": revealed}
    agreed = Agreed.of(signatures).model_dump_json()
    return {"devices": said, "asked": asked.model_dump_json(), "agreed": agreed}


def content() -> str:
    """The file, as text."""
    return json.dumps(
        {
            "bundle": BUNDLE,
            "round": ROUND,
            "thresholds": [threshold(n) for n in range(1, MOST_NEIGHBOURS + 1)],
            "quorums": {n: quorum(n) for n in COUNTS},
            **dialogue(),
        },
        separators=(",", ":"),
    )


if __name__ == "__main__":
    FILE.write_text(content() + "\n", encoding="utf-8")
