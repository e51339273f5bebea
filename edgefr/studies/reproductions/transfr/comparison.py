"""Tables 4 to 6 compare TransFR with its rivals: cold start in another domain, and what is lost on the way there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from edgefr.config.sheet import Sheet
from edgefr.report.pages import Page, Record, Spread, number
from edgefr.simulation.runs.run import Run
from edgefr.studies.reproductions.cells import Found
from edgefr.studies.reproductions.fedcar.paired import Against, ByUser, against
from edgefr.studies.reproductions.transfr import published
from edgefr.studies.reproductions.transfr.recipes import ROWS, Ask, Cell, Task, tasks
from edgefr.studies.reproductions.transfr.results import (
    COLD_NAMES,
    REFERENCES,
    WARM_NAMES,
    Side,
    cold,
    cold_stage,
    level,
    lost,
    shown,
    warm,
)
from privacy.progress import Progress

BASE = "transfr-ours"
"""The row that others are compared with: chosen before these tables, so that no result chooses it."""
MAIN = "NDCG@10"
TABLES = {5: "HR@10", 6: "NDCG@10"}
NOTES = (
    "mean ± sd over seeds; the held-out item among itself and 99 sampled ones. The paper's tasks are of larger data "
    "that are not at hand: its numbers stand in a table of their own, and no number of ours should equal one of them",
    "cold: nothing that a user has in the target is known to the model. PMF, NCF, FCF and other tables of item numbers "
    "have no row of a target's item that anybody trained: all are tied, and metrics are expectations (10 of 100 "
    "candidates make an HR@10 of .1), beside which chance is one draw. The paper prints more than that of them",
    "CMF, EMCDR and FedDCSR learn from what others have in the target, and of the user who is asked for nothing there "
    "(model.folds, docs/papers.md); popularity knows the target's interactions too, TransFR and text mean do not",
    "recipes are experiments/transfr and its neighbours: width 32 and 4 negatives as the paper has them, central rows "
    "with at most 50 epochs of which the best by validation is kept; on these data settings were looked at for "
    "TransFR (experiments/README.md) and for FedSASRec (its recipe), and for no other row",
)
AGAINST = (
    f"against {ROWS[BASE].label}: a row's {MAIN} of cold start less that of this row, a user's being the mean over the "
    "seeds in which both rows ranked for the user, with the paired bootstrap's 95 % interval; p (users): Wilcoxon's "
    "signed-rank test, Holm's correction over the rows of a task; p (seeds): paired t-test, a pair is one seed"
)


def needed(ask: Ask, data: str) -> list[Cell]:
    """Return every row in both directions."""
    return [cell for task in tasks(data) for cell in ask.cells(task, tuple(ROWS)).values()]


def table_4(ask: Ask, found: Found, data: Sequence[str], progress: Progress | None = None) -> Page:
    """Make a sheet of cold start per task, and one of what the paper prints."""
    sheets, records, verdicts = list[Sheet](), list[Record](), list[str]()
    for task in (task for name in data for task in tasks(name)):
        cells = ask.cells(task, tuple(ROWS))
        compared = _compared(found, cells)
        sheets.append(_cold(found, cells, task, compared))
        records += _cold_records(found, cells, task, compared)
        verdicts += _verdict(task, compared)
    printed = {
        f"{task}\n{metric}": {row: values[at] for row, values in published.COLD[metric].items()}
        for at, task in enumerate(published.TASKS)
        for metric in published.METRICS
    }
    sheets.append(_printed("as the paper prints it: cold start", printed))
    return Page("table-4", "TransFR Table 4: cold start", sheets, records, [*verdicts, *NOTES, AGAINST])


def _compared(found: Found, cells: Mapping[str, Cell]) -> dict[str, Against]:
    """Return how each finished row stands to the base, in cold start over users."""
    if not found.runs.get(cells[BASE]):
        return {}
    users = {row: _per_user(found.runs.get(cell, {})) for row, cell in cells.items()}
    by_seed = {row: found.by_seed(cell, cold("target", MAIN)) for row, cell in cells.items()}
    return against(users, by_seed, BASE, [row for row in cells if users[row]])


def _per_user(runs: Mapping[int, Run]) -> ByUser:
    """Return the metric of every user in cold start, by seed."""
    out = {}
    for seed, run in runs.items():
        table, stage = run.users, cold_stage(run.summary)
        own = table[(table["on"] == "target") & (table["stage"] == stage) & (table["ranking"] == "sampled")]
        out[seed] = dict(zip(own["user"], own[MAIN].astype(float), strict=True))
    return out


def _cold(found: Found, cells: Mapping[str, Cell], task: Task, compared: Mapping[str, Against]) -> Sheet:
    rows = []
    for name, cell in cells.items():
        row = {"method": ROWS[name].label}
        row |= {metric: str(found.spread(cell, cold("target", metric))) for metric in published.METRICS}
        row |= _against(compared.get(name))
        rows.append(row | {"seeds": str(len(found.summaries.get(cell, {})))})
    return _with_references(found, cells, f"{task}, cold start ({task.data})", rows, COLD_NAMES, "target")


def _against(one: Against | None) -> dict[str, str]:
    titles = ("against ours", "n", "p\nusers", "p\nseeds")
    if one is None:
        return dict.fromkeys(titles, "")
    users = one.users
    said = f"{users.mean:+.4f} [{users.low:+.4f}, {users.high:+.4f}]"
    values = (said, str(users.users), number(users.p_holm, ".3f"), number(one.p_seeds, ".3f"))
    return dict(zip(titles, values, strict=True))


def _with_references(
    found: Found, cells: Mapping[str, Cell], title: str, rows: list[dict[str, str]], names: Sequence[str], side: Side
) -> Sheet:
    """Return a sheet of rows with what learns nothing below a rule."""
    last, blank = len(rows) - 1, dict.fromkeys(rows[0], "")
    for name in names:
        levels = {metric: level(found, cells.values(), side, name, metric) for metric in published.METRICS}
        if levels[MAIN].number:
            rows.append({**blank, "method": REFERENCES[name], **{m: str(one) for m, one in levels.items()}})
    return Sheet(title, rows, ["method"], rules=[last])


def _verdict(task: Task, compared: Mapping[str, Against]) -> list[str]:
    """Say which rows the base is above, below, or not told apart from."""
    sides: dict[int, list[str]] = {-1: [], 0: [], 1: []}
    for name, one in compared.items():
        sides[one.users.side].append(ROWS[name].label)
    said = {"above": sides[-1], "not told apart from": sides[0], "below": sides[1]}
    words = "; ".join(f"{what} {', '.join(of)}" for what, of in said.items() if of)
    return [f"{task}: {ROWS[BASE].label}, is {words} ({MAIN} of cold start)"] if words else []


def _cold_records(found: Found, cells: Mapping[str, Cell], task: Task, compared: Mapping[str, Against]) -> list[Record]:
    out = []
    for name, cell in cells.items():
        for metric in published.METRICS:
            record: Record = {**_head(task, name, metric), **found.spread(cell, cold("target", metric)).record()}
            one = compared.get(name)
            if one is not None and metric == MAIN:
                users = one.users
                record |= {"against": BASE, "n": users.users, "difference": users.mean, "low": users.low}
                record |= {"high": users.high, "p_users_holm": users.p_holm, "p_seeds": one.p_seeds}
            out.append(record)
    for name in COLD_NAMES:
        for metric in published.METRICS:
            spread = level(found, cells.values(), "target", name, metric)
            out.append({"data": task.data, "task": str(task), "row": name, "metric": metric, **spread.record()})
    return out


def _head(task: Task, row: str, metric: str) -> Record:
    return {"data": task.data, "task": str(task), "method": row, "kind": ROWS[row].kind, "metric": metric}


def transfer(table: int, ask: Ask, found: Found, data: Sequence[str], progress: Progress | None = None) -> Page:
    """Make Table 5 or 6: source, target and what is lost, a sheet per task, and one of what the paper prints."""
    metric = TABLES[table]
    sheets, records = list[Sheet](), list[Record]()
    for task in (task for name in data for task in tasks(name)):
        cells, rows = ask.cells(task, tuple(ROWS)), []
        for name, cell in cells.items():
            spreads = {
                "source": found.spread(cell, shown("source", metric, name)),
                "target": found.spread(cell, shown("target", metric, name)),
                "lost %": found.spread(cell, lost(metric, name)),
                "target, its\nitems known": found.spread(cell, warm(metric)),
            }
            rows.append({"method": ROWS[name].label, **{title: _written(title, one) for title, one in spreads.items()}})
            rows[-1]["seeds"] = str(len(found.summaries.get(cell, {})))
            for title, one in spreads.items():
                records.append({**_head(task, name, metric), "what": title.replace("\n", " "), **one.record()})
        last, blank = len(rows) - 1, dict.fromkeys(rows[0], "")
        for name in WARM_NAMES:
            sides = {side: level(found, cells.values(), side, name, metric) for side in ("source", "target")}
            if sides["target"].number:
                rows.append({**blank, "method": REFERENCES[name], **{side: str(one) for side, one in sides.items()}})
        sheets.append(Sheet(f"{task}, {metric} ({task.data})", rows, ["method"], rules=[last]))
    sheets.append(_as_printed(metric))
    notes = [
        *NOTES,
        "lost: (source - target) / source, of each seed; less than 0 where the target is the easier domain. TransFR is "
        "shown after local training in both domains, everything else as in Table 4, since the paper prints the same "
        "there. The last column has CMF, EMCDR and FedDCSR with everybody's items of the target, too, and TransFR as "
        "before",
    ]
    return Page(f"table-{table}", f"TransFR Table {table}: {metric} in source and target", sheets, records, notes)


def _written(title: str, spread: Spread) -> str:
    """Write a spread, percents with one decimal."""
    if title != "lost %" or not spread.number:
        return str(spread)
    return f"{spread.mean:.1f}" + (f" ± {spread.sd:.1f}" if spread.number > 1 else "")


def _as_printed(metric: str) -> Sheet:
    columns = {}
    for at, task in enumerate(published.TASKS):
        columns[f"{task}\nsource"] = {row: values[at] for row, values in published.SOURCE[metric].items()}
        columns[f"{task}\ntarget"] = {row: published.target(metric, row)[at] for row in published.COLD[metric]}
        columns[f"{task}\nlost %"] = {row: values[at] for row, values in published.DELTA[metric].items()}
    return _printed(f"as the paper prints it: {metric}", columns)


def _printed(title: str, columns: Mapping[str, Mapping[str, float]]) -> Sheet:
    """Return what the paper prints, in the order of its tables."""
    rows = [
        {
            "method": f"{published.LABELS[row]} (paper)",
            **{name: number(values[row], "g") for name, values in columns.items()},
        }
        for row in published.LABELS
    ]
    return Sheet(title, rows, ["method"])
