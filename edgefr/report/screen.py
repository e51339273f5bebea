"""The first screen says what a run came to in at most 24 lines: worth, cost, who is left out, privacy, bundles."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from rich.text import Text

from edgefr.config.sheet import count
from edgefr.fleet.devices import WHY, Failure
from edgefr.report.attack import attacked
from edgefr.report.bundles import by_default
from edgefr.report.fleet import GRADES, from_to, measured, once, short, slowest, spread, typical, weakest
from edgefr.report.tables import warnings
from edgefr.report.verdict import (
    RANKINGS,
    Verdict,
    VerdictRow,
    Worth,
    headline,
    named,
    over_seeds,
    ranked,
    ranking_of,
    verdicts,
)
from privacy.sentence import clip_did, clip_warning, sentence

LINES, COLUMNS = 24, 100
INDENT = 11
"""What belongs together stands below its first word, so far from the left."""
WARNING = "bold yellow"
STYLES = {Worth.HELPED: "bold green", Worth.HURT: "bold red", Worth.BEATEN: "bold red"}
FEWEST = 5
"""Lines of the table at least: its title, the learned model, the model not learned, a reference, how many more."""
PARAGRAPH = 3
"""Lines of a paragraph at most."""
MOST_NAMES = 3

Summary = Mapping[str, Any]


def first_screen(summary: Summary, path: Path, width: int = COLUMNS) -> list[Text]:
    """Return the lines for a run in the folder `path`. No line is longer than 100 columns but those that name a path.

    Paragraphs are as wide as `width`.
    """
    found = verdicts(summary)
    head, places = _head(summary, found, width), _places(path)
    beside = _beside(found[0], summary, width) if found else []
    foot = [*beside, *_protocol(summary, width), *_federated(summary, width), *_shipped(summary, width)]
    last = [*_warned(summary, width), *places]
    if (needs := by_default(summary["bundles"])) is not None:
        left = LINES - len(head) - len(foot) - len(last) - FEWEST
        foot += _said("devices", needs.removeprefix("devices "), width, most=min(max(left, 1), PARAGRAPH))
    foot += last
    room = LINES - len(head) - len(foot)
    table = _table(found[0], max(room, FEWEST)) if found else []
    blank = [Text()] if room - len(table) >= 2 else []
    lines = [*head, *blank, *table, *blank, *foot]
    for line in lines[: -len(places)]:
        line.truncate(COLUMNS, overflow="ellipsis")
    return lines


def seeds_screen(summaries: Sequence[Summary], place: Path, width: int = COLUMNS) -> list[Text]:
    """Return the lines for runs that differ in their seed: how often learning helped, and what it gave on average."""
    first, whole = summaries[0], [one[0] for one in map(verdicts, summaries) if one]
    worst = min((one.worth for one in whole), default=Worth.UNKNOWN)
    line = f"{_method(first)} on {first['data']}, {count(len(summaries), 'seed')}: {over_seeds(whole)}"
    foot = [*_protocol(first, width), *_federated_seeds(summaries, width), *_places(place, "runs")]
    head = [*(Text(part, style=STYLES.get(worst, WARNING)) for part in _wrapped(line, width)), Text()]
    return [*head, *_seeds_table(whole, max(LINES - len(head) - len(foot) - 2, 1)), *foot]


def _head(summary: Summary, found: list[Verdict], width: int) -> list[Text]:
    style = STYLES.get(min((one.worth for one in found), default=Worth.UNKNOWN), WARNING)
    line = f"{_method(summary)} on {summary['data']}: {headline(found)}"
    return [Text(part, style=style) for part in _wrapped(line, width)]


def _method(summary: Summary) -> str:
    if "continual" in summary:
        return f"{summary['method']} ({summary['backbone']}, {summary['strategy']})"
    return f"{summary['method']} (a central reference)" if "central" in summary else str(summary["method"])


def _table(verdict: Verdict, room: int) -> list[Text]:
    """Show the learned model beside what needs no learning, the best first, in at most `room` lines."""
    rows = verdict.beside
    if len(rows) + 2 > room:
        rows = _most_telling(rows, max(room - 3, 1), verdict)
    left = len(verdict.beside) - len(rows)
    learned = verdict.model
    where = f"{verdict.metric}, {RANKINGS[verdict.ranking]}, {verdict.users:,} users"
    wide = max(len(name) for name in (where, learned, *(named(row.name) for row in rows)))
    lines = [
        Text(f"{where:<{wide}}   value  gain of the final model (95 % over users)", style="bold"),
        Text(f"{learned:<{wide}}  {verdict.value:.4f}", style="bold"),
        *(Text(f"{named(row.name):<{wide}}  {row.value:.4f}  {row}  {row.words}") for row in rows),
    ]
    if left:
        lines.append(Text(f"and {left} more: --full", style="dim"))
    return lines


def _most_telling(rows: list[VerdictRow], number: int, verdict: Verdict) -> list[VerdictRow]:
    """Keep the model not learned, then the best that needs no learning, then whatever is best."""
    first = [row for row in (verdict.unlearned, *verdict.rows[:1]) if row is not None]
    kept = [*first, *(row for row in rows if row not in first)][:number]
    return [row for row in rows if row in kept]


def _beside(verdict: Verdict, summary: Summary, width: int) -> list[Text]:
    """Say where the rankings disagree, what a central ceiling reaches, and what to change."""
    said = (("rankings", verdict.disagreement), ("ceiling", verdict.ceiling), ("change", verdict.advice(summary)))
    return [line for label, words in said if words for line in _said(label, words, width, most=2)]


def _seeds_table(found: Sequence[Verdict], room: int) -> list[Text]:
    """Show mean and standard deviation over seeds: of the learned model, of what needs no learning, of the gain."""
    if not found:
        return []
    first, values, gains = found[0], dict[str, list[float]](), dict[str, list[float]]()
    for one in found:
        for row in one.beside:
            values.setdefault(row.name, []).append(row.value)
            gains.setdefault(row.name, []).append(row.difference)
    names = sorted(values, key=lambda name: -mean(values[name]))[:room]
    where, learned = f"{first.metric}, {RANKINGS[first.ranking]}", first.model
    wide = max(map(len, (where, learned, *map(named, names))))
    lines = [
        Text(f"{where:<{wide}}  mean ± sd        gain of the final model", style="bold"),
        Text(f"{learned:<{wide}}  {_mean_sd([one.value for one in found])}", style="bold"),
    ]
    return [*lines, *(Text(f"{named(n):<{wide}}  {_mean_sd(values[n])}  {_mean_sd(gains[n], '+')}") for n in names)]


def _mean_sd(values: Sequence[float], sign: str = "") -> str:
    deviation = f"{stdev(values):.4f}" if len(values) > 1 else "-"
    return f"{mean(values):{sign}.4f} ± {deviation}"


def _protocol(summary: Summary, width: int) -> list[Text]:
    short_of_it = textwrap.shorten(summary["protocol"], width - INDENT, placeholder=" ...")
    return _said("protocol", short_of_it, width)


def _federated(summary: Summary, width: int) -> list[Text]:
    """Say what a round costs, who is left out, and what the privacy is worth."""
    if "central" in summary:
        return _said("federated", f"no: {summary['central']['note']}", width)
    fleet, report = summary["fleet"], summary["privacy"]
    clip = report.get("clip") or {}
    did = None if clip_warning(clip) else clip_did(clip)
    return [
        *_costs(fleet),
        *_said("left out", "; ".join(_left_out(summary)) or "nobody", width),
        *_said("privacy", f"{sentence(report)}.", width),
        *(_said("clip", f"{clip['bound']:.4g} {did}", width, most=2) if did else []),
        *([] if (attack := attacked(summary)) is None else _said("attacked", attack, width)),
    ]


def _federated_seeds(summaries: Sequence[Summary], width: int) -> list[Text]:
    """Say what a round costs in the runs of all seeds, and what the privacy of the least protected of them is worth."""
    if "central" in summaries[0]:
        return _federated(summaries[0], width)
    fleets = [one["fleet"] for one in summaries]
    spent: dict[str, list[float]] = {}
    for value, unit in (one for f in fleets for one in typical(f)):
        spent.setdefault(unit, []).append(value)
    medians = [f"{from_to(values)} {unit}" for unit, values in spent.items()]
    slow = Counter(found[0] for f in fleets if (found := slowest(f)))
    invited, came = (sum(f[name] for f in fleets) for name in ("invited", "contributed"))
    whom = f"of a typical client in a round; slowest tenth: {', '.join(slow)}"
    lines = [f"{', '.join(medians)} {whom}"] if medians else []
    lines += [f"{invited - came:,} of {invited:,} client invitations failed"] if came < invited else []
    worst = max((one["privacy"] for one in summaries), key=lambda report: float(report["eps_guaranteed"] or "inf"))
    return [
        *_said("cost", "; ".join(lines) or "no client completed a round", width),
        *_said("privacy", f"{sentence(worst)}.", width),
    ]


def _costs(fleet: Summary) -> list[Text]:
    """Show what a round costs a client: the typical one, and one of the class whose slowest tenth takes longest.

    What a device downloads once, before its first round, is said in the heading of what is moved.
    """
    found = slowest(fleet)
    if found is None:
        return [Text.assemble(("cost".ljust(INDENT), "bold"), "no client completed a round")]
    name, row = found
    working = [one["evidence"] for one in fleet["classes"].values() if measured(one, "seconds")]
    moved = f"MB ({short(once(fleet))} once)" if once(fleet) else "MB"
    rows = [
        ("cost of a round, p50 (p90)", "seconds", "joules", moved, "RAM MB", "evidence"),
        ("  typical client", *_figures(fleet), _grade(working)),
        (f"  slowest tenth: {name}", *_figures(row), _grade([row["evidence"]])),
    ]
    wide = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines: list[Text] = []
    for first, *numbers, last in rows:
        cells = [first.ljust(wide[0]), *(cell.rjust(size) for cell, size in zip(numbers, wide[1:], strict=False)), last]
        lines.append(Text("  ".join(cells), style="" if lines else "bold"))
    return lines


def _grade(evidence: Sequence[Mapping[str, Mapping[str, str]]]) -> str:
    found = {*weakest(evidence)} - {"-"}
    least = max(found, key=GRADES.index, default="-")
    return least if len(found) < 2 else f"{least} or better"


def _figures(row: Summary) -> tuple[str, ...]:
    found = {name: measured(row, name) for name in ("seconds", "energy_j", "bytes", "memory_mb")}
    medians = ("-" if one is None else short(one["p50"]) for one in (found["bytes"], found["memory_mb"]))
    return spread(found["seconds"]), spread(found["energy_j"]), *medians


def _left_out(summary: Summary) -> list[str]:
    """Say who did not take part and why, and whom the model serves least."""
    fleet, out = summary["fleet"], []
    never = {name: row for name, row in fleet["classes"].items() if row["invited"] and not row["contributed"]}
    for kind, names in _by_reason(never).items():
        more = f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else ""
        out.append(f"{', '.join(names[:MOST_NAMES])}{more} never contributed: {WHY[Failure[kind.upper()]]}")
    lost = fleet["invited"] - fleet["contributed"]
    if lost:
        kinds = Counter(fleet["failures"]).most_common()
        why = ", ".join(f"{kind.replace('_', ' ')} {number:,}" for kind, number in kinds)
        out.append(f"{lost:,} of {fleet['invited']:,} client invitations failed ({why})")
    sat_out = summary["privacy"].get("sat_out")
    if sat_out and sat_out["clients"]:
        out.append(f"{sat_out['clients']:,} clients sat out with a spent privacy budget")
    return [*out, *_least_served(fleet, ranking_of(summary))]


def _by_reason(classes: Mapping[str, Summary]) -> dict[str, list[str]]:
    """Return classes by what kept most of their clients from a round."""
    out: dict[str, list[str]] = {}
    for name, row in classes.items():
        out.setdefault(max(row["failures"], key=row["failures"].get), []).append(name)
    return out


def _least_served(fleet: Summary, how: str) -> list[str]:
    """Name the class whose users the model is worth least to, where classes can be told apart by more than chance."""
    for metric, row in fleet.get("fairness", {}).items():
        if metric.startswith("NDCG") and row["worst"] and row["p_equal"] is not None and row["p_equal"] < 0.05:
            worst, best = row["worst"]["class"], row["best"]["class"]
            return [
                f"least served: {worst}, best served: {best} (users' {ranked(metric, how)}, statistically significant)"
            ]
    return []


def _shipped(summary: Summary, width: int) -> list[Text]:
    """Say which bundles were written, how large they are and what they keep."""
    rows: Sequence[Summary] = summary["bundles"]
    if not rows:
        why = summary.get("no_bundles")
        return _said("shipped", "no bundles" if why is None else f"no bundles: {why}", width, most=2)
    variants = Counter(row["variant"] for row in rows).most_common()
    named = variants[0][0] if len(variants) == 1 else ", ".join(f"{number} {name}" for name, number in variants)
    sizes = from_to(row["files_mb"] for row in rows)
    parts = [f"a bundle for each of {count(len(rows), 'device class')} ({named}; {sizes} MB), in bundles/"]
    unfit = [row["class"] for row in rows if not row["fits"]]
    kept = [row["hr_kept"] for row in rows if row["hr_kept"] is not None]
    parts += [f"too big for {', '.join(unfit[:MOST_NAMES])}"] if unfit else []
    parts += [f"they keep at least {min(kept):.1%} of the model's HR@10"] if kept else []
    parts += ["they recommend only, without on-device training"] if summary.get("only_recommends") else []
    return _said("shipped", "; ".join(parts), width, most=2)


def _warned(summary: Summary, width: int) -> list[Text]:
    """Show the first warning, and how many more there are."""
    found = warnings(summary)
    more = f" (and {len(found) - 1} more: --full)" if len(found) > 1 else ""
    said = [one.removeprefix("warning: ") + more for one in found[:1]]
    return [line for words in said for line in _said("warning", words, width, most=2, style=WARNING)]


def _places(path: Path, what: str = "run") -> list[Text]:
    page = path / "report.html"
    return [*([Text(f"report: {page}")] if page.is_file() else []), Text(f"{what}: {path}")]


def _said(label: str, words: str, width: int, most: int = PARAGRAPH, style: str = "bold") -> list[Text]:
    first, *rest = _wrapped(words, width - INDENT, most)
    return [Text.assemble((label.ljust(INDENT), style), first), *(Text(" " * INDENT + line) for line in rest)]


def _wrapped(words: str, width: int, most: int = PARAGRAPH) -> list[str]:
    return textwrap.wrap(words, width, max_lines=most, placeholder=" ...", break_on_hyphens=False) or [""]
