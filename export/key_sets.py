"""A publisher's sets of keys are written and signed here; devices follow them (`edge.keys`)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from edge.keys import SCHEMA, KeyChain, KeySet, Link
from edge.signature import Signature, load_public
from export.sign import load_private, signature_of
from privacy.errors import InputError
from privacy.files import write_atomic


def add_set(path: str | Path, keys: Sequence[str | Path], threshold: int) -> KeySet:
    """Add a set of public keys (PEM files) to the file of a publisher's keys, made when it is not there; the set.

    Nobody has signed it yet (`sign_set`). Raises `InputError` for keys that are none, and a set that cannot be met.
    """
    links = KeyChain.read(path).links if Path(path).exists() else []
    before = links[-1].set if links else None
    try:
        made = KeySet(
            version=1 if before is None else before.version + 1,
            threshold=threshold,
            keys=[load_public(key).public_bytes_raw().hex() for key in keys],
            before=None if before is None else before.digest,
        )
    except InputError:
        raise
    except ValueError as error:
        raise InputError(
            f"{len(keys)} keys, of which {threshold} sign, are no set; give each once, and fewer"
        ) from error
    _write(path, [*links, Link(set=made, signatures=[])])
    return made


def sign_set(path: str | Path, key: str | Path) -> str:
    """Sign the newest set of a file with a private key (PEM); a line of what it has and what it lacks.

    Raises `InputError` for a file that is none.
    """
    links = KeyChain.read(path).links
    last, private = links[-1], load_private(key)
    made = Signature.model_validate_json(signature_of("keys", last.set.content, private))
    others = [signature for signature in last.signatures if signature.public != made.public]
    signed = Link(set=last.set, signatures=[*others, made])
    _write(path, [*links[:-1], signed])
    lines = [f"{signed.signed_by(last.set.ids)} of {last.set.threshold} of its own"]
    if len(links) > 1:
        before = links[-2].set
        lines.append(f"{signed.signed_by(before.ids)} of {before.threshold} of set {before.version}")
    return f"set {last.set.version} is signed by " + " and ".join(lines)


def _write(path: str | Path, links: list[Link]) -> None:
    chain = KeyChain(schema_=SCHEMA, links=links)
    write_atomic(path, chain.model_dump_json(by_alias=True, indent=2) + "\n")
