"""A server rule is one file, and so is a similarity: these add their own, run them and take them away."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

import edgefr
from cloud.rule import AggregationSettings
from cloud.similarities import SIMILARITIES, Similarity
from edgefr import Experiment, InputError, load_experiment

SMALL = ["data_options={users: 50, items: 160}", "rounds=2", "evaluation.full_ranking_users=0"]


def _run(out: Path, *changes: str, method: str = "fedmf") -> edgefr.Run:
    experiment = load_experiment(overrides=[f"method={method}", *SMALL, *changes])
    assert Experiment.model_validate(experiment.model_dump()) == experiment
    return edgefr.simulate(experiment, out=out, bundles=False, page=False)


def _table(run: edgefr.Run) -> Tensor:
    return run.read_tensors("model")["shared.item"]


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        (["aggregation.beta=0.5"], "aggregation.beta: beta belongs to temporal-mean, and rule is mean: drop it"),
        (["aggregation.keep=3"], "keep belongs to krum, and rule is mean"),
        (["aggregation.rule=median", "aggregation.trim=0.1"], "trim belongs to trimmed-mean, and rule is median"),
        (["aggregation.rule=krum", "aggregation.optimiser=adam"], "optimiser belongs to mean, and rule is krum"),
        (["aggregation.rule=mediam"], "aggregation.rule: unknown rule 'mediam'; did you mean 'median'"),
        (["aggregation.serverlr=2"], "unknown key 'serverlr'; did you mean 'server_lr'"),
        (
            ["privacy.sigma=1"],
            "privacy.sigma: sigma belongs to laplace, .* and mechanism is none.*; sigma needs a clip too: set clip",
        ),
        (["privacy.epsilon=2"], "or set mechanism to [a-z -]*gaussian; epsilon needs a clip too: set clip"),
        (["privacy.epsilon=2", "privacy.clip=1"], "or set mechanism to [a-z -]*gaussian$"),
        (["privacy.mechanism=gaussian"], "exactly one of sigma, epsilon, scale; got none .* need a clip too: set clip"),
        (["method=gpfedrec", "aggregation.similarity=cosines"], "unknown similarity 'cosines'; did you mean 'cosine'"),
    ],
)
def test_a_key_that_nobody_reads_is_refused_with_its_owner(changes: list[str], says: str) -> None:
    with pytest.raises(InputError, match=says):
        load_experiment(overrides=changes)


def test_a_run_with_a_similarity_of_ones_own(tmp_path: Path) -> None:
    calls = []

    def alike(rows: object, clients: int, table: Tensor) -> np.ndarray:
        calls.append(clients)
        return np.eye(clients)

    with SIMILARITIES.having(Similarity("nobody", alike, "this test")):
        own = _run(tmp_path / "own", "aggregation.similarity=nobody", method="gpfedrec")
    assert len(calls) == 2
    with pytest.raises(InputError, match="unknown similarity 'nobody'"):
        _run(tmp_path / "gone", "aggregation.similarity=nobody", method="gpfedrec")
    cosine = _run(tmp_path / "cosine", method="gpfedrec")
    assert not torch.equal(_table(own), _table(cosine)) or own.summary["metrics"] != cosine.summary["metrics"]


def test_another_strategy_takes_the_rule_of_the_files_strategy_with_what_it_read(tmp_path: Path) -> None:
    file = tmp_path / "experiment.yaml"
    file.write_text("method: f3crec\nstrategy: f3crec\nprotocol: {name: blocks}\naggregation: {beta: 0.3}\n")
    with_file = load_experiment(file)
    assert with_file.aggregation == AggregationSettings(rule="temporal-mean", beta=0.3)
    assert load_experiment(file, ["strategy=ft"]).aggregation == AggregationSettings()
    other = load_experiment(file, ["strategy=f3crec-no-itemwise"]).aggregation
    assert other == AggregationSettings(rule="temporal-mean", beta=0.3, itemwise=False)
    with pytest.raises(InputError, match="beta belongs to temporal-mean"):
        load_experiment(file, ["strategy=ft", "aggregation.beta=0.4"])
