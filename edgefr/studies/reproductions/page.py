"""A reproduction has one web page: published numbers beside ours, tests, pictures, and how every number was made."""

from __future__ import annotations

import base64
import io
import math
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from markupsafe import Markup

from edgefr.config.sheet import count
from edgefr.report.pages import Page, Record
from edgefr.report.web.answers import BAD, NEUTRAL, Answer
from edgefr.report.web.chart import Axis
from edgefr.report.web.page import page
from edgefr.report.web.section import (
    ROOMY,
    Drawn,
    ReportTable,
    Section,
    SectionPart,
    digests,
    folded,
    heading,
    image,
    listed,
    sheet,
    text,
)
from edgefr.report.web.section import command as code
from privacy.files import write_atomic

FILE = "report.html"
LEAD = "Tables and figures of a paper, run again: its numbers beside ours, with what tells them apart from chance."
DEFAULTS = {"seeds": 5, "fidelity": "released"}
"""Options of commands, which those of some papers lack, since there is nothing to choose."""
BESIDE = (
    "Ours: mean over seeds, as a bar the standard deviation. The dashed line is the published number, of which no "
    "deviation is known here."
)
AGAIN = Markup(
    "With the archives in the folder that <code>--data-dir</code> or <code>EDGEFR_DATA</code> names. Runs that are "
    "there already are not made again."
)
LABELS = ("method", "row", "model")
"""Columns of a record that name a row of a table; the other words say which table it is of."""


@dataclass(frozen=True)
class Reproduction:
    """This is one call: the paper's title, the command, its pages, how each was made, and what went wrong.

    `about` [pages]: lines on seeds, protocols, recipes and versions. `runs`: finished runs; `wanted`: all of them.
    """

    title: str
    command: str
    pages: Sequence[Page]
    about: Sequence[Sequence[str]]
    failures: Mapping[str, str]
    runs: int
    wanted: int


def write_reproduction(made: Reproduction, folder: Path) -> Path:
    """Write the page of a call into the folder of its tables."""
    sections = [_exhibit(*both) for both in zip(made.pages, made.about, strict=True)]
    head = {"kind": "reproduction", "name": made.title, "lead": LEAD, "answers": _answers(made)}
    return write_atomic(folder / FILE, page(f"{made.title}, run again", head, [*sections, _made(made)]))


def command(paper: str, exhibits: Sequence[str], options: Mapping[str, Any]) -> str:
    """Return the command of a call; options that are nothing, or what every command takes by itself, are left out.

    >>> command("f3crec", ["table-2", "figure-3"], {"data": ["ml-100k"], "seeds": 2, "fidelity": "released"})
    'edgefr reproduce f3crec --table 2 --figure 3 --data ml-100k --seeds 2'
    """
    words = ["edgefr", "reproduce", paper]
    for name in exhibits:
        kind, _, number = name.partition("-")
        words += [f"--{kind}", number]
    for name, value in ((name, value) for name, value in options.items() if DEFAULTS.get(name) != value):
        several = value if isinstance(value, list | tuple) else [] if value is None else [value]
        words += [word for one in several for word in (f"--{name}", str(one))]
    return shlex.join(words)


def _answers(made: Reproduction) -> list[Answer]:
    """Return how much was run, and on which side of the published numbers ours lie."""
    words = f"{made.runs:,} of {count(made.wanted, 'run')}" if made.wanted else "Nothing is trained"
    failed = f"{count(len(made.failures), 'run')} failed." if made.failures else "None failed."
    out = [Answer("What was run?", words, failed, BAD if made.failures else NEUTRAL)]
    beside = [record for one in made.pages for record in _printed(one.records)]
    changes = [100 * (r["mean"] / r["published"] - 1) for r in beside if r["published"]]
    if changes:
        lower = sum(change < 0 for change in changes)
        why = (
            f"Ours is lower in {lower}, the median difference is {median(changes):+.1f} %, from {min(changes):+.0f} % "
            f"to {max(changes):+.0f} %."
        )
        out.append(Answer("Beside the paper?", count(len(changes), "published number"), why))
    return out


def _exhibit(one: Page, about: Sequence[str]) -> Section:
    parts: list[SectionPart | None] = [listed(one.notes)]
    if pictures := _pictures(one.records):
        first, *others = pictures
        parts += [heading("Published numbers beside ours"), text(BESIDE, "note"), *first]
        more = [part for picture in others for part in picture]
        parts.append(folded(f"The same of other metrics and data ({len(others)})", more) if others else None)
    if one.figure is not None:
        buffer = io.BytesIO()
        one.figure.savefig(buffer, format="png", dpi=110, bbox_inches="tight", metadata={"Software": None})
        drawn = f"data:image/png;base64,{base64.b64encode(buffer.getvalue()).decode()}"
        parts.append(image(drawn, f"{one.title}; the numbers are in the tables below"))
    parts += [heading("Tables, with tests"), *map(sheet, one.sheets)]
    if protocols := _named(about, "protocol, "):
        parts += [heading("Protocol"), digests(protocols)]
    lines = [line for line in about if not line.startswith(("protocol, ", "recipe, ", "versions: "))]
    parts.append(listed(lines) if lines else None)
    if recipes := _named(about, "recipe, "):
        parts.append(folded(f"Recipes ({len(recipes)})", [digests(recipes)]))
    return Section.of(one.name, one.title, parts)


def _made(made: Reproduction) -> Section:
    failures = [Markup("<code>{}</code>: {}").format(*one) for one in made.failures.items()]
    versions = dict.fromkeys(line for lines in made.about for line in lines if line.startswith("versions: "))
    broken = [heading("What failed"), listed(failures)] if failures else []
    parts = [code(made.command), text(AGAIN, "note"), *broken, listed(versions)]
    return Section.of("made", "How to make it again?", parts)


def _named(about: Sequence[str], what: str) -> list[tuple[str, str]]:
    found = [line.removeprefix(what).partition(": ") for line in about if line.startswith(what)]
    return [(name, text) for name, _, text in found]


def _printed(records: Sequence[Record]) -> list[Record]:
    known = [r for r in records if _number(r.get("published")) and _number(r.get("mean"))]
    means = [record for record in known if record.get("on") == "mean"]
    return means or known


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)


def _pictures(records: Sequence[Record]) -> list[list[SectionPart | None]]:
    """Return a picture of every table and metric in which the paper prints a number."""
    groups: dict[str, list[Record]] = {}
    for record in _printed(records):
        words = [
            str(v) for k, v in record.items() if k not in LABELS and isinstance(v, str) and v not in ("all", "mean")
        ]
        groups.setdefault(", ".join(words), []).append(record)
    out = list[list[SectionPart | None]]()
    for title, own in groups.items():  # rows for one metric: ours with the deviation over seeds, and the published
        ends = [r["mean"] + sign * _sd(r) for r in own for sign in (-1, 1)]
        axis = Axis.over([*ends, *(r["published"] for r in own)], most=4)
        table = ReportTable(f"{title}, beside the paper", [_row(r, axis) for r in own], ("row",), look=ROOMY)
        out.append([text(Markup("<strong>{}</strong>").format(title), "says"), table.part])
    return out


def _row(record: Record, axis: Axis) -> dict[str, Any]:
    name = " ".join(str(record[key]) for key in LABELS if key in record) or "ours"
    mean, then, sd = float(record["mean"]), float(record["published"]), _sd(record)
    ours = f"{mean:.4f} ± {sd:.4f}" if sd else f"{mean:.4f}"
    low, high = (mean - sd, mean + sd) if sd else (None, None)
    strip = axis.strip(mean, low, high, f"{name}: {ours}, published {then:.4f}")
    return {
        "row": name,
        "ours": ours,
        "ours and the paper's, drawn": Drawn(axis, strip, rule=axis.place(then)),
        "published": f"{then:.4f}",
        "difference": f"{100 * (mean / then - 1):+.1f} %" if then else "–",
    }


def _sd(record: Record) -> float:
    value = record.get("sd")
    return float(value) if _number(value) and value is not None else 0.0
