"""This says in one sentence what hostile clients came to, for screens and pages alike."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def attack_metrics(summary: Mapping[str, Any]) -> dict[str, float]:
    """Return the figures of an attack by name, honest users' own metrics among them; none where nobody was to."""
    found = summary.get("attack", {"honest": {}})
    own = {f"honest {name}": value for name, value in found["honest"].items()}
    return {name: found[name] for name in found if name.startswith(("ER@", "rank"))} | own


def attacked(summary: Mapping[str, Any]) -> str | None:
    """Say who attacked, how often honest users are shown the target, and what they find; None where nobody was to."""
    if "attack" not in summary:
        return None
    found = summary["attack"]
    beyond = ", at any length" if found["beyond"] else ""
    who = f"{found['attackers']:,} of {found['clients']:,} clients by {found['kind']}{beyond}"
    if not found["users"]:
        return f"{who}: no honest user is left to measure item {found['target']} on"
    shown = ", ".join(f"top {n.removeprefix('ER@')} of {v:.1%}" for n, v in found.items() if n.startswith("ER@"))
    told = f"item {found['target']} (had by {found['known_by']}) is in the {shown} of {found['users']:,} honest users"
    own = ", ".join(f"{name} {value:.4f}" for name, value in found["honest"].items() if name.startswith("NDCG"))
    return f"{who}: {told}, median rank {found['rank']:,.0f}; their own {own} (full ranking)"
