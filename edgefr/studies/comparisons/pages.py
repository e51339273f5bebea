"""A comparison has tables and a figure: what each run reached, how far each pair is apart, what else differs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from string import ascii_lowercase
from typing import TYPE_CHECKING

from edgefr.config.sheet import Sheet
from edgefr.metrics.paired import LEVEL, Apart
from edgefr.report.latex import NEEDS, Tex, escape, latex_table
from edgefr.report.pages import Page, Spread, number
from edgefr.report.verdict import RANKINGS

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NOTES = (
    "Difference: mean over users, with the paired bootstrap's 95 % interval over users; p: Wilcoxon's signed-rank "
    "test, and by Holm's correction over all pairs and metrics here; d: Cohen's d of paired differences; r: "
    "matched-pairs rank-biserial correlation; p (seeds): paired t-test, a pair is one seed's two means, by Holm's "
    "correction",
    f"a run is above another if, over users, Holm's p is below {LEVEL} and the interval is wholly on one side of 0; "
    "the tests over seeds do not decide it",
    "tests over users are about these trained models and other users of the same kind; tests over seeds are about "
    "training again",
)


@dataclass(frozen=True)
class RunMetrics:
    """This is what a run reached: its metrics over its seeds, and the names of those that it is above, by metric."""

    name: str
    values: Mapping[str, Spread]
    above: Mapping[str, Sequence[str]]


@dataclass(frozen=True)
class Pair:
    """This says how far run `one` is above run `other` in a metric, over users, and p over seeds."""

    one: str
    other: str
    metric: str
    users: Apart
    p_seeds: float

    @property
    def above(self) -> str | None:
        """Return the run that is above the other, None where the two are not told apart."""
        return {1: self.one, -1: self.other, 0: None}[self.users.side]


def page(
    rows: Sequence[RunMetrics],
    baselines: Sequence[RunMetrics],
    pairs: Sequence[Pair],
    differs: Mapping[str, Mapping[str, str]],
    ranking: str,
    notes: Sequence[str],
) -> Page:
    """Return a comparison as a page."""
    sheets = [_reached(rows, baselines, ranking), _apart(pairs)]
    if differs:
        what = [{"setting": name, **values} for name, values in differs.items()]
        sheets.append(Sheet("what else differs", what, ["setting", *(row.name for row in rows)]))
    title = f"comparison of {len(rows)} runs, {RANKINGS[ranking]}"
    return Page(
        "comparison", title, sheets, [_record(pair) for pair in pairs], [*NOTES, *notes], _figure(rows, pairs, ranking)
    )


def _letters(rows: Sequence[RunMetrics]) -> dict[str, str]:
    return {row.name: ascii_lowercase[at] if at < 26 else str(at + 1) for at, row in enumerate(rows)}


def _reached(rows: Sequence[RunMetrics], baselines: Sequence[RunMetrics], ranking: str) -> Sheet:
    sign, shown = _letters(rows), []
    for row in (*rows, *baselines):
        above = {metric: ", ".join(sign[name] for name in names) for metric, names in row.above.items()}
        cells = {name: f"{value} > {above[name]}" if above[name] else str(value) for name, value in row.values.items()}
        seeds = str(max(value.number for value in row.values.values()))
        shown.append({"run": f"{sign[row.name]}: {row.name}" if row in rows else row.name, **cells, "seeds": seeds})
    some = any(names for row in rows for names in row.above.values())
    caption = "> a: above run a, over users" if some else "no significant difference between any two runs"
    caption += "; below the line: baselines, which are not tested here" if baselines else ""
    return Sheet(f"test items, {RANKINGS[ranking]}", shown, ["run"], caption, rules=[len(rows) - 1])


def _apart(pairs: Sequence[Pair]) -> Sheet:
    shown = [
        {
            "pair": f"{pair.one} - {pair.other}",
            "metric": pair.metric,
            "verdict": "no significant difference" if pair.above is None else f"{pair.above} is above",
            "difference [95 %]": f"{pair.users.mean:+.4f} [{pair.users.low:+.4f}, {pair.users.high:+.4f}]",
            "p": number(pair.users.p, ".3g"),
            "p\nHolm": number(pair.users.p_holm, ".3g"),
            "d": number(pair.users.d, "+.2f"),
            "r": number(pair.users.r, "+.2f"),
            "p\nseeds": number(pair.p_seeds, ".3g"),
            "users": f"{pair.users.users:,}",
        }
        for pair in pairs
    ]
    return Sheet("pairs", shown, ["pair", "metric", "verdict"])


def _record(pair: Pair) -> dict[str, str | float | int | None]:
    over = pair.users
    return {
        **{"one": pair.one, "other": pair.other, "metric": pair.metric, "users": over.users},
        **{"difference": over.mean, "low": over.low, "high": over.high, "p": over.p, "p_holm": over.p_holm},
        **{"d": over.d, "r": over.r, "p_seeds_holm": pair.p_seeds, "above": pair.above or ""},
    }


def latex(rows: Sequence[RunMetrics], baselines: Sequence[RunMetrics], pairs: Sequence[Pair], ranking: str) -> str:
    """Return both tables for a paper; superscripts name the runs that a run is above, the highest mean is bold."""
    sign, metrics, all_rows = _letters(rows), list(rows[0].values), [*rows, *baselines]
    best = {metric: max(row.values[metric].mean for row in all_rows) for metric in metrics}
    reached: list[dict[str, str | Tex]] = [
        {"": sign[row.name] if row in rows else "", "run": row.name}
        | {metric: _value(row, metric, best[metric], sign) for metric in metrics}
        for row in all_rows
    ]
    apart: list[dict[str, str | Tex]] = [
        {
            "pair": f"{sign[pair.one]} - {sign[pair.other]}",
            "metric": pair.metric,
            "difference": Tex(f"${pair.users.mean:+.4f}$"),
            "95 % interval": Tex(f"$[{pair.users.low:+.4f}, {pair.users.high:+.4f}]$"),
            "p (Holm)": _p(pair.users.p_holm),
            "d": Tex(f"${pair.users.d:+.2f}$"),
            "r": Tex(f"${pair.users.r:+.2f}$"),
        }
        for pair in pairs
    ]
    first = f"Test items, {RANKINGS[ranking]}. {_marks(rows, baselines, pairs)}"
    second = f"Paired differences over {max(pair.users.users for pair in pairs):,} users. {NOTES[0]}."
    tables = latex_table(reached, first, "runs", ["run"]), latex_table(apart, second, "pairs", ["pair", "metric"])
    return "\n\n".join([NEEDS, *tables]) + "\n"


def _marks(rows: Sequence[RunMetrics], baselines: Sequence[RunMetrics], pairs: Sequence[Pair]) -> str:
    """Say exactly what the marks of the first table mean."""
    seeds = sorted({value.number for row in rows for value in row.values.values()})
    many = str(seeds[0]) if len(seeds) == 1 else f"{seeds[0]} to {seeds[-1]}"
    parts = [] if seeds == [1] else [f"Mean ± standard deviation (n - 1) over {many} seeds."]
    parts.append("Bold: the highest mean of a column, whether or not it differs significantly from the others.")
    parts.append(
        f"A superscript names the runs that a run is above: Wilcoxon's signed-rank test over users has p < {LEVEL} "
        f"(two-sided, Holm's correction over all {len(pairs)} tests of the next table), and the 95 % bootstrap "
        "interval of the mean difference over users is wholly above 0."
    )
    if baselines:
        parts.append("Rows without a letter are baselines, which were not tested.")
    return " ".join(parts)


def _value(row: RunMetrics, metric: str, best: float, sign: Mapping[str, str]) -> Tex:
    value, above = row.values[metric], row.above[metric]
    text = escape(str(value))
    text = f"\\textbf{{{text}}}" if value.mean == best else text
    return Tex(f"{text}$^{{{','.join(sign[name] for name in above)}}}$" if above else text)


def _p(value: float) -> Tex:
    return Tex("$<0.001$" if value < 0.001 else number(value, ".3f"))


def _figure(rows: Sequence[RunMetrics], pairs: Sequence[Pair], ranking: str) -> Figure:
    """Draw the differences with their intervals, a panel per metric and a line per pair, runs by their letters."""
    from matplotlib.figure import Figure

    metrics = list(dict.fromkeys(pair.metric for pair in pairs))
    sign = _letters(rows)
    names = list(dict.fromkeys(f"{sign[pair.one]} − {sign[pair.other]}" for pair in pairs))
    size = (1.0 + 2.8 * len(metrics), 1.3 + 0.2 * len(rows) + 0.34 * len(names))
    figure = Figure(figsize=size, layout="constrained")
    for axis, metric in zip(figure.subplots(1, len(metrics), squeeze=False, sharey=True)[0], metrics, strict=True):
        own = [pair for pair in pairs if pair.metric == metric]
        for at, pair in enumerate(own):
            color = "C7" if pair.above is None else "C0"
            axis.plot([pair.users.low, pair.users.high], [at, at], color=color, linewidth=2, solid_capstyle="butt")
            axis.plot([pair.users.mean], [at], marker="o" if pair.above is None else "D", color=color)
        axis.axvline(0, color="black", linewidth=0.8)
        axis.set(xlabel=f"difference in {metric}", yticks=range(len(names)), yticklabels=names)
        axis.set_ylim(len(names) - 0.5, -0.5)
        axis.locator_params(axis="x", nbins=4)
        axis.grid(alpha=0.3, axis="x")
    figure.suptitle(
        f"{RANKINGS[ranking]}; 95 % over users; blue diamonds: significant difference (Holm)", fontsize="medium"
    )
    key = "\n".join(f"{letter}: {name}" for name, letter in sign.items())
    figure.supxlabel(key, fontsize="small", x=0.02, ha="left")
    return figure
