"""Some settings have a short name, and noise may be asked for by an epsilon alone; the rest of it is chosen here."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

SHORT = {"epsilon": "privacy.epsilon", "clip": "privacy.clip"}
"""Fields of sections that have a name of their own, in the command line and in Python."""
CLIP = 1.0
"""The clip where an epsilon is given and no clip; by `server_lr=auto` the longest step is the same under any."""


def field_of(name: str) -> str:
    """Return the dotted field that a name stands for.

    >>> field_of("epsilon"), field_of("rounds")
    ('privacy.epsilon', 'rounds')
    """
    return SHORT.get(name, name)


def noise_for(named: Mapping[str, Any], values: Mapping[str, Any], asked: Collection[str]) -> dict[str, Any]:
    """Return by field what a named epsilon needs beside it and an experiment's values leave open; without one, nothing.

    That is Gaussian noise on clipped updates, and a server's rate that goes with the clip. Fields in `asked` are kept.

    >>> noise_for({"privacy.epsilon": 8.0}, {"privacy": {"clip": 0.5}}, ())
    {'privacy.mechanism': 'gaussian', 'aggregation.server_lr': 'auto'}
    """
    if "privacy.epsilon" not in named:
        return {}
    privacy, server = (values.get(section) or {} for section in ("privacy", "aggregation"))
    if not isinstance(privacy, Mapping) or not isinstance(server, Mapping):
        return {}  # which is refused when they are validated
    chosen: dict[str, Any] = {}
    if privacy.get("mechanism", "none") == "none":
        chosen["privacy.mechanism"] = "gaussian"
    if privacy.get("clip") is None:
        chosen["privacy.clip"] = CLIP
    steps = (server.get("rule", "mean"), server.get("optimiser", "sgd")) == ("mean", "sgd")
    if steps and "server_lr" not in server:
        chosen["aggregation.server_lr"] = "auto"
    return {field: value for field, value in chosen.items() if field not in asked}
