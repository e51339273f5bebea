"""Several runs on one page: their answers, curves, costs and privacy beside each other, and what they differ in."""

from __future__ import annotations

import math
import os
import shlex
from collections.abc import Sequence
from typing import Any

import yaml
from markupsafe import Markup

from edgefr.config.sheet import count
from edgefr.report.bundles import leaves
from edgefr.report.fleet import from_to, measured, short, typical
from edgefr.report.over_seeds import over_seeds
from edgefr.report.small_groups import of_few
from edgefr.report.tables import seed_tables
from edgefr.report.verdict import NO, RANKINGS, YES, Verdict, every_verdict, ranked
from edgefr.report.web import costs, verdict
from edgefr.report.web import provenance as again
from edgefr.report.web.answers import BAD, GOOD, NEUTRAL, Answer, answers, capitals, number
from edgefr.report.web.chart import Axis, Chart, Point, line
from edgefr.report.web.curve import metric_of, points_of
from edgefr.report.web.facts import Facts, metrics_of
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
OWN = "Each interval compares one run with its own baselines, over users."
TESTED = Markup(
    "To test whether one run is better than another, run this in the folder that contains the runs: <code>{}</code>"
)
NOT_TESTED = "These runs have no seed in common, so they are not tested against each other."
UNLIKE = (
    "These runs differ in data, protocol or metric: their figures cannot be compared with each other, only with "
    "their own baselines."
)


def runs_page(every: Sequence[Facts]) -> str:
    """Return the page of several runs, in the order they are given."""
    names = _names(every)
    makers = (_seeds, _overview, _curves, _costs, _settings, _verdicts, _again)
    found = [maker(every, names) for maker in makers]
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


def _names(every: Sequence[Facts]) -> list[str]:
    """Return names that tell the runs apart: of their folders, with the folders above where these are the same."""
    depth = 1
    while depth < 6:
        names = ["/".join(facts.path.resolve().parts[-depth:]) for facts in every]
        if len(set(names)) == len(names):
            return names
        depth += 1
    return [f"{name} ({place})" for place, name in enumerate(names, 1)]


def _seeds(every: Sequence[Facts], names: Sequence[str]) -> Section | None:
    """Return mean and standard deviation, where the runs differ in their seed alone."""
    differing = {field for field, _ in _differences(every)}
    if differing != {"seed"}:
        return None
    return Section.of("measures", "Over seeds", map(sheet, seed_tables(over_seeds([f.summary for f in every]))))


def _overview(every: Sequence[Facts], names: Sequence[str]) -> Section:
    """Return what learning came to in each run, and what it cost at which privacy."""
    found = [next(iter(every_verdict(facts.summary)), None) for facts in every]
    bests = [one.known[0] for one in found if one is not None and one.known]
    axis = Axis.over([end for row in bests for end in (row.low, row.high) if end is not None], most=4)
    learned = [_learned(facts, name, one, axis) for facts, name, one in zip(every, names, found, strict=True)]
    spent = [_spent(facts.summary, name) for facts, name in zip(every, names, strict=True)]
    alike = {(f.summary["data"], f.summary["protocol"]) for f in every}
    metrics = {(one.metric, one.ranking) for one in found if one is not None}
    command = _compare(every)
    tested = NOT_TESTED if command is None else TESTED.format(command)
    parts = [
        ReportTable("Runs side by side", learned, ("run", "learning helped?"), look=ROOMY).part,
        ReportTable("Privacy and costs side by side", spent, ("run",)).part,
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
    paths = [facts.path.resolve() for facts in every]
    above = os.path.commonpath([path.parent for path in paths])
    return shlex.join(["edgefr", "compare", *(os.path.relpath(path, above) for path in paths)])


def _learned(facts: Facts, name: str, found: Verdict | None, axis: Axis) -> dict[str, Any]:
    """Return a run's verdict, and how much better it is than the best without learning."""
    best = found.known[0] if found is not None and found.known else None
    run = Markup('{}<br><span class="note">{}, seed {}</span>').format(name, facts.title, facts.summary["seed"])
    answer = "unknown" if found is None else found.answer
    style = answer if answer in (YES, NO) else ""
    strip = None if best is None else axis.strip(best.difference, best.low, best.high, f"{name}: {best}")
    return {
        "run": run,
        "learning helped?": Markup('<span class="{}">{}</span>').format(style, answers(facts.summary)[0].words),
        "reaches": "–" if found is None else found.reached,
        "best baseline": "–" if best is None else f"{best.said} {best.value:.4f}",
        "difference, drawn": Drawn(axis, strip, "good" if answer == YES else "bad"),
        "gain [interval]": "–" if best is None else f"{best}",
    }


def _spent(s: dict[str, Any], name: str) -> dict[str, str]:
    """Return the privacy of a run, and what a round cost."""
    fleet = s["fleet"]
    spent = {unit: short(value) for value, unit in typical(fleet)}
    return {
        "run": name,
        "epsilon guaranteed": _epsilon(s["privacy"]),
        "invitations that counted": costs.share(fleet) if fleet else "–",
        "seconds of a round": spent.get("s", "–"),
        "joules": spent.get("J", "–"),
        "MB moved": spent.get("MB", "–"),
    }


def _epsilon(report: dict[str, Any]) -> str:
    if not report:
        return "–"
    if nothing_yet(report):
        return "nothing yet"
    value = number(report["eps_guaranteed"])
    return short(value) if math.isfinite(value) else "∞"


def _curves(every: Sequence[Facts], names: Sequence[str]) -> Section | None:
    """Return the learning curves in one figure, of runs with the metric of the first on the same items."""
    found = [_curve(facts) for facts in every]
    first = next((curve for curve in found if curve is not None), None)
    if first is None:
        return None
    metric, ranking, *_ = first
    shown = [
        (name, place, curve[3])
        for place, (name, curve) in enumerate(zip(names, found, strict=True))
        if curve is not None and curve[:3] == first[:3]
    ]
    x = Axis.over([row["round"] for *_, rows in shown for row in rows], whole=True, tight=True)
    y = Axis.over([row["value"] for *_, rows in shown for row in rows])
    lines = tuple(line(name, place, _points(name, metric, rows), x, y) for name, place, rows in shown)
    how = RANKINGS[ranking]
    about = f"{metric} on validation items ({how}) after each round that was measured"
    left = len(every) - len(shown)
    drawn = chart(Chart(about, "round", ranked(metric, how), x, y, lines))
    note = text(f"Runs without such a curve are left out ({left}).", "note") if left else None
    return Section.of("curves", "Learning curves", [drawn, note])


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


def _points(name: str, metric: str, rows: Sequence[dict[str, Any]]) -> list[Point]:
    return [
        Point(row["round"], row["value"], f"{name}, round {row['round']}: {metric} {row['value']:.4f}") for row in rows
    ]


def _costs(every: Sequence[Facts], names: Sequence[str]) -> Section | None:
    """Return the median seconds and joules of a round, by device class and run."""
    fleets = [facts.summary["fleet"] for facts in every]
    classes = {n: row["label"] for fleet in fleets for n, row in fleet.get("classes", {}).items()}
    if not classes:
        return None
    rows = []
    for kind, label in classes.items():
        row = {"device class": label}
        for quantity, words in (("seconds", "seconds"), ("energy_j", "joules")):
            for name, fleet in zip(names, fleets, strict=True):
                found = measured(fleet.get("classes", {}).get(kind, {}), quantity)
                row[f"{words} of a round, {name}"] = "–" if found is None else short(found["p50"])
        rows.append(row)
    table = ReportTable("Medians by device class and run", rows, ("device class",)).part
    note = text("Simulated; the page of each run has the evidence grade of each figure.", "note")
    return Section.of("classes", "What do rounds cost the devices?", [table, note])


def _settings(every: Sequence[Facts], names: Sequence[str]) -> Section:
    """Return the settings in which the experiments differ."""
    found = _differences(every)
    if not found:
        return Section.of("settings", SETTINGS, [text("In nothing: their experiments are the same.")])
    code = Markup("<code>{}</code>")
    rows = [{"setting": code.format(field)} | dict(zip(names, values, strict=True)) for field, values in found]
    return Section.of("settings", SETTINGS, [ReportTable("Settings that differ", rows, ("setting", *names)).part])


def _differences(every: Sequence[Facts]) -> list[tuple[str, list[str]]]:
    """Return (field, its value in each run) of the fields that are not the same in all."""
    found = [{f: _text(v) for f, v in leaves("", yaml.safe_load(facts.experiment))} for facts in every]
    fields = list(dict.fromkeys(field for one in found for field in one))
    rows = [(field, [one.get(field, "–") for one in found]) for field in fields]
    return [(field, values) for field, values in rows if len(set(values)) > 1]


def _text(value: Any) -> str:
    return "none" if value is None else f"{value:g}" if isinstance(value, float) else str(value)


def _verdicts(every: Sequence[Facts], names: Sequence[str]) -> Section | None:
    """Return the whole verdict of each run, folded."""
    shown = []
    for facts, name in zip(every, names, strict=True):
        found = every_verdict(facts.summary)
        if found:
            several = len({one.split for one in found}) > 1
            shown.append(folded(f"{name}: {found[0].words}", verdict.beside(found[0], several)))
    return Section.of("verdicts", "Each run compared with its baselines", shown) if shown else None


def _again(every: Sequence[Facts], names: Sequence[str]) -> Section:
    """Return protocol, command and digests of each run."""
    found: list[SectionPart] = []
    for facts, name in zip(every, names, strict=True):
        found += [heading(name), command(again.command(facts)), text(facts.summary["protocol"], "note")]
        found.append(folded("Digests (sha256)", [digests(facts.digests())]))
    found += [heading("Versions"), told(every[0].summary["versions"].items())]
    return Section.of("commands", "How to reproduce these runs", found)
