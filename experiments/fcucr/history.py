"""Finished runs of FCUCR with what a device knows beside the model: its own items first, then model and popularity.

    python experiments/fcucr/history.py DATA RUN [RUN ...]

Nothing is trained here. Each run's model of its best round is asked with `sessions.history_bonus` and several values
of `sessions.popularity_weight` (ours, not the paper's), on validation and on test sessions, beside the reference that
knows as much. One line of CSV per run, scorer and part; choose the weight by the validation lines.
"""

import sys
from dataclasses import replace
from pathlib import Path

import torch

from edgefr.engine.model import Model
from edgefr.fleet import load_fleet
from edgefr.simulation.evaluation.ranking import evaluate
from edgefr.simulation.loop import Training
from edgefr.simulation.prepare import prepare
from edgefr.simulation.runs.run import Run
from edgefr.simulation.stages.sessions import HELD

WEIGHTS = (0.0, 1.0, 3.0, 10.0, 30.0, 100.0)


def ask(path: Path, data_dir: Path) -> None:
    """Print HR@10 and NDCG@10 of one run's model with each weight, and of the reference."""
    run = Run.open(path)
    prepared = prepare(run.experiment, data_dir, "cpu")
    fleet, nothing = load_fleet(path / "devices.yaml"), lambda events: None
    training = Training.start(run.experiment, prepared, fleet, torch.device("cpu"), nothing)
    stage, model = training.stage, Model.of(run.read_tensors("model"), training.federation.program)
    for which in HELD:
        all_seen = "all seen, then popularity"
        known = {all_seen: stage.references(training, which)[all_seen]}
        for weight in WEIGHTS:
            ours = run.experiment.sessions.model_copy(update={"history_bonus": 1e4, "popularity_weight": weight})
            weighted = replace(stage, experiment=run.experiment.model_copy(update={"sessions": ours}))
            known[f"weight {weight:g}"] = weighted.score(training, model, which)
        for name, score in known.items():
            found = evaluate(score, prepared.train_split, which, "sampled").metrics([10])
            print(f'{path.name},"{name}",{which},{found["HR@10"]:.4f},{found["NDCG@10"]:.4f}', flush=True)


if __name__ == "__main__":
    torch.set_num_threads(1)
    print("run,scorer,part,HR@10,NDCG@10")
    for folder in sys.argv[2:]:
        ask(Path(folder), Path(sys.argv[1]))
