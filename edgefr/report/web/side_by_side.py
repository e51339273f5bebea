"""Several runs on one page: their answers, curves, costs and privacy beside each other, and what they differ in."""

from __future__ import annotations

import math
import os
import shlex
from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from markupsafe import Markup

from edgefr.config.sheet import count
from edgefr.report.fleet import from_to, measured, short, typical
from edgefr.report.over_seeds import over_seeds
from edgefr.report.pages import Spread
from edgefr.report.small_groups import of_few
from edgefr.report.tables import seed_tables
from edgefr.report.verdict import NO, RANKINGS, YES, VerdictRow, every_verdict, ranked
from edgefr.report.web import costs, verdict
from edgefr.report.web import provenance as again
from edgefr.report.web.answers import BAD, GOOD, NEUTRAL, Answer, answers, capitals, number
from edgefr.report.web.chart import Axis, Chart, Point, Strip, line
from edgefr.report.web.curve import metric_of, points_of
from edgefr.report.web.facts import Facts, metrics_of
from edgefr.report.web.groups import RunGroup, groups_of, names_of, settings, spread
from edgefr.report.web.page import page
from edgefr.report.web.section import (
    ROOMY,
    Drawn,
    ReportTable,
    Section,
    SectionPart,
    chart,
    command,
    digests,
    folded,
    heading,
    sheet,
    text,
)
from edgefr.report.web.section import facts as told
from privacy.sentence import NOT_YET, nothing_yet

LEAD = "Several runs side by side: does learning help, on which devices, at which privacy, and at what cost?"
SETTINGS = "What do they differ in?"
OWN = (
    "Points are runs; of several seeds the larger one is their mean, with the standard deviation. The dashed line is "
    "the best baseline. Intervals compare one run with its own baselines, over users."
)
COLORS = 6
"""Colours of lines and groups; the next group has the first again."""
TESTED = Markup(
    "To test whether one run is better than another, run this in the folder that contains the runs: <code>{}</code>"
)
NOT_TESTED = "These runs have no seed in common, so they are not tested against each other."
UNLIKE = (
    "These runs differ in data, protocol or metric: their figures cannot be compared with each other, only with "
    "their own baselines."
)


def runs_page(every: Sequence[Facts]) -> str:
    """Return the page of several runs, in the order they are given; those that differ in their seed alone are one."""
    names, groups = names_of(every), groups_of(every)
    makers = (_seeds, _overview, _curves, _costs, _settings, _verdicts, _again)
    found = [maker(groups) for maker in makers]
    titles = list(dict.fromkeys(facts.title for facts in every))
    title = titles[0] if len(titles) == 1 else f"{count(len(every), 'run')}: {', '.join(titles[:3])}"
    head: dict[str, Any] = {"kind": "runs", "name": ", ".join(names), "lead": LEAD, "answers": _answers(every)}
    head["few"] = of_few(facts.summary for facts in every)
    return page(title, head, [one for one in found if one is not None])


def _answers(every: Sequence[Facts]) -> list[Answer]:
    """Return the answers of all runs together: in how many learning helped, and from where to where the rest goes."""
    helped = [any(one.helped for one in every_verdict(f.summary)[:1]) for f in every]
    words = f"In {sum(helped)} of {count(len(every), 'run')}"
    tone = GOOD if all(helped) else NEUTRAL if any(helped) else BAD
    out = [
        Answer(
            "Does learning help?",
            words,
            "Each run is compared with its own baselines, with an interval over users.",
            tone,
        )
    ]
    federated = [f.summary for f in every if f.federated]
    if not federated:
        return out
    epsilons = sorted(number(s["privacy"]["eps_guaranteed"]) for s in federated if not nothing_yet(s["privacy"]))
    ends = list(dict.fromkeys("∞" if math.isinf(e) else short(e) for e in (*epsilons[:1], *epsilons[-1:])))
    words = f"epsilon {' to '.join(ends)}" if ends else capitals(NOT_YET)
    out.append(Answer("At which privacy?", words, "The guarantee for a person; ∞ means no guarantee."))
    spent = [value for s in federated for value, unit in typical(s["fleet"]) if unit == "s"]
    if spent:
        out.append(Answer("At what cost?", f"{from_to(spent)} s", "Simulated cost of one round for a typical device."))
    return out


def _seeds(groups: Sequence[RunGroup]) -> Section | None:
    """Return mean and standard deviation, where the runs differ in their seed alone."""
    seeds = {summary["seed"] for summary in groups[0].summaries}
    if len(groups) > 1 or len(seeds) == 1:
        return None
    return Section.of("measures", "Over seeds", map(sheet, seed_tables(over_seeds(groups[0].summaries))))


def _overview(groups: Sequence[RunGroup]) -> Section:
    """Return what learning came to in each group, and what it cost at which privacy."""
    every = [facts for group in groups for facts in group.runs]
    found = [one for group in groups for one in group.verdicts]
    bests = [one.known[0].value for one in found if one.known]
    axis = Axis.over([*(one.value for one in found), *bests], most=4)
    alike = {(f.summary["data"], f.summary["protocol"]) for f in every}
    metrics = {(one.metric, one.ranking) for one in found}
    command = _compare(every)
    tested = NOT_TESTED if command is None else TESTED.format(command)
    learned = [_learned(group, axis, len(metrics) == 1) for group in groups]
    parts = [
        ReportTable("Runs side by side", learned, ("run", "learning helped?"), look=ROOMY).part,
        ReportTable("Privacy and costs side by side", list(map(_spent, groups)), ("run",)).part,
        None if len(alike) == 1 and len(metrics) <= 1 else text(UNLIKE, "warning"),
        text(Markup("{} {}").format(OWN, tested), "note"),
    ]
    return Section.of("overview", "Side by side", parts)


def _compare(every: Sequence[Facts]) -> str | None:
    """Return the command that compares the runs, as typed in the folder that holds them all.

    None where no two have a seed in common: then there is nothing that the same users and draws are asked by.
    """
    seeds = [facts.summary["seed"] for facts in every]
    if len(set(seeds)) == len(seeds):
        return None
    runs = {facts.path.resolve() for facts in every}
    paths = list(dict.fromkeys(_whole(facts.path.resolve(), runs) for facts in every))
    above = os.path.commonpath([path.parent for path in paths])
    return shlex.join(["edgefr", "compare", *(os.path.relpath(path, above) for path in paths)])


def _whole(run: Path, runs: Collection[Path]) -> Path:
    """Return the folder of a run with all its seeds, where all of them are among `runs`; else the run's own."""
    seeds = set(run.parent.glob("seed-*")) if run.name.startswith("seed-") else {run}
    return run.parent if len(seeds) > 1 and seeds <= set(runs) else run


def _learned(group: RunGroup, axis: Axis, one_metric: bool) -> dict[str, Any]:
    """Return the verdicts of a group's runs, what they reach, and how much better that is than the best baseline."""
    found, many = group.verdicts, len(group.runs) > 1
    bests = [one.known[0] for one in found if one.known]
    run = Markup('<span class="c{}">■</span> {}<br><span class="note">{}, {}</span>')
    helped = sum(one.answer == YES for one in found)
    words = (
        f"{'Yes' if helped else 'No'}, in {helped} of {len(group.runs)}"
        if many
        else answers(group.summaries[0])[0].words
    )
    style = YES if found and helped == len(group.runs) else NO if any(one.answer in (YES, NO) for one in found) else ""
    metric = ranked(found[0].metric, RANKINGS.get(found[0].ranking, found[0].ranking)) if found else ""
    reached = spread([one.value for one in found]) if found else "–"
    best = f"{bests[0].said} {spread([one.value for one in bests])}" if bests else "–"
    return {
        "run": run.format(group.color % COLORS, group.name, group.first.title, group.seeds),
        "learning helped?": Markup('<span class="{}">{}</span>').format(style, words),
        (metric if one_metric else "reaches"): reached if one_metric or not found else f"{metric} {reached}",
        "reached, drawn": Drawn(axis, _strip(group, axis), f"c{group.color % COLORS}", _rule(bests, axis)),
        "best baseline": best,
        "gain": (spread([one.difference for one in bests], "+") if many else str(bests[0])) if bests else "–",
    }


def _strip(group: RunGroup, axis: Axis) -> Strip | None:
    """Return the mean of a group on an axis, its deviation as a bar, and a point for every run."""
    found = group.verdicts
    if not found:
        return None
    over = Spread.of([one.value for one in found])
    low, high = (None, None) if over.number < 2 else (over.mean - over.sd, over.mean + over.sd)
    strip = axis.strip(over.mean, low, high, f"{group.name}: {spread([one.value for one in found])}")
    single = [] if strip is None or over.number < 2 else zip(group.names, found, strict=False)
    points = tuple((axis.place(one.value), f"{name}: {one.value:.4f}") for name, one in single)
    return strip and replace(strip, points=points)


def _rule(bests: Sequence[VerdictRow], axis: Axis) -> float | None:
    return axis.place(Spread.of([one.value for one in bests]).mean) if bests else None


def _spent(group: RunGroup) -> dict[str, str]:
    """Return the privacy of a group, and what a round cost, from the least of its runs to the most."""
    fleets = [s["fleet"] for s in group.summaries]
    spent = [{unit: value for value, unit in typical(fleet)} for fleet in fleets]

    def ends(unit: str) -> str:
        values = [one[unit] for one in spent if unit in one]
        return from_to(values) if values else "–"

    return {
        "run": group.name,
        "epsilon guaranteed": _first_last([_epsilon(s["privacy"]) for s in group.summaries]),
        "invitations that counted": _first_last([costs.share(f) if f else "–" for f in fleets]),
        "seconds of a round": ends("s"),
        "joules": ends("J"),
        "MB moved": ends("MB"),
    }


def _first_last(words: Sequence[str]) -> str:
    found = sorted(set(words))
    return " to ".join(dict.fromkeys((found[0], found[-1])))


def _epsilon(report: dict[str, Any]) -> str:
    if not report:
        return "–"
    if nothing_yet(report):
        return "nothing yet"
    value = number(report["eps_guaranteed"])
    return short(value) if math.isfinite(value) else "∞"


def _curves(groups: Sequence[RunGroup]) -> Section | None:
    """Return the learning curves in one figure, of runs with the metric of the first on the same items."""
    found = [(group, [_curve(facts) for facts in group.runs]) for group in groups]
    first = next((curve for _, own in found for curve in own if curve is not None), None)
    if first is None:
        return None
    metric, ranking, *_ = first
    shown = [
        (group, mean)
        for group, own in found
        if (mean := _mean([curve[3] for curve in own if curve is not None and curve[:3] == first[:3]]))
    ]
    x = Axis.over([number for _, mean in shown for number in mean], whole=True, tight=True)
    y = Axis.over([end for _, mean in shown for v in mean.values() for end in _ends(v)])
    lines = tuple(line(g.name, g.color, _points(g.name, metric, mean), x, y) for g, mean in shown)
    how = RANKINGS[ranking]
    about = f"{metric} on validation items ({how}) after each round that was measured"
    about += (
        "; of several seeds the mean, with the standard deviation" if any(len(g.runs) > 1 for g, _ in shown) else ""
    )
    left = sum(len(group.runs) for group in groups) - sum(len(group.runs) for group, _ in shown)
    drawn = chart(Chart(about, "round", ranked(metric, how), x, y, lines))
    note = text(f"Runs without such a curve are left out ({left}).", "note") if left else None
    return Section.of("curves", "Learning curves", [drawn, note])


def _mean(curves: Sequence[Sequence[dict[str, Any]]]) -> dict[int, Spread]:
    """Return what several curves come to at every round that all of them have."""
    by_round = [{row["round"]: row["value"] for row in rows} for rows in curves]
    common = [number for number in by_round[0] if all(number in one for one in by_round)] if by_round else []
    return {number: Spread.of([one[number] for one in by_round]) for number in common}


def _ends(value: Spread) -> tuple[float, float]:
    sd = 0.0 if math.isnan(value.sd) else value.sd
    return value.mean - sd, value.mean + sd


def _curve(facts: Facts) -> tuple[str, str, str, list[dict[str, Any]]] | None:
    """Return metric, ranking, protocol and points of a run's curve; None over blocks, and where none was measured."""
    if "continual" in facts.summary:
        return None
    rows = points_of(facts)
    if not rows:
        return None
    wanted = metric_of(facts, rows)
    rows = [row for row in metrics_of(rows, metric=wanted) if row["on"] == rows[0]["on"]]
    return wanted, rows[0]["ranking"], f"{facts.summary['data']}: {facts.summary['protocol']}", rows


def _points(name: str, metric: str, mean: dict[int, Spread]) -> list[Point]:
    return [
        Point(number, value.mean, f"{name}, round {number}: {metric} {value}", value.sd)
        for number, value in mean.items()
    ]


def _costs(groups: Sequence[RunGroup]) -> Section | None:
    """Return the median seconds and joules of a round, by device class and group: the mean over its runs."""
    fleets = [[s["fleet"].get("classes", {}) for s in group.summaries] for group in groups]
    classes = {name: row["label"] for own in fleets for fleet in own for name, row in fleet.items()}
    if not classes:
        return None
    rows = []
    for kind, label in classes.items():
        row = {"device class": label}
        for quantity, words in (("seconds", "seconds"), ("energy_j", "joules")):
            for group, own in zip(groups, fleets, strict=True):
                found = [one["p50"] for fleet in own if (one := measured(fleet.get(kind, {}), quantity)) is not None]
                row[f"{words} of a round, {group.name}"] = short(Spread.of(found).mean) if found else "–"
        rows.append(row)
    table = ReportTable("Medians by device class and run", rows, ("device class",)).part
    note = text("Simulated; the page of each run has the evidence grade of each figure.", "note")
    return Section.of("classes", "What do rounds cost the devices?", [table, note])


def _settings(groups: Sequence[RunGroup]) -> Section:
    """Return the settings in which the experiments differ, beside the seeds of a group."""
    found = _differences([group.first for group in groups])
    if not found:
        same = "In their seeds." if len(groups) == 1 else "In nothing: their experiments are the same."
        return Section.of("settings", SETTINGS, [text(same)])
    code, names = Markup("<code>{}</code>"), [group.name for group in groups]
    rows = [{"setting": code.format(field)} | dict(zip(names, values, strict=True)) for field, values in found]
    return Section.of("settings", SETTINGS, [ReportTable("Settings that differ", rows, ("setting", *names)).part])


def _differences(every: Sequence[Facts]) -> list[tuple[str, list[str]]]:
    """Return (field, its value in each run) of the fields that are not the same in all."""
    found = [settings(facts) for facts in every]
    fields = list(dict.fromkeys(field for one in found for field in one))
    rows = [(field, [one.get(field, "–") for one in found]) for field in fields]
    return [(field, values) for field, values in rows if len(set(values)) > 1]


def _verdicts(groups: Sequence[RunGroup]) -> Section | None:
    """Return the whole verdict of each run, folded."""
    shown = []
    for group in groups:
        for facts, name in zip(group.runs, group.names, strict=True):
            found = every_verdict(facts.summary)
            if found:
                several = len({one.split for one in found}) > 1
                shown.append(folded(f"{name}: {found[0].words}", verdict.beside(found[0], several)))
    return Section.of("verdicts", "Each run compared with its baselines", shown) if shown else None


def _again(groups: Sequence[RunGroup]) -> Section:
    """Return protocol, command and digests of each run, folded where a group has several."""
    found: list[SectionPart] = []
    for group in groups:
        found += [heading(group.name), text(group.first.summary["protocol"], "note")]
        for facts, name in zip(group.runs, group.names, strict=True):
            own = [command(again.command(facts)), heading("Digests (sha256)"), digests(facts.digests())]
            found += [folded(name, own)] if len(group.runs) > 1 else [own[0], folded("Digests (sha256)", own[2:])]
    found += [heading("Versions"), told(groups[0].first.summary["versions"].items())]
    return Section.of("commands", "How to reproduce these runs", found)
