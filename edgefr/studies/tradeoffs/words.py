"""What a trade-off comes to in sentences and in tables of words: for the screen, Markdown, CSV and the page alike."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from edgefr.config.sheet import Sheet
from edgefr.report.figures import drawn as draw
from edgefr.report.pages import Page, Record
from edgefr.report.verdict import ranked
from edgefr.report.web.chart import Axis, Chart, Level, Line, Point, levels, line, short
from edgefr.report.web.privacy import in_words, sure
from edgefr.studies.sweeps.grid import shown
from edgefr.studies.sweeps.results import FinishedSweep
from edgefr.studies.sweeps.tradeoff import NOTHING, Scale, epsilon_said
from edgefr.studies.tradeoffs.points import Tradeoff, TradeoffPoint, largest
from edgefr.studies.tuning.private import INTERACTION, USER, Level as Protected

LEVELS = {level.name: level for level in (USER, INTERACTION)}
NAME = "tradeoff"
MISSING = "–"


def headline(found: Tradeoff, curve: str) -> str:
    """Say what the largest finite epsilon of a curve keeps, and whether it beats what needs no learning."""
    point, best = largest(found.curves[curve]), found.best(curve)
    if point is None or best is None:
        return "No point with noise came to an end."
    metric, method = found.group.metric, point.result.summaries()[0]["method"]
    value, whole = (one.utility(metric).mean for one in (point, best))
    return (
        f"At epsilon {point.name}, {method}{f' ({curve})' if curve else ''} keeps {found.kept(point):.0%} of the "
        f"{ranked(metric, found.group.ranking)} of its best without noise ({value:.4f} of {whole:.4f}), and "
        f"{beside(found, point)}."
    )


def beside(found: Tradeoff, point: TradeoffPoint) -> str:
    """Say how a point stands beside the best that needs no learning."""
    reference, result = point.result.best_reference(found.group.metric), point.result
    if reference is None:
        return "there is nothing that it could be compared with"
    what, runs = f"{reference[0]} ({reference[1]:.4f}), the best that needs no learning", len(result.entries)
    if result.usable:
        return f"is better than {what}, in the run of every seed"
    if result.helped:
        return f"is clearly better than {what}, in {result.helped} of {runs} runs only"
    return f"is not clearly better than {what}"


def usable(found: Tradeoff) -> str:
    """Say from which guaranteed epsilon on learning helped in every run of a tuned point."""
    worth = [point.guaranteed for point in found.points if point.result.usable]
    if not worth:
        return f"There is {NOTHING}, after tuning: nowhere did learning help in the run of every seed."
    if math.isinf(min(worth)):
        return f"There is {NOTHING} with a guarantee, after tuning: learning helped only where nothing is promised."
    return f"The smallest guaranteed epsilon at which learning helped in every run is {short(min(worth))}."


def meaning(point: TradeoffPoint) -> str:
    """Say in one line what the epsilon of a point means."""
    return in_words(point.guaranteed, float(point.report["delta"]), None)[0]


def protected(sweep: FinishedSweep) -> Protected:
    """Return the level that a sweep is about."""
    return LEVELS[sweep.record["privacy"]]


def right(point: TradeoffPoint, row: Mapping[str, Any] | None) -> str:
    """Write the share of right answers of an attack, beside luck and the most that is promised."""
    if row is None or row.get("auc") is None:
        return MISSING
    most = point.most_right(row)
    bound = "" if most is None else f", promised {most:.3f}"
    return f"{row['auc']:.3f} (luck {row['auc_null']:.3f}{bound})"


def proved(point: TradeoffPoint) -> str:
    """Write the epsilon that attacks proved beside what was promised for as many rounds; the two are of one unit."""
    rows = [row for row in point.attacks.values() if row.get("eps_corrected") is not None]
    if not rows:
        return MISSING
    row = max(rows, key=lambda one: one["eps_corrected"])
    return f"≥ {row['eps_corrected']:.3g} of {short(float(row['claimed'])) if row['claimed'] != 'inf' else '∞'}"


def value(point: TradeoffPoint, metric: str) -> str:
    """Write a metric with its interval over seeds."""
    ends, found = point.ends(metric), point.utility(metric)
    return f"{found.mean:.4f}" + ("" if ends is None else f" [{ends[0]:.4f}, {ends[1]:.4f}]")


def named(point: TradeoffPoint) -> dict[str, str]:
    """Return the first columns of a point: its curve, where there are several, and its epsilon."""
    curve = {"curve": point.curve} if point.curve else {}
    return {"epsilon": point.name + (", as given" if point.given else ""), **curve}


def utility_rows(found: Tradeoff) -> list[dict[str, str]]:
    """Return a row per point: utility over seeds, what it keeps, and what it stands beside."""
    rows = []
    for point in (*found.points, *found.given):
        reference = point.result.best_reference(found.group.metric)
        rows.append(
            {
                **named(point),
                **{f"{name}\n{found.group.ranking}": value(point, name) for name in found.metrics},
                "kept": f"{found.kept(point):.0%}",
                "best without\nlearning": MISSING if reference is None else f"{reference[1]:.4f} {reference[0]}",
                "helped\nin runs": f"{point.result.helped} of {len(point.result.entries)}",
            }
        )
    return rows


def attack_rows(found: Tradeoff) -> list[dict[str, str]]:
    """Return a row per tuned point: how sure anybody can become, and what attacks on one run reached."""
    return [
        {
            **named(point),
            "sure\nat most": sure(point.guaranteed),
            "took part?": right(point, point.attacks.get("game")),
            "interaction?": right(point, point.attacks.get("membership")),
            "which items?": right(point, point.items()),
            "proved\nepsilon": proved(point),
        }
        for point in found.points
    ]


def chosen_rows(found: Tradeoff) -> list[dict[str, str]]:
    """Return a row per tuned point: what was chosen, and what its search would cost on people's own data."""
    fields = dict.fromkeys(field for point in found.points for field in point.result.entries[0].chosen)
    rows = []
    for point in found.points:
        own, paid = point.result.entries[0].chosen, point.price
        cells = {field.replace(".", ".\n", 1): _short(own.get(field)) for field in fields}
        rows.append({**named(point), **cells, "tuning\ncosts": MISSING if paid is None else f"+{paid.more:.3g}"})
    return rows


def _short(value: Any) -> str:
    return MISSING if value is None else f"{value:.3g}" if isinstance(value, float) else shown(value)


def notes(found: Tradeoff, sweep: FinishedSweep) -> list[str]:
    """Return what the tables come to, and how they are read."""
    level, search = protected(sweep), sweep.record["search"]
    first = next((point for point in found.points if point.price is not None), None)
    noised = [point for point in found.points if math.isfinite(point.guaranteed)]
    return [
        *(headline(found, curve) for curve in found.curves),
        usable(found),
        f"{level.name}: protected is {level.protects}",
        f"each point has {search['trials']} trials of its own on validation items, with seed {search['seed']}; "
        "intervals are of 95 % over the seeds of results, by Student's t",
        *(f"epsilon {point.name}: {meaning(point)}" for point in noised),
        "attacks are right in this share of pairs, where a coin is right in 0.5; luck is what it reaches in 95 of 100 "
        "cases; promised is the most that anybody can reach",
        *([] if first is None else [f"at epsilon {first.name}, {first.price}"]),
    ]


def tradeoff_page(found: Sequence[Tradeoff], sweep: FinishedSweep) -> Page:
    """Return the tables of a trade-off, with its chart."""
    sheets, records, told, level = list[Sheet](), list[Record](), list[str](), protected(sweep)
    for one in found:
        words = ("epsilon", "curve", "best without\nlearning")
        sheets.append(Sheet(f"{one.group.title}: utility at {level.name}", utility_rows(one), words))
        sheets.append(Sheet("What attackers can reach, and what they reached", attack_rows(one), words))
        sheets.append(Sheet("What was chosen, and what choosing would cost", chosen_rows(one), words))
        told += notes(one, sweep)
        records += [_record(one, point, level.name) for point in (*one.points, *one.given)]
    figure = draw([chart(one) for one in found], 1) if found else None
    return Page(NAME, "Privacy and utility, tuned", sheets, records, told, figure, "figures")


def _record(found: Tradeoff, point: TradeoffPoint, level: str) -> Record:
    record: Record = {"epsilon": shown(point.epsilon), "curve": point.curve, "level": level, "given": point.given}
    record |= {"eps_guaranteed": point.guaranteed, "seeds": len(point.result.entries)}
    for name in found.metrics:
        ends = point.ends(name) or (math.nan, math.nan)
        record |= {name: point.utility(name).mean, f"{name} low": ends[0], f"{name} high": ends[1]}
    record |= {"kept": found.kept(point), "helped": point.result.helped, "usable": point.result.usable}
    for name, row in point.attacks.items():
        record |= {f"{name} right": row.get("auc"), f"{name} luck": row.get("auc_null")}
    record |= {f"chosen {field}": one for field, one in point.result.entries[0].chosen.items()}
    return record | {"tuning epsilon": math.nan if point.price is None else point.price.more}


def chart(found: Tradeoff) -> Chart:
    """Draw utility against epsilon: a line for tuned points, one for those given, and levels of what needs no learning."""
    metric, every = found.group.metric, [*found.points, *found.given]
    clipped = [point for point in every if point.epsilon is not None]
    scale = Scale.of([point.guaranteed for point in clipped])
    bare = scale.high * scale.gap**2
    ticks = (*((at, label.replace("inf", "∞")) for at, label in scale.ticks.items()), (bare, "not private"))
    x = Axis(scale.limits[0], bare * scale.gap**0.5, ticks, log=True)
    references = [(name, level, False) for name, level in found.group.references().items()]
    y = Axis.over([*_ends(every, metric), *(level for _, level, _ in references)])
    lines, drawn = list[Line](), dict[str, list[tuple[float, TradeoffPoint]]]()
    for point in every:
        kind = "as given" if point.given else "not private" if point.epsilon is None else "tuned"
        place = bare if point.epsilon is None else scale.place(point.guaranteed)
        drawn.setdefault(", ".join(part for part in (point.curve, kind) if part), []).append((place, point))
    for color, (name, own) in enumerate(drawn.items()):
        places = sorted(own, key=lambda one: one[0])
        lines.append(line(name, color, [_drawn(at, point, metric, name) for at, point in places], x, y))
    utility = ranked(metric, found.group.ranking)
    said = f"{found.group.title}: {utility} of test items against epsilon, with its 95 % interval over seeds"
    beside: tuple[Level, ...] = levels(references, y)
    return Chart(said, "epsilon, guaranteed: smaller is more private", utility, x, y, tuple(lines), beside)


def _ends(points: Sequence[TradeoffPoint], metric: str) -> list[float]:
    return [end for point in points for end in point.ends(metric) or [point.utility(metric).mean]]


def _drawn(at: float, point: TradeoffPoint, metric: str, name: str) -> Point:
    ends, mean = point.ends(metric), point.utility(metric).mean
    said = f"{name}, epsilon {epsilon_said(point.guaranteed)}: {metric} {value(point, metric)}"
    return Point(at, mean, said, None if ends is None else ends[1] - mean)
