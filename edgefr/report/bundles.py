"""These tables for the terminal say what a bundle is, and how two differ."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from edge.bundle import Bundle
from edge.manifest import File, Promise
from edge.policy import Policy
from edgefr.config.sheet import Sheet

UNPROTECTED = "unprotected: true"
"""What a policy needs without a guarantee."""


def sheets(bundle: Bundle, asked: bool = False) -> list[Sheet]:
    """Show what it is, its files, and its learning phases if it learns; `asked`: a trusted key had to sign it."""
    files = [
        {"file": entry.path, "role": entry.role, "bytes": f"{entry.size:,}", "sha256": entry.sha256[:12]}
        for entry in bundle.manifest.files
    ]
    out = [Sheet("bundle", _facts(bundle, asked), ["field", "value"]), Sheet("files", files, ["file", "role"])]
    return [*out, _phases(bundle)] if bundle.config.learning else out


def differences(one: Bundle, two: Bundle) -> list[Sheet]:
    """Show fields of the manifests and files that differ; nothing for the same bundle with the same signature."""
    records = [b.manifest.model_dump(mode="json", by_alias=True, exclude={"files"}) for b in (one, two)]
    signed = [{**record, "signed by": b.signed_by or "nobody"} for record, b in zip(records, (one, two), strict=True)]
    first, second = (dict(_plain("", record)) for record in signed)
    fields = [
        {"field": name, "first": first.get(name, "-"), "second": second.get(name, "-")}
        for name in [*first, *(n for n in second if n not in first)]
        if first.get(name) != second.get(name)
    ]
    listed = [{entry.path: entry for entry in b.manifest.files} for b in (one, two)]
    files = [_change(name, *(part.get(name) for part in listed)) for name in sorted({*listed[0], *listed[1]})]
    changed = [row for row in files if row["change"] != "same"]
    out = [Sheet("fields that differ", fields, words=["field", "first", "second"])] if fields else []
    return [*out, Sheet("files that differ", changed, words=["file", "role", "change"])] if changed else out


def signature_of(bundle: Bundle, asked: bool) -> str:
    """Say which key signed, and whether it is one that was `asked` for."""
    if bundle.signed_by is None:
        return "none"
    return f"by {bundle.signed_by}, " + (
        "a trusted key" if asked else "the key it brings; give --key for one you trust"
    )


def promise_of(promise: Promise | None) -> str:
    """Say what a bundle promises of each client's data.

    >>> promise_of(None)
    'no guarantee'
    """
    if promise is None:
        return "no guarantee"
    p = promise
    return (
        f"epsilon {p.epsilon:.4g} at delta {p.delta:g} after {p.rounds:,} rounds; {p.trust} trust, {p.adjacency}; "
        f"{p.mechanism}, {p.norm.upper()} clip {p.clip:.4g}, noise {p.multiplier:.4g} of the sensitivity, "
        f"sums of at least {p.cohort:,}"
    )


def size_of(bundle: Bundle) -> str:
    """Return the number of files and MB (10^6 bytes)."""
    files = bundle.manifest.files
    return f"{len(files)} files, {sum(entry.size for entry in files) / 1e6:,.2f} MB"


def by_default(rows: Sequence[Mapping[str, Any]]) -> str | None:
    """Say whether devices with the default policy release what a private run's bundles ask for, and what to set.

    `rows`: of `export_bundles`. None where they promise nothing of a client's data, or no device learns from them.

    >>> by_default([{"policy_needs": ["trust: central"]}])
    'devices release nothing by default: set trust: central in each policy.yaml, or privacy.trust=local'
    """
    needs = list(dict.fromkeys(key for row in rows for key in row.get("policy_needs") or ()))
    if all(row.get("policy_needs") is None for row in rows) or UNPROTECTED in needs:
        return None
    if not needs:
        return "devices release what they learn by default"
    local = ", or privacy.trust=local" if "trust: central" in needs else ""
    least = Policy().least_cohort
    wide = any(key.startswith("least_cohort") for key in needs)
    instead = f" (privacy.at_least={least} in place of least_cohort)" if wide else ""
    return f"devices release nothing by default: set {', '.join(needs)} in each policy.yaml{instead}{local}"


def _facts(bundle: Bundle, asked: bool) -> list[dict[str, str]]:
    m = bundle.manifest
    sizes = m.model
    expiry = "never" if m.expires is None else m.expires + (" (EXPIRED)" if m.expired(datetime.now(UTC)) else "")
    facts = {
        "class": m.device_class,
        "method": m.method,
        "variant": m.variant,
        "made": f"{m.created}, serial {m.serial}",
        "expires": expiry,
        "signature": signature_of(bundle, asked),
        "bundle id": m.bundle_id,
        "files": size_of(bundle),
        "memory": f"{sizes.memory_mb:,.0f} MB (estimate)",
        "graphs": f"opset {m.onnx.opset}, IR {m.onnx.ir}, onnxruntime {m.onnx.min_ort} or newer",
        "items": f"{m.item_count:,}",
        "parameters": f"{sizes.shared_parameters:,} shared, {sizes.private_parameters:,} private, "
        f"{sizes.encoder_parameters:,} of the encoder",
        "simulated users": f"{sizes.users:,}",
    }
    facts["privacy"] = promise_of(m.privacy)
    facts |= dict(_plain("from", m.provenance))
    return [{"field": name, "value": value} for name, value in facts.items()]


def _phases(bundle: Bundle) -> Sheet:
    learning = bundle.config.learning
    assert learning is not None
    rows = [
        {
            "phase": phase.name,
            "when": phase.when,
            "trains": ", ".join([*phase.dense, *(f"rows of {table}" for table in phase.tables)]),
            "optimiser": phase.optimiser,
            "epochs": f"{phase.epochs}",
            "learning rate": ", ".join(f"{rate:g}" for rate in dict.fromkeys(phase.lr.values())),
            "graph": phase.graph,
        }
        for phase in learning.phases
    ]
    caption = (
        f"batches of {learning.batch_size}, {learning.negatives} negatives per positive, after {learning.round} rounds"
    )
    return Sheet("learning", rows, words=["phase", "when", "trains", "optimiser", "graph"], caption=caption)


def _change(name: str, one: File | None, two: File | None) -> dict[str, str]:
    if one is None or two is None:
        change = "added" if one is None else "removed"
    else:
        change = "same" if one == two else "changed"
    present = two or one
    assert present is not None
    sizes = ["-" if entry is None else f"{entry.size:,}" for entry in (one, two)]
    return {"file": name, "change": change, "role": present.role, "bytes": sizes[0], "bytes now": sizes[1]}


def _plain(name: str, record: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield every value of a JSON tree with its dotted name, as text that a terminal can show."""
    for field, value in leaves(name, record):
        yield _shown(field), _shown(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))


def leaves(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Yield every value of a tree of mappings with its dotted name.

    >>> list(leaves("", {"a": {"b": 1}, "c": []}))
    [('a.b', 1), ('c', [])]
    """
    if isinstance(value, Mapping) and value:
        for key, inner in value.items():
            yield from leaves(f"{name}.{key}" if name else str(key), inner)
    else:
        yield name, value


def _shown(text: str) -> str:
    return "".join(c if c.isprintable() else "?" for c in text)
