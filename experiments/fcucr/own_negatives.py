"""Finished runs of FCUCR's tables, asked again with other negatives: half of them the user's own training items.

    python experiments/fcucr/own_negatives.py DATA RUN [RUN ...]

A run of `edgefr reproduce fcucr` keeps the model of its best round. Nothing is trained here; the model and the
references rank each test target among itself and 100 items of protocol.candidates `own`, where having had an item tells
nothing. One line of CSV per run and scorer.
"""

import sys
from pathlib import Path

import torch

from edgefr.engine.model import Model
from edgefr.fleet import load_fleet
from edgefr.simulation.evaluation.ranking import evaluate
from edgefr.simulation.loop import Training
from edgefr.simulation.prepare import prepare
from edgefr.simulation.runs.run import Run


def ask(path: Path, data_dir: Path) -> None:
    """Print HR@10 and NDCG@10 of one run's model and of the references."""
    run = Run.open(path)
    own = run.experiment.protocol.model_copy(update={"candidates": "own"})
    experiment = run.experiment.model_copy(update={"protocol": own})
    prepared = prepare(experiment, data_dir, "cpu")
    fleet, nothing = load_fleet(path / "devices.yaml"), lambda events: None
    training = Training.start(experiment, prepared, fleet, torch.device("cpu"), nothing)
    stage, model = training.stage, Model.of(run.read_tensors("model"), training.federation.program)
    scorers = {"model": stage.score(training, model, "test"), **stage.references(training, "test")}
    for name, score in scorers.items():
        found = evaluate(score, prepared.train_split, "test", "sampled").metrics([10])
        print(f'{path.name},"{name}",{found["HR@10"]:.4f},{found["NDCG@10"]:.4f}', flush=True)


if __name__ == "__main__":
    torch.set_num_threads(1)
    print("run,scorer,HR@10,NDCG@10")
    for folder in sys.argv[2:]:
        ask(Path(folder), Path(sys.argv[1]))
