"""This section says how a run was made: its protocol, data, versions, digests, and the command that makes it again."""

from __future__ import annotations

import shlex
from typing import Any

from edgefr.data.datasets import GIVEN
from edgefr.report.tables import engine_line
from edgefr.report.web.facts import Facts
from edgefr.report.web.section import Section


def section(facts: Facts) -> Section:
    """Return the section, which every run has."""
    s = facts.summary
    source = s["dataset"].get("source") or {}
    return Section(
        "again",
        "How was this made, and how to make it again?",
        {
            "command": command(facts),
            "keyed": (facts.path / "private" / "noise.key").exists(),
            "given": s["data"] == GIVEN,
            "generated": source.get("archive") == "generated",
            "protocol": [part.strip() for part in s["protocol"].split(";")],
            "data": _data(s, source),
            "settings": _settings(s),
            "engine": engine_line(s),
            "versions": s["versions"],
            "digests": facts.digests(),
            "experiment": facts.experiment,
            "name": facts.name,
        },
    )


def command(facts: Facts) -> str:
    """Return the command that makes the run again, as typed in the folder that holds the run's."""
    folder = facts.name
    words = ["edgefr", "simulate", "--experiment", f"{folder}/experiment.yaml", "--devices", f"{folder}/devices.yaml"]
    if (facts.path / "private" / "noise.key").exists():
        words += ["--noise-key", f"{folder}/private/noise.key"]
    return shlex.join([*words, "--out", f"{folder}-again"])


def _settings(s: dict[str, Any]) -> list[tuple[str, str]]:
    """Return what the run is, in a few words each."""
    names = ("experiment", "method", "backbone", "strategy", "fidelity", "data", "rounds", "seed")
    return [(name, f"{s[name]}") for name in names if s.get(name) is not None]


def _data(s: dict[str, Any], source: dict[str, Any]) -> list[tuple[str, str]]:
    """Return sizes and source of the data set."""
    d = s["dataset"]
    sizes = [(name, f"{d[name]:,}") for name in ("users", "items", "interactions") if name in d]
    told = [(name, str(source[name])) for name in ("archive", "licence", "sha256", "notes") if source.get(name)]
    return [*sizes, *told]
