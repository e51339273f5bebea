"""A trade-off is told on the screen, in files, and on one web page that a privacy officer can read."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from markupsafe import Markup

from edgefr.config.sheet import Sheet, count
from edgefr.report.figures import drawn as draw
from edgefr.report.pages import Page, Report, comma_separated
from edgefr.report.small_groups import of_few
from edgefr.report.verdict import ranked
from edgefr.report.web import section as parts
from edgefr.report.web.answers import BAD, GOOD, Answer, capitals, cost
from edgefr.report.web.chart import Axis, Chart, Point, levels, line, short
from edgefr.report.web.page import page
from edgefr.report.web.privacy import in_words, sure, unit, watchers
from edgefr.report.web.section import ReportTable, Section
from edgefr.studies.sweeps.page import command
from edgefr.studies.sweeps.report import about, point_record, run_record, short_value
from edgefr.studies.sweeps.results import INTERACTION, RUNS, USER, FinishedSweep
from edgefr.studies.sweeps.tradeoff import NOTHING, Scale, epsilon_said
from edgefr.studies.tradeoffs.points import ITEMS, Tradeoff, TradeoffPoint, tradeoff_of
from edgefr.studies.tradeoffs.run import TradeoffSweep
from privacy.files import write_atomic

LEAD = "What does privacy cost here, what does the guarantee cover, and what did attackers achieve?"
PROTECTS = {
    USER: "all updates of a person in all rounds",
    INTERACTION: "one interaction of a person, not all of them",
}
TUNED = (
    "Settings were searched at every epsilon with the same number of trials, on validation items alone. Few trials "
    "come near the best and not to it, so neighbours may change places. At infinity updates are clipped as noise would "
    "need it: what lies between it and “not private” is the price of the clip."
)
RIGHT = (
    "attackers are right in this share of pairs, of the most that anybody could reach as promised; a coin is right in "
    "0.50, and * is more than luck reaches in 95 of 100 cases; one run of every point was attacked"
)
MISSING, WORDS = "–", ("epsilon", "best without\nlearning")


def write_files(made: TradeoffSweep) -> Report:
    """Make what is left of a trade-off, and write its files into its folder."""
    sweep = made.run()
    folder, found = sweep.folder, None if not sweep.speaking else tradeoff_of(sweep)
    records = [run_record(run, sweep) for run in sweep.entries]
    files, pages = [write_atomic(folder / RUNS, comma_separated(records))], list[Page]()
    if found is not None:
        pages.append(_tables(found, sweep))
        files += pages[0].write(folder, about(sweep))
    files.append(write_tradeoff(folder))
    opened = [record | {"folder": str(folder / record["folder"])} for record in records]
    warnings = [f"{run} was not attacked: {why}" for run, why in made.unattacked.items()]
    return Report(pages, files, sweep.failures, warnings, opened)


def write_tradeoff(folder: Path, out: Path | None = None) -> Path:
    """Write the page of a trade-off that ended. Raises `InputError` for a folder that holds none."""
    sweep = FinishedSweep.read(folder)
    found = tradeoff_of(sweep)
    head: dict[str, Any] = {"kind": "sweep", "name": folder.resolve().name, "lead": LEAD, "answers": []}
    head["few"] = of_few(run.summary for run in sweep.speaking if run.summary is not None)
    sections = [_made(sweep)]
    if found is not None:
        head["answers"] = _answers(found, sweep)
        sections = [_costs(found), _attacked(found), *_promised(found, sweep), _work(found), *sections]
    return write_atomic(out or folder / "report.html", page("What privacy costs", head, sections))


def headline(found: Tradeoff) -> str:
    """Say what the largest epsilon keeps, whether it beats what needs no learning, and from where on any does."""
    point, best, metric = found.largest, found.best, found.group.metric
    if point is None or best is None:
        return "No point with noise came to an end."
    reference, runs, helped = point.result.best_reference(metric), len(point.result.entries), point.result.helped
    how = "is" if point.result.usable else f"is in {helped} of {runs} runs" if helped else "is not"
    beside = "" if reference is None else f", and {how} clearly better than {reference[0]} ({reference[1]:.4f})"
    return (
        f"At epsilon {point.name}, {point.result.summaries()[0]['method']} keeps {found.kept(point):.0%} of the "
        f"{ranked(metric, found.group.ranking)} of its best without noise ({point.value(metric):.4f} of "
        f"{best.value(metric):.4f}){beside}. {usable(found)}"
    )


def usable(found: Tradeoff) -> str:
    """Say from which guaranteed epsilon on learning helped in every run of a tuned point."""
    worth = [point.guaranteed for point in found.points if point.result.usable]
    if not worth:
        return f"There is {NOTHING}, after tuning: learning did not help with every seed at any point."
    if math.isinf(min(worth)):
        return f"There is {NOTHING} with a guarantee, after tuning: learning helped only without a guarantee."
    return f"The smallest guaranteed epsilon at which learning helped in every run is {short(min(worth))}."


def _tables(found: Tradeoff, sweep: FinishedSweep) -> Page:
    """Return the tables of a trade-off with how to read them, for the screen and for files."""
    level, search = sweep.record["privacy"], sweep.record["search"]
    sheets = [
        Sheet(f"{found.group.title}: utility at {level}", _utility(found), WORDS),
        Sheet("Attack results against the guarantee", _attacks(found), WORDS),
        Sheet("Chosen settings, and the epsilon that choosing them would cost", _chosen(found), WORDS),
    ]
    notes = [
        headline(found),
        f"{level}: protected is {PROTECTS[level]}",
        f"each point has {count(search['trials'], 'trial')} of its own on validation items, with seed "
        f"{search['seed']}; intervals are of 95 % over the seeds of results, by Student's t",
        *_meanings(found),
        RIGHT,
        *_priced(found),
    ]
    metrics = list(found.group.results[0].summaries()[0]["metrics"])
    records = [
        {"level": level, "as_given": point.given} | point_record(point.result, metrics)
        for point in (*found.points, *found.given)
    ]
    return Page("tradeoff", "Privacy and utility", sheets, records, notes, draw([_chart(found)], 1), "figures")


def _utility(found: Tradeoff) -> list[dict[str, str]]:
    """Return a row per point: utility over seeds, what it keeps, and what it stands beside."""
    rows = []
    for point in (*found.points, *found.given):
        reference = point.result.best_reference(found.group.metric)
        best = MISSING if reference is None else f"{reference[1]:.4f} {reference[0]}"
        row = {"epsilon": point.name, **{f"{n}\n{found.group.ranking}": _value(point, n) for n in found.metrics}}
        row |= {"kept": f"{found.kept(point):.0%}", WORDS[1]: best}
        rows.append(row | {"helped\nin runs": f"{point.result.helped} of {len(point.result.entries)}"})
    return rows


def _value(point: TradeoffPoint, metric: str) -> str:
    mean, half = point.value(metric), point.half(metric)
    return f"{mean:.4f}" + ("" if math.isnan(half) else f" [{mean - half:.4f}, {mean + half:.4f}]")


def _attacks(found: Tradeoff) -> list[dict[str, str]]:
    """Return a row per tuned point: how sure anybody can become, and what attacks on one run reached."""
    return [
        {
            "epsilon": point.name,
            "sure\nat most": sure(point.guaranteed),
            "took\npart?": _right(point, "game"),
            "interaction\nlearned from?": _right(point, "membership"),
            "which\nitems?": _right(point, *ITEMS),
            "proved\nepsilon": _proved(point),
        }
        for point in found.points
    ]


def _right(point: TradeoffPoint, *names: str) -> str:
    row = point.attack(*names)
    if row is None:
        return MISSING
    most = point.most_right(row)
    return f"{row['auc']:.2f}{'*' if row['auc'] > row['auc_null'] else ''}{'' if most is None else f' of {most:.2f}'}"


def _proved(point: TradeoffPoint) -> str:
    """Write the epsilon that attacks proved, of the one promised for as many rounds: both are of the sweep's level."""
    known = [row for row in point.attacks.values() if row.get("eps_corrected") is not None]
    rows = [row for row in known if row["unit"] == point.told["unit"]]
    row = max(rows, key=lambda one: one["eps_corrected"], default=None)
    return MISSING if row is None else f"≥ {row['eps_corrected']:.3g} of {epsilon_said(float(row['claimed']))}"


def _chosen(found: Tradeoff) -> list[dict[str, str]]:
    """Return a row per tuned point: what was chosen, and what its search would cost on people's own data."""
    fields = dict.fromkeys(field for point in found.points for field in point.result.entries[0].chosen)
    rows = []
    for point in found.points:
        own, paid = point.result.entries[0].chosen, point.price
        cells = {field.replace(".", ".\n", 1): short_value(own.get(field)) for field in fields}
        rows.append({"epsilon": point.name, **cells, "tuning": MISSING if paid is None else f"+{paid['more']:.3g}"})
    return rows


def _meanings(found: Tradeoff) -> list[str]:
    noised = [point for point in found.points if point.promises]
    said = [(one.name, one.told["unit"], in_words(one.guaranteed, one.told["delta"], None)[0]) for one in noised]
    return [
        f"epsilon {name}: {words if of == 'client' else words.replace('a person', 'an interaction')}"
        for name, of, words in said
    ]


def _priced(found: Tradeoff) -> list[str]:
    point = found.largest
    return [] if point is None or point.price is None else [f"at epsilon {point.name}, {point.price['said']}"]


def _chart(found: Tradeoff) -> Chart:
    """Draw utility against epsilon: tuned points, those given, what is not private, and what needs no learning."""
    metric, kinds = found.group.metric, dict[str, list[TradeoffPoint]]()
    for point in (*found.points, *found.given):
        kind = "as given" if point.given else "not private" if point.epsilon is None else "tuned"
        kinds.setdefault(kind, []).append(point)
    scale = Scale.of([point.guaranteed for point in found.points])
    bare = scale.high * scale.gap**2
    ticks = ((at, label.replace("inf", "∞")) for at, label in scale.ticks.items())
    x = Axis(scale.limits[0], bare * scale.gap**0.5, (*ticks, (bare, "not private")), log=True)
    references = [(name, level, False) for name, level in found.group.references().items()]
    tops = [one.value(metric) + one.half(metric) for own in kinds.values() for one in own]
    y = Axis.over([*tops, *(one.value(metric) for own in kinds.values() for one in own), *(r[1] for r in references)])
    drawn = []
    for color, (kind, own) in enumerate(kinds.items()):
        places = [(bare if one.epsilon is None else scale.place(one.guaranteed), one) for one in own]
        marks = [
            Point(
                at, one.value(metric), f"{kind}, epsilon {one.name}: {metric} {_value(one, metric)}", one.half(metric)
            )
            for at, one in places
        ]
        drawn.append(line(kind, color, marks, x, y))
    utility = ranked(metric, found.group.ranking)
    said = f"{found.group.title}: {utility} of test items against epsilon, with its 95 % interval over seeds"
    beside = levels(references, y)
    return Chart(said, "epsilon, guaranteed: less is more private", utility, x, y, tuple(drawn), beside)


def _answers(found: Tradeoff, sweep: FinishedSweep) -> list[Answer]:
    point = found.largest
    if point is None:
        return [Answer("What does privacy cost?", "No point with noise ended", "See below what failed.", BAD)]
    helped = any(one.result.usable and one.promises for one in found.points)
    tone, level = GOOD if helped else BAD, sweep.record["privacy"]
    over = [one.name for one in found.points if any(row.get("exceeds") for row in one.attacks.values())]
    reached = f"At epsilon {', '.join(over)} more than promised" if over else "No more than promised"
    proved = "; ".join(f"epsilon {one.name}: {_proved(one)}" for one in found.points if one.promises)
    return [
        Answer(
            "What does privacy cost?", f"{found.kept(point):.0%} kept at epsilon {point.name}", headline(found), tone
        ),
        Answer("What is protected?", capitals(level), f"Protected: {PROTECTS[level]}."),
        Answer("What did attackers prove?", reached, f"{capitals(proved)}.", BAD if over else GOOD),
    ]


def _costs(found: Tradeoff) -> Section:
    given = " Points “as given” have the experiment's own settings, which were not tuned." if found.given else ""
    table = parts.sheet(Sheet(found.group.title, _utility(found), WORDS), "")
    made = [parts.text(headline(found), "big"), parts.chart(_chart(found)), table, parts.text(TUNED + given, "note")]
    return Section.of("cost", "What does privacy cost?", made)


def _attacked(found: Tradeoff) -> Section:
    table = parts.sheet(Sheet("Attack results against the guarantee", _attacks(found), WORDS), "")
    made = [parts.listed(map(capitals, _meanings(found))), table, parts.text(f"{capitals(RIGHT)}.", "note")]
    return Section.of("meaning", "What does epsilon mean, and what did attackers achieve?", made)


def _promised(found: Tradeoff, sweep: FinishedSweep) -> list[Section]:
    """Return the section on what is promised to whom, of the largest epsilon; none where nothing is."""
    point, level = found.largest, sweep.record["privacy"]
    if point is None:
        return []
    told = point.told
    person = level == USER
    trusted = "the server is trusted to add the noise to the sum of all uploads"
    trust = "nobody: devices add the noise" if told.get("trust", "local") == "local" else trusted
    same = unit(told["adjacency"]) if person else "An interaction is there, or its gradient is zeros."
    rows = [("level", f"{level}: {PROTECTS[level]}"), ("trust", trust), ("against", str(told["adversary"]))]
    rows += [("adjacency", f"{told['adjacency']}. {same}"), ("delta", f"{told['delta']:g}")]
    watching = watchers(True, told) if person else []
    who = [{"from": name, "protected?": parts.yes_no(safe), "why": why} for name, safe, why in watching]
    table = ReportTable("Who is protected against whom", who, ("from", "protected?", "why")).part
    made = [
        parts.facts(rows),
        table,
        parts.heading("What the guarantee does not cover"),
        parts.listed(told["not_covered"]),
    ]
    return [Section.of("promise", "What does the guarantee cover?", made)]


def _work(found: Tradeoff) -> Section:
    made = [parts.sheet(Sheet("What was chosen", _chosen(found), WORDS), "")]
    if (point := found.largest) is not None:
        spent = cost(point.result.summaries()[0]["fleet"])
        made.append(parts.text(f"On a device, at epsilon {point.name}: {spent.words}. {spent.why}"))
    made += [parts.text(f"{capitals(said)}.") for said in _priced(found)]
    return Section.of("work", "What would it cost to run, and to tune?", made)


def _made(sweep: FinishedSweep) -> Section:
    failures = [Markup("<code>{}</code>: {}").format(*one) for one in sweep.failures.items()]
    failed = [parts.heading("What failed"), parts.listed(failures)] if failures else []
    how = parts.folded("How the numbers were made", [parts.listed(about(sweep))])
    again = parts.text("With the experiment file, the fleet and the data where they were.", "note")
    made = [parts.command(command(sweep.record)), again, *failed, how]
    return Section.of("made", "How to reproduce this run", made)
