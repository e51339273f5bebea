"""A trade-off has one web page, which a privacy officer can read: the answer first, then what it rests on."""

from __future__ import annotations

import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from markupsafe import Markup

from edgefr.config.sheet import Sheet, count
from edgefr.report.pages import Report, comma_separated
from edgefr.report.small_groups import of_few
from edgefr.report.web.answers import BAD, GOOD, Answer, capitals, cost
from edgefr.report.web.page import page
from edgefr.report.web.privacy import watchers
from edgefr.report.web.section import (
    ReportTable,
    Section,
    SectionPart,
    command,
    facts,
    folded,
    heading,
    listed,
    sheet,
    text,
    yes_no,
)
from edgefr.report.web.section import chart as drawn
from edgefr.studies.sweeps.page import command as command_of
from edgefr.studies.sweeps.report import about, run_record
from edgefr.studies.sweeps.results import RUNS, FinishedSweep
from edgefr.studies.tradeoffs.points import Tradeoff, TradeoffPoint, largest, tradeoffs
from edgefr.studies.tradeoffs.run import TradeoffSweep
from edgefr.studies.tradeoffs.words import (
    attack_rows,
    chart,
    chosen_rows,
    headline,
    meaning,
    notes,
    proved,
    protected,
    tradeoff_page,
    usable,
    utility_rows,
)
from privacy.files import write_atomic

LEAD = "What does privacy cost here, what does it promise to whom, and what did attackers reach?"
TUNED = (
    "Settings were searched at every epsilon with the same number of trials, on validation items alone: what is left "
    "between two points is what privacy costs, not what a bad setting costs."
)
LUCK = (
    "Shares are of pairs in which an attacker told the right one; a coin is right in 0.5, and luck ends where 95 of 100 "
    "coins end. Promised is the most that anybody could reach, whatever the attack. Attacks were made on one run of "
    "every point, with the settings that were chosen."
)


def write_files(made: TradeoffSweep) -> Report:
    """Make what is left of a trade-off, and write its files into its folder."""
    sweep = made.run()
    folder, found = sweep.folder, tradeoffs(sweep)
    records = [run_record(run, sweep) for run in sweep.entries]
    files = [write_atomic(folder / RUNS, comma_separated(records))]
    told = tradeoff_page(found, sweep)
    files += told.write(folder, about(sweep))
    files.append(write_tradeoff(folder))
    opened = [record | {"folder": str(folder / record["folder"])} for record in records]
    warnings = [f"{run} was not attacked: {why}" for run, why in made.unattacked.items()]
    return Report([told] if found else [], files, sweep.failures, warnings, opened)


def write_tradeoff(folder: Path, out: Path | None = None) -> Path:
    """Write the page of a trade-off that ended. Raises `InputError` for a folder that holds none."""
    return write_atomic(out or folder / "report.html", tradeoff_html(FinishedSweep.read(folder)))


def tradeoff_html(sweep: FinishedSweep) -> str:
    """Return the page of a trade-off."""
    found = tradeoffs(sweep)
    name = sweep.folder.resolve().name
    head: dict[str, Any] = {"kind": "sweep", "name": name, "lead": LEAD, "answers": _answers(found, sweep)}
    head["few"] = of_few(run.summary for run in sweep.speaking if run.summary is not None)
    made = _section(found, (_cost, _meaning, _attacked, _promised, _work), sweep)
    return page("What privacy costs", head, [*made, _made(sweep)])


def _section(found: list[Tradeoff], kinds: Iterable[Any], sweep: FinishedSweep) -> list[Section]:
    return [kind(found, sweep) for kind in kinds] if found else []


def _answers(found: list[Tradeoff], sweep: FinishedSweep) -> list[Answer]:
    points = [(one, point) for one in found for own in one.curves.values() if (point := largest(own)) is not None]
    if not points:
        return [Answer("Is it worth having?", "No run ended", "See below what failed.", BAD)]
    told = " ".join(headline(one, curve) for one in found for curve in one.curves)
    good = any(point.result.usable for _, point in points)
    words = f"{max(one.kept(point) for one, point in points):.0%} kept at epsilon {points[0][1].name}"
    level, first = protected(sweep), points[0][1]
    safe = [point for one in found for point in one.points if point.result.usable and math.isfinite(point.guaranteed)]
    from_ = f"From epsilon {min(point.guaranteed for point in safe):.3g} on" if safe else "No usable point"
    who = f"Protected is {level.protects}, against {first.report['adversary']}."
    return [
        Answer("What does privacy cost?", words, told, GOOD if good else BAD),
        Answer("From where is it usable?", from_, " ".join(map(usable, found)), GOOD if safe else BAD),
        Answer("To whom is it promised?", capitals(level.name), who),
        _worst(found),
    ]


def _worst(found: list[Tradeoff]) -> Answer:
    """Say whether any attack went beyond what was promised."""
    attacked = [point for one in found for point in one.points if point.attacks and math.isfinite(point.guaranteed)]
    if not attacked:
        return Answer("What did attackers reach?", "Not attacked", "No run with a guarantee was attacked.")
    over = [point for point in attacked if any(row.get("exceeds") for row in point.attacks.values())]
    if over:
        names = ", ".join(point.name for point in over)
        return Answer("What did attackers reach?", "More than promised", f"At epsilon {names}: see below.", BAD)
    why = "; ".join(f"epsilon {point.name}: proved {proved(point)}" for point in attacked)
    return Answer("What did attackers reach?", "No more than promised", f"{capitals(why)}.", GOOD)


def _cost(found: list[Tradeoff], sweep: FinishedSweep) -> Section:
    parts = list[SectionPart | None]()
    for one in found:
        parts += [text(f"{' '.join(headline(one, curve) for curve in one.curves)} {usable(one)}", "big")]
        parts += [drawn(chart(one)), sheet(Sheet(one.group.title, utility_rows(one), ("epsilon", "curve")), "")]
    given = any(one.given for one in found)
    beside = " Points “as given” have the experiment's own settings, which were not tuned." if given else ""
    return Section.of("cost", "What does privacy cost?", [*parts, text(TUNED + beside, "note")])


def _meaning(found: list[Tradeoff], sweep: FinishedSweep) -> Section:
    rows = [{"epsilon": p.name, "what it means, at worst": meaning(p)} for one in found for p in _by_epsilon(one)]
    table = ReportTable("What each epsilon means", rows, ("epsilon", "what it means, at worst")).part
    return Section.of("meaning", "What does an epsilon mean?", [table, text(_rare(found), "note")])


def _rare(found: list[Tradeoff]) -> str:
    delta = found[0].points[0].report["delta"]
    return f"Rare outcomes may tell more; delta, {delta:g}, limits by how much. An attacker who knows less learns less."


def _by_epsilon(found: Tradeoff) -> list[TradeoffPoint]:
    return list({point.epsilon: point for point in found.points}.values())


def _attacked(found: list[Tradeoff], sweep: FinishedSweep) -> Section:
    tables = [sheet(Sheet(one.group.title, attack_rows(one), ("epsilon", "curve")), "") for one in found]
    return Section.of("attacks", "What did attackers reach, beside what is promised?", [*tables, text(LUCK, "note")])


def _promised(found: list[Tradeoff], sweep: FinishedSweep) -> Section:
    level = protected(sweep)
    first = next((largest(own) for one in found for own in one.curves.values()), None)
    if first is None:
        return Section.of("promise", "What was promised to whom?", [text("Nothing: no point has noise.")])
    told = first.report
    rows = [
        ("level", f"{level.name}: {level.protects}"),
        ("trust", "every device noises its own upload" if told.get("trust") == "local" else _trusted(told)),
        ("adjacency", str(told["adjacency"])),
        ("delta", f"{told['delta']:g}"),
        ("against", str(told["adversary"])),
    ]
    watching = [] if first.interaction else watchers(math.isfinite(first.guaranteed), told)
    who = [{"from": name, "protected?": yes_no(safe), "why": why} for name, safe, why in watching]
    parts = [
        facts(rows),
        ReportTable("Who is protected from whom", who, ("from", "protected?", "why")).part,
        heading("What is not covered"),
        listed(told["not_covered"]),
    ]
    return Section.of("promise", "What was promised to whom?", parts)


def _trusted(told: dict[str, Any]) -> str:
    if "trust" not in told:
        return "the device adds the noise, and the server sees each upload"
    return "the server is trusted to add noise to the sum of all uploads"


def _work(found: list[Tradeoff], sweep: FinishedSweep) -> Section:
    parts = list[SectionPart | None]()
    for one in found:
        parts.append(sheet(Sheet("What was chosen", chosen_rows(one), ("epsilon", "curve")), ""))
        if (point := largest(list(one.points))) is not None:
            spent = cost(point.result.summaries()[0]["fleet"])
            parts.append(text(f"On a device, at epsilon {point.name}: {spent.words}. {spent.why}"))
            parts.append(text(f"{capitals(str(point.price))}.") if point.price is not None else None)
    return Section.of("work", "What would it cost to run, and to tune?", parts)


def _made(sweep: FinishedSweep) -> Section:
    failures = [Markup("<code>{}</code>: {}").format(*one) for one in sweep.failures.items()]
    found = tradeoffs(sweep)
    parts = [
        command(command_of(sweep.record)),
        text(f"{count(len(sweep.entries), 'run')}, beside the trials, with the data where they were.", "note"),
        *([heading("What failed"), listed(failures)] if failures else []),
        folded("How the numbers were made", [listed([*about(sweep), *(n for one in found for n in notes(one, sweep))])]),
    ]
    return Section.of("made", "How was this made, and how to make it again?", parts)

