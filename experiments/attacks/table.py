"""Attacks against rules, clip and noise: one sweep per part, and the runs of all in one table.

python experiments/attacks/table.py OUT [--seeds N] [--workers N]     OUT: a folder; a sweep that ended there is kept
"""

from __future__ import annotations

import argparse
import csv
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
RULES = "aggregation.rule=[mean,median,trimmed-mean,krum,norm-bounded]"
ATTACKS = ("attackers.kind=[pieck-ipe,pieck-uea,fedrecattack]", "attackers.share=[0.01,0.05]")
CLIP = ("privacy.clip=1",)
NOISE = (*CLIP, "privacy.mechanism=gaussian", "privacy.epsilon=8")
BEYOND = ("attackers.beyond=true",)
PARTS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "plain": ((), (RULES,)),
    "clip": (CLIP, (RULES,)),
    "noise": (NOISE, ()),
    "beyond": (BEYOND, ("aggregation.rule=[mean,norm-bounded]",)),
    "beyond the clip": ((*CLIP, *BEYOND), ()),
}
"""What is set in each part, and what is swept beside the attacks."""
KEPT = ("aggregation.rule", "attackers.kind", "attackers.share", "seed", "ER@10", "rank", "honest HR@10")
COLUMNS = ("part", *KEPT, "honest NDCG@10", "eps_guaranteed", "seconds")


def main() -> None:
    """Run what is missing, and write attacks.csv beside this file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--workers", type=int, default=2)
    asked = parser.parse_args()
    rows: list[dict[str, str]] = []
    for part, (chosen, grid) in PARTS.items():
        for swept in (("attackers.share=[0]",), ATTACKS):
            if part.startswith("beyond") and swept is not ATTACKS:
                continue  # without attackers it is the part that is like it but for that
            folder = asked.out / f"{part.replace(' ', '-')}-{'attacked' if swept is ATTACKS else 'alone'}"
            rows += [{"part": part} | row for row in _sweep(folder, chosen, (*grid, *swept), asked)]
    with (HERE / "attacks.csv").open("w", newline="", encoding="utf-8") as file:
        table = csv.DictWriter(file, COLUMNS, extrasaction="ignore", restval="")
        table.writeheader()
        table.writerows({"aggregation.rule": "mean", "attackers.kind": "none"} | row for row in rows)


def _sweep(folder: Path, chosen: tuple[str, ...], grid: tuple[str, ...], asked: argparse.Namespace) -> list[dict]:
    if not (folder / "runs.csv").is_file():
        words = [word for value in chosen for word in ("--set", value)]
        words += [word for value in grid for word in ("--grid", value)]
        words += ["--seeds", str(asked.seeds), "--workers", str(asked.workers), "--out", str(folder)]
        start = [sys.executable, "-m", "edgefr", "sweep", "--experiment", str(HERE / "fedmf-ml-100k.yaml")]
        subprocess.run([*start, "--devices", "devices.yaml", *words], check=True)
    with (folder / "runs.csv").open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


if __name__ == "__main__":
    main()
