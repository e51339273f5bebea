"""Does unlearning by training anew work? Users who leave, and others who were never there, are attacked.

    python experiments/privacy/unlearning.py method=fedmf --data ml-100k --out U-fedmf

`--users` of them leave at once, as many are never in the data. A line a group: how well a user's items are told from
others by the tensors before and after, as mean AUC over users with its 95 % interval; then how well the leavers are
told from those who were never there, by that AUC.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

import edgefr
from edgefr.data.datasets import load
from edgefr.data.filtering import of_users
from edgefr.simulation.retrain import again, retrain
from edgefr.studies.audits.reference_attack import attacked
from edgefr.studies.audits.target import AttackTarget
from privacy.audits import auc, auc_interval


def main() -> None:
    """Train, unlearn, train the attacker's own run, attack, and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("settings", nargs="*")
    parser.add_argument("--experiment", type=Path)
    parser.add_argument("--data", default="ml-100k")
    parser.add_argument("--users", type=int, default=50)
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    whole = load(given.data)
    drawn = np.random.default_rng(0).permutation(len(whole.users))[: 2 * given.users]
    leavers, strangers = np.sort(drawn[: given.users]), np.sort(drawn[given.users :])
    data = of_users(whole, np.delete(whole.users, strangers).tolist())
    experiment = edgefr.load_experiment(given.experiment, overrides=[*given.settings, "data=given"])
    before = edgefr.simulate(experiment, data=data, out=given.out / "before", bundles=False, page=False)
    after = retrain(before, whole.users[leavers].tolist(), given.out / "after", data=data)
    once_more = again(after, given.out / "reference", data=of_users(data, np.delete(whole.users, drawn).tolist()))
    seconds = [run.summary["engine"]["wall_seconds"] for run in (before, after)]
    print(f"first run {seconds[0]:.1f} s, unlearning {seconds[1]:.1f} s")
    reference = AttackTarget.open(once_more)
    places = {item: at for at, item in enumerate(reference.model.names.items)}
    found: dict[str, list[np.ndarray]] = {"before": [], "after": []}
    for name, run in (("before", before), ("after", after)):
        target = AttackTarget.open(run)
        for group, users in (("leavers", leavers), ("never there", strangers)):
            told = []
            for user in users:
                rows = slice(*whole.offsets[user : user + 2])
                had = np.array([places[item] for item in whole.catalogue.ids[whole.item[rows]] if item in places])
                told.append(attacked(target, reference, np.sort(had[:-2]), had[-2:]).auc)  # two are held out
            values = np.array(told)
            half = 1.96 * values.std(ddof=1) / np.sqrt(len(values))
            print(
                f"{name}, {group}: items {values.mean():.3f} [{values.mean() - half:.3f}, {values.mean() + half:.3f}]"
            )
            found[name].append(values)
    for name, (members, others) in found.items():
        low, high = auc_interval(members, others)
        print(f"{name}: leavers from those never there {auc(members, others):.2f} [{low:.2f}, {high:.2f}]")


if __name__ == "__main__":
    main()
