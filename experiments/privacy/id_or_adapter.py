"""Does an adapter's upload give away less than an item table's (TransFR §3.3.2)? The same attacks on both, at one NDCG.

python experiments/privacy/id_or_adapter.py OUT [--users 100]

Generated data, seed 0, no clip and no noise. TransFR (an adapter over known texts) and FedMF (an item table) after
those of a few numbers of rounds at which their NDCG@10 are nearest. Membership is the same attack on either; which
items a client had is asked in the way that suits: signs of table rows, texts against the adapter's first layer.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import edgefr
from edgefr.engine.device import one_thread
from edgefr.studies.audits.attacks import matching, membership, sign_split
from edgefr.studies.audits.finding import Effort, Finding
from edgefr.studies.audits.target import AttackTarget

METRIC = "NDCG@10"
TRANSFR = ["method=transfr", "model.adapter_init=random", "model.local_training_epochs=0"]
FEDMF = ["method=fedmf"]
ROUNDS = {"transfr": (2, 5, 10), "fedmf": (20, 40, 43, 46, 60)}


def ran(out: Path, changes: list[str]) -> edgefr.Run:
    """Return a run with these settings, made before or now; evaluation after the rounds, without local training."""
    if (out / "summary.json").exists():
        return edgefr.Run.open(out)
    return edgefr.simulate(edgefr.load_experiment(overrides=changes), out=out, bundles=False, page=False)


def worth(run: edgefr.Run) -> float:
    """Return the run's test NDCG@10."""
    return float(run.summary["metrics"][METRIC])


def shown(name: str, run: edgefr.Run, effort: Effort) -> list[str]:
    """Return a line per attack on a run's uploads."""
    target = AttackTarget.open(run)
    with one_thread():
        found = [attack(target, effort, lambda *told: None) for attack in (membership, sign_split, matching)]
    values = sum(target.program.specs[n].size for n in target.sent)
    return [f"| {name} | {values:,} | {worth(run):.3f} | {line(one)} |" for one in found if not one.note]


def line(found: Finding) -> str:
    """Return what an attack reached, and in brackets what knowing nothing reaches."""
    pairs = [(found.auc, found.auc_null), (found.best_auc, found.best_auc_null), (found.tpr, found.tpr_null)]
    said = ["-" if value is None else f"{value:.3f} [{null:.3f}]" for value, null in pairs]
    return " | ".join([found.attack, str(found.of), *said])


def main() -> None:
    """Simulate, match, attack, print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("out", type=Path)
    parser.add_argument("--users", type=int, default=100)
    given = parser.parse_args()
    runs = {
        method: [ran(given.out / f"{method}-{n}", [*changes, f"rounds={n}"]) for n in ROUNDS[method]]
        for method, changes in (("transfr", TRANSFR), ("fedmf", FEDMF))
    }
    for method, some in runs.items():
        by_rounds = zip(ROUNDS[method], some, strict=True)
        print(f"{method}, {METRIC} by rounds:", ", ".join(f"{n}: {worth(run):.3f}" for n, run in by_rounds))
    pairs = [(adapter, table) for adapter in runs["transfr"] for table in runs["fedmf"]]
    adapter, nearest = min(pairs, key=lambda pair: abs(worth(pair[0]) - worth(pair[1])))
    effort = Effort(users=given.users)
    print("| uploads | values | NDCG@10 | attack | of | AUC | best sign | TPR at 1 % FPR |\n" + 8 * "|---" + "|")
    for row in [*shown("adapter (TransFR)", adapter, effort), *shown("item table (FedMF)", nearest, effort)]:
        print(row)


if __name__ == "__main__":
    main()
