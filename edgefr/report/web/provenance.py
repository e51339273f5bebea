"""This section says how a run was made: its protocol, data, versions, digests, and the command that makes it again."""

from __future__ import annotations

import shlex
from typing import Any

from markupsafe import Markup

from edgefr.data.datasets import GIVEN
from edgefr.report.tables import engine_line
from edgefr.report.web import section as parts
from edgefr.report.web.facts import Facts
from edgefr.report.web.section import Section, SectionPart, heading, text

IN_PYTHON = Markup(
    "The data set was passed in from Python, so repeat the run there: <code>edgefr.simulate("
    'edgefr.load_experiment("{0}/experiment.yaml"), "{0}/devices.yaml", data=...)</code>'
)
WITH_DATA = Markup(
    ", with the data set's archive or file in its old place (<code>--data-dir</code> names the folder of archives)"
)
UNLEARNED = (
    "This run excludes users who left later. The data set's file still has them, so repeating the experiment on "
    "that file gives another run. edgefr forget --unlearn made this one."
)
KEYED = (
    "The key of the simulated noise is in the run's private folder, not in this page. Without the key, the run draws "
    "other noise."
)


SETTINGS = ("experiment", "method", "backbone", "strategy", "fidelity", "data", "rounds", "seed")


def section(facts: Facts) -> Section:
    """Return the section, which every run has."""
    s = facts.summary
    source = s["dataset"].get("source") or {}
    found = [
        *_again(facts, generated=source.get("archive") == "generated"),
        text(KEYED, "note") if _key(facts) else None,
        parts.facts((name, f"{s[name]}") for name in SETTINGS if s.get(name) is not None),
        heading("Protocol"),
        parts.listed(part.strip() for part in s["protocol"].split(";")),
        heading("Data"),
        parts.facts(_data(s, source)),
        heading("Work"),
        text(engine_line(s)),
        heading("Versions"),
        parts.facts(s["versions"].items()),
        heading("Digests (sha256)"),
        parts.digests(facts.digests()),
        parts.folded("The whole experiment, with every default", [SectionPart("command", facts.experiment, "plain")]),
    ]
    return Section.of("again", "How to reproduce this run", found)


def _again(facts: Facts, generated: bool) -> list[SectionPart]:
    if facts.summary["data"] == GIVEN:
        return [text(IN_PYTHON.format(facts.name))]
    if (facts.path / "private" / "population.json").exists():
        return [text(UNLEARNED)]
    where = Markup("In the folder that contains <code>{}</code>{}:").format(facts.name, "" if generated else WITH_DATA)
    return [text(where), parts.command(command(facts))]


def _key(facts: Facts) -> bool:
    return (facts.path / "private" / "noise.key").exists()


def command(facts: Facts) -> str:
    """Return the command that makes the run again, as typed in the folder that holds the run's."""
    folder = facts.name
    words = ["edgefr", "simulate", "--experiment", f"{folder}/experiment.yaml", "--devices", f"{folder}/devices.yaml"]
    if _key(facts):
        words += ["--noise-key", f"{folder}/private/noise.key"]
    return shlex.join([*words, "--out", f"{folder}-again"])


def _data(s: dict[str, Any], source: dict[str, Any]) -> list[tuple[str, str]]:
    """Return sizes and source of the data set."""
    d = s["dataset"]
    sizes = [(name, f"{d[name]:,}") for name in ("users", "items", "interactions") if name in d]
    told = [(name, str(source[name])) for name in ("archive", "licence", "sha256", "notes") if source.get(name)]
    return [*sizes, *told]
