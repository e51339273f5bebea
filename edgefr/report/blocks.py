"""Reports of continual runs: what each block gave, what was kept of the earlier ones, and how references compare."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from edgefr.metrics.continual import MASKS, forgetting, harmonic_mean, learning_average, retained_average
from edgefr.report.few import FEW, tellable
from edgefr.report.layout import Sheet
from edgefr.report.learning import learning
from edgefr.report.rankings import FULL

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from edgefr.training import Training


def summarise_blocks(sim: Training) -> dict[str, Any]:
    """Return the parts of summary.json that speak of blocks. Averages are over the increments D1, D2, ...

    (F3CRec Table 2).
    """
    names, last = [done["name"] for done in sim.done], sim.stages[-1]
    measured = list(sim.measured.table(ranking="full")[names[0]])
    stages = {stage: _by_block(sim, stage, names) for stage in measured}
    averages = {stage: {mask: _average(values, mask) for mask in MASKS} for stage, values in stages.items()}
    metric = next(m for m in averages[last][MASKS[0]] if m.startswith("NDCG"))
    references = [name for name in sim.schedule[0].compared if name in stages]
    blocks = [
        {
            **{k: done[k] for k in ("name", "clients_per_second", "train_seconds", "eval_seconds", "statistics")},
            "best_round": done["best_round"],
            "rounds": done["round"],
            "validation": done["best"] if np.isfinite(done["best"]) else None,
            "metrics": stages[last][done["name"]][MASKS[0]],
            "history": stages[last][done["name"]][MASKS[1]],
            **_known_and_new(sim, done["name"]),
            "references": {name: stages[name][done["name"]] for name in references},
        }
        for done in sim.done
    ]
    others = [name for name in measured if name not in sim.stages]
    found = [learning(sim.measured, stage, others, names[1:] or names, sim.rounds) for stage in sim.stages]
    helped = [one for one in found if one is not None]
    return {
        "stage": last,
        "metrics": averages[last][MASKS[0]],
        "metrics_history_masked": averages[last][MASKS[1]],
        "blocks": blocks,
        "stages": {name: averages[name] for name in measured if name not in references},
        "references": {name: averages[name] for name in references},
        "continual": {mask: _kept(sim, names, metric, mask) for mask in MASKS},
        "learning": {"main": {one.stage: one.record() for one in helped}},
        "verdicts": {"main": [str(one) for one in helped]},
    }


def _known_and_new(sim: Training, block: str) -> dict[str, dict[str, Any]]:
    """Return metrics of a block's users right after it who were known and who were new; none of a few of them."""
    wanted = {"stage": sim.stages[-1], "after": block, "on": block, "mask": MASKS[0], "round": None}
    rows = [row for row in sim.measured.rows if all(row[key] == value for key, value in wanted.items())]
    people = [next((row["users"] for row in rows if row["group"] == group), 0) for group in ("known", "new")]
    out: dict[str, dict[str, Any]] = {}
    for group, number, told in zip(("known", "new"), people, tellable(people), strict=True):
        found = {row["metric"]: row["value"] for row in rows if told and row["group"] == group}
        out[f"{group}_users"] = {"users": FEW} if number and not told else found
    return out


def _by_block(sim: Training, stage: str, names: Sequence[str]) -> dict[str, dict[str, dict[str, float]]]:
    """Return {block: {mask: {metric: value}}} right after each block."""
    return {name: {mask: _right_after(sim, stage, name, mask) for mask in MASKS} for name in names}


def _right_after(sim: Training, stage: str, block: str, mask: str) -> dict[str, float]:
    return sim.measured.final(stage=stage, after=block, on=block, mask=mask)


def _average(found: dict[str, dict[str, dict[str, float]]], mask: str) -> dict[str, float]:
    increments = list(found.values())[1:] or list(found.values())
    metrics = increments[0][mask]
    return {metric: float(np.mean([block[mask][metric] for block in increments])) for metric in metrics}


def _kept(sim: Training, blocks: Sequence[str], metric: str, mask: str) -> dict[str, Any]:
    """Return a(t, s) and what follows from it: over all blocks, as the released code averages."""
    matrix = sim.measured.matrix(sim.stages[-1], blocks, metric, mask)
    learned, retained = learning_average(matrix), retained_average(matrix)
    return {
        "metric": metric,
        "matrix": matrix,
        "LA": learned,
        "RA": retained,
        "HM": harmonic_mean(learned, retained),
        "forgetting": forgetting(matrix) if len(blocks) > 1 else 0.0,
    }


def block_table(summary: dict[str, Any]) -> Sheet:
    """Make one row per block and for the average of the increments: the model, its parts, and the references."""
    rows = []
    metrics = [m for m in summary["metrics"] if not m.startswith("HR")]
    first = metrics[0]
    for block in summary["blocks"]:
        rows.append(
            {"test items": block["name"], "best\nround": f"{block['best_round']}/{block['rounds']}"}
            | {m: f"{block['metrics'][m]:.4f}" for m in metrics}
            | {f"{first}\nhistory masked": f"{block['history'][first]:.4f}"}
            | {f"{first}\nknown users": _cell(block["known_users"], first)}
            | {f"{first}\nnew users": _cell(block["new_users"], first)}
            | {f"{first}\n{name}": f"{r[MASKS[0]][first]:.4f}" for name, r in block["references"].items()}
        )
    average = {key: "" for key in rows[0]}
    average |= {"test items": "mean of increments"} | {m: f"{summary['metrics'][m]:.4f}" for m in metrics}
    average[f"{first}\nhistory masked"] = f"{summary['metrics_history_masked'][first]:.4f}"
    average |= {f"{first}\n{n}": f"{r[MASKS[0]][first]:.4f}" for n, r in summary["references"].items()}
    kept = summary["continual"][MASKS[0]]
    caption = (
        f"{kept['metric']}: learning average {kept['LA']:.4f}, retained average {kept['RA']:.4f}, "
        f"forgetting {kept['forgetting']:.4f}; popularity and chance need no learning"
    )
    title = f"{summary['method']} ({summary['backbone']}, {summary['strategy']}) on {summary['data']}, {FULL}"
    return Sheet(title, [*rows, average], words=["test items"], caption=caption, rules=[len(rows) - 1])


def blocks_over_seeds(summary: dict[str, Any]) -> Sheet:
    """Show mean ± sd over seeds, block by block and on average, with references."""
    metrics = [m for m in summary["metrics"] if not m.startswith("HR")]
    lines = {block["name"]: block["metrics"] for block in summary["blocks"]}
    lines["mean of increments"] = summary["metrics"]
    lines |= {name: masks[MASKS[0]] for name, masks in summary["references"].items()}
    rows = [
        {"test items": name} | {m: f"{values[m]['mean']:.4f} ± {values[m]['sd']:.4f}" for m in metrics}
        for name, values in lines.items()
    ]
    title = f"{summary['method']} ({summary['backbone']}, {summary['strategy']}) on {summary['data']}"
    rules = [len(summary["blocks"]) - 1, len(summary["blocks"])]
    title = f"{title}: mean ± sd of {len(summary['seeds'])} seeds, {FULL}"
    return Sheet(title, rows, words=["test items"], rules=rules)


def _cell(values: dict[str, Any], metric: str) -> str:
    return f"{values[metric]:.4f}" if metric in values else values.get("users", "-")


def matrix_figure(summary: dict[str, Any]) -> Figure:
    """Draw a(t, s) as a heat map under each mask: rows are models after block t, columns test items of block s."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5.0 * len(MASKS), 4.2), layout="constrained")
    highest = max(v for mask in MASKS for row in summary["continual"][mask]["matrix"] for v in (*row, 1e-9) if v == v)
    for axis, mask in zip(figure.subplots(1, len(MASKS), squeeze=False)[0], MASKS, strict=True):
        kept = summary["continual"][mask]
        size = len(kept["matrix"])
        values = np.full((size, size), np.nan)
        for t, row in enumerate(kept["matrix"]):
            values[t, : t + 1] = row
        axis.imshow(values, cmap="viridis", vmin=0, vmax=highest)
        for t in range(size):
            for s in range(t + 1):
                ink = "black" if values[t, s] > 0.6 * highest else "white"
                axis.text(s, t, f"{values[t, s]:.3f}", ha="center", va="center", color=ink, fontsize="small")
        ticks = [f"D{number}" for number in range(size)]
        axis.set(
            title=f"{kept['metric']}, mask: {mask}",
            xlabel="test items of",
            ylabel="model after",
            xticks=range(size),
            yticks=range(size),
            xticklabels=ticks,
            yticklabels=ticks,
        )
    figure.suptitle(f"{summary['method']} ({summary['strategy']}) on {summary['data']}", fontsize="medium")
    return figure


def block_curves(rows: list[dict[str, Any]], summary: dict[str, Any]) -> Figure:
    """Draw validation over the rounds of every block; a dot marks the round that was kept."""
    from matplotlib.figure import Figure

    metric = summary["continual"][MASKS[0]]["metric"]
    points = [row for row in rows if row["round"] is not None and row["metric"] == metric]
    blocks = summary["blocks"]
    figure = Figure(figsize=(3.4 * len(blocks), 3.2), layout="constrained")
    for axis, block in zip(figure.subplots(1, len(blocks), squeeze=False)[0], blocks, strict=True):
        curve = [(row["round"], row["value"]) for row in points if row["after"] == block["name"]]
        if curve:
            axis.plot(*zip(*curve, strict=True))
            if block["validation"] is not None:
                axis.plot(block["best_round"], block["validation"], "o", color="tab:red")
        axis.set(title=block["name"], xlabel="round", ylabel=f"{metric}, validation", ylim=(0, None))
        axis.grid(alpha=0.3)
    figure.suptitle(f"{summary['method']} ({summary['strategy']}) on {summary['data']}", fontsize="medium")
    return figure
