"""Put beside each other what readers of titles are worth and what they cost a device.

    python experiments/transfr/readers.py RUNS DEVICES OUT

RUNS holds folders `READER,arts-office` and `READER,office-arts` of seeds (`edgefr simulate --seeds`), DEVICES a run
with bundles for each reader, under the part of its name before a plus. Writes OUT.csv and OUT.svg. HR@10 of the
held-out item among itself and 99 sampled ones, mean and standard deviation over seeds; ms and mJ of a recommendation
and of reading one title, from a bundle's own card.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

DIRECTIONS = ("arts-office", "office-arts")
ASKED = {"warm": ("source", "finetune"), "cold": ("target", "finetune"), "transfer": ("target", "localtrain")}
"""Known items after the rounds; unseen items of another domain; these once a client has some of them."""
CLASSES = ("rpi_zero_2w", "phone_pixel8")


def quality(runs: Path, reader: str) -> dict[str, float | int]:
    """Return mean and standard deviation of what was asked, in both directions."""
    out: dict[str, float | int] = {}
    for direction in DIRECTIONS:
        seeds = sorted((runs / f"{reader},{direction}").glob("**/private/users.parquet"))
        found = [pd.read_parquet(path) for path in seeds]
        out["seeds"] = min(len(found), out.get("seeds", len(found)))
        for name, (on, stage) in ASKED.items():
            asked = [u[(u.ranking == "sampled") & (u.on == on) & (u.stage == stage)]["HR@10"].mean() for u in found]
            out[f"{name} {direction}"] = float(np.mean(asked))
            out[f"{name} {direction} sd"] = float(np.std(asked, ddof=1))
    return out


def cost(devices: Path, reader: str) -> dict[str, float]:
    """Return the size of a bundle, and what a call takes on each class of devices."""
    summary = json.loads((devices / reader.partition("+")[0] / "summary.json").read_text(encoding="utf-8"))
    bundles = {bundle["class"]: bundle for bundle in summary["bundles"]}
    out = {"MB": bundles[CLASSES[0]]["files_mb"]}
    for name in CLASSES:
        out |= {f"ms {name}": bundles[name]["latency_ms"], f"mJ {name}": bundles[name]["energy_mj"]}
    return out


def drawn(table: pd.DataFrame) -> Figure:
    """Return a panel for known and one for unseen items: HR@10 against milliseconds."""
    figure = Figure(figsize=(9, 3.8), layout="constrained")
    panels = {"warm": "known items, after rounds", "cold": "unseen items of another domain"}
    ms = table[f"ms {CLASSES[0]}"]
    for axes, (name, title) in zip(figure.subplots(1, 2), panels.items(), strict=True):
        for direction, marker in zip(DIRECTIONS, "o^", strict=True):
            worth, apart = table[f"{name} {direction}"], table[f"{name} {direction} sd"]
            axes.errorbar(ms, worth, apart, fmt=marker, ms=4, label=direction.replace("-", " to "))
            for reader, x, y in zip(table.index, ms, worth, strict=True):
                axes.annotate(reader, (x, y), fontsize=6, xytext=(3, 3), textcoords="offset points")
        axes.set(xscale="log", xlabel="ms on a Pi Zero 2 W to recommend and read a title", ylabel="HR@10", title=title)
        axes.set_xticks((20, 50, 100, 200), ("20", "50", "100", "200"))
        axes.minorticks_off()
        axes.margins(x=0.15)
        axes.grid(alpha=0.3)
        axes.legend(fontsize=7)
    return figure


def main(runs: Path, devices: Path, out: Path) -> None:
    """Read the runs, write the table and draw it."""
    readers = sorted({path.name.partition(",")[0] for path in runs.iterdir()})
    table = pd.DataFrame({name: cost(devices, name) | quality(runs, name) for name in readers}).T
    table = table.sort_values([f"ms {CLASSES[0]}"], kind="stable")
    table.round(5).to_csv(out.with_suffix(".csv"), index_label="reader", lineterminator="\n")
    drawn(table).savefig(out.with_suffix(".svg"), metadata={"Date": None})


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    main(*(Path(name) for name in sys.argv[1:]))
