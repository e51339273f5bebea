"""Reports of continual runs: what each block gave, what was kept of the earlier ones, and how references compare."""

from __future__ import annotations

from typing import Any

from edgefr.config.sheet import Sheet
from edgefr.metrics.continual import MASKS
from edgefr.report.verdict import FULL


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
        f"forgetting {kept['forgetting']:.4f}; popularity and chance are baselines without training"
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
