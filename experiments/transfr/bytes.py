"""Count what travels in a round against the size of the catalogue (TransFR §3.3.3), ID methods beside.

    python experiments/transfr/bytes.py OUT

Writes OUT.csv and OUT.svg. Counted by the simulator's own rules (`edgefr.engine.footprint`): whole shared tensors, both
ways, float32; and what a client that is new fetches once, which is no part of the paper's count: TransFR's item vectors
(float16), or the encoder where its clients read titles themselves.
"""

from __future__ import annotations

import csv
import sys
from pathlib import Path

import torch
from matplotlib.figure import Figure

from edgefr.engine.aggregate import released_values
from edgefr.engine.footprint import FLOAT, fetched_values, frozen_bytes
from edgefr.experiment.experiment import load_experiment
from export.given import Given

ITEMS = (1_000, 10_000, 100_000, 1_000_000, 10_000_000)
METHODS = ("fedmf", "fcf", "fedncf", "pfedrec", "fedrap", "fedcar", "transfr")
WIDTH = 312
"""Values of an item's text vector: the paper's f."""
MB = 1e6


def counted(method: str, items: int) -> dict[str, str | int | float]:
    """Return what a client of a method fetches and sends in a round, and fetches once, MB."""
    own = ["model.adapter_init=random"] if method == "transfr" else []
    experiment = load_experiment(overrides=[f"method={method}", *own])
    text = torch.zeros(1, WIDTH).expand(items, WIDTH)  # takes no memory, whatever the catalogue
    settings = experiment.row.settings.model_validate(experiment.model)
    program = experiment.row.program(settings, Given(items, experiment.local_epochs, text))
    down, up = FLOAT * fetched_values(program) / MB, FLOAT * released_values(program, None) / MB
    return {"method": method, "items": items, "MB down": down, "MB up": up, "MB once": frozen_bytes(program) / MB}


def drawn(rows: list[dict[str, str | int | float]]) -> Figure:
    """Return a line per method, and a dashed one for what TransFR's new client fetches once."""
    figure = Figure(figsize=(6, 3.6), layout="constrained")
    axes = figure.subplots()
    for method in METHODS:
        mine = [row for row in rows if row["method"] == method]
        line = [float(row["MB down"]) + float(row["MB up"]) for row in mine]
        axes.plot([float(row["items"]) for row in mine], line, marker="o", label=f"{method}, a round")
    once = [(float(row["items"]), float(row["MB once"])) for row in rows if row["method"] == "transfr"]
    axes.plot(*zip(*once, strict=True), "k--", label=f"transfr, once: {WIDTH} values an item")
    axes.set(xscale="log", yscale="log", xlabel="items", ylabel="MB, down and up")
    axes.grid(alpha=0.3)
    axes.legend(fontsize=7)
    return figure


def main(out: Path) -> None:
    """Count, write the table and draw the lines."""
    rows = [counted(method, items) for method in METHODS for items in ITEMS]
    with open(out.with_suffix(".csv"), "w", newline="", encoding="utf-8") as file:
        table = csv.DictWriter(file, fieldnames=list(rows[0]), lineterminator="\n")
        table.writeheader()
        table.writerows(rows)
    drawn(rows).savefig(out.with_suffix(".svg"))


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(Path(sys.argv[1]))
