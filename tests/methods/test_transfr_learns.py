"""The default run of TransFR learns something true, from rounds and from texts, and its cold start is one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from edge.ragged import Ragged
from edgefr.data.prepared_data import Prepared
from edgefr.experiment.experiment import Experiment, load_experiment
from edgefr.methods.transfr.program import TransFR
from edgefr.methods.transfr.settings import TransFRSettings
from edgefr.metrics.settings import CONTEXT, UNLEARNED, UNLEARNED_IN_CONTEXT
from edgefr.simulation.loop import Training
from edgefr.simulation.prepare import prepare
from edgefr.simulation.summary.summary import summarise_splits
from tests.federations import begun

HASHED = ["encoder.kind=hash", "encoder.width=64", "engine.shard_size=32", "rounds=12", "evaluation.every=12"]
ACROSS = [*HASHED, "protocol.name=cross-domain", "protocol.source=books", "protocol.target=films"]
Change = Callable[[Prepared], Prepared]


def trained(overrides: list[str], change: Change = lambda prepared: prepared) -> Training:
    """Run the default method on the generated data, whose preparation `change` has altered."""
    experiment: Experiment = load_experiment(overrides=overrides)
    run = begun(experiment, change(prepare(experiment, None, "cpu")))
    run.train()
    return run


def found(run: Training, stage: str, on: str) -> Any:
    """Return users and their NDCG@10 by full ranking."""
    users, metrics = run.measured.users[stage, on, "full"]
    return users, metrics["NDCG@10"]


@pytest.fixture(scope="module")
def across() -> Training:
    return trained(ACROSS)


def test_rounds_help_and_local_training_does_not_hurt() -> None:
    run = trained([*HASHED, "rounds=25"])
    (users, before), (_, after), (_, own) = (found(run, s, "main") for s in (UNLEARNED, "finetune", "localtrain"))
    gain = after - before
    assert gain.mean() > 3 * gain.std() / np.sqrt(len(users))
    assert own.mean() > after.mean() - 2 * (own - after).std() / np.sqrt(len(users))


def test_texts_that_are_shuffled_say_nothing() -> None:
    def shuffled(prepared: Prepared) -> Prepared:
        assert prepared.text is not None
        order = np.random.default_rng(3).permutation(len(prepared.text.vectors))
        return replace(prepared, text=replace(prepared.text, vectors=prepared.text.vectors[order]))

    plain, random = trained([*HASHED, "rounds=1"]), trained([*HASHED, "rounds=1"], shuffled)
    hits = {
        name: run.measured.users["pretrain", "main", "sampled"][1]["HR@10"]
        for name, run in (("plain", plain), ("random", random))
    }
    spread = np.sqrt(0.1 * 0.9 / len(hits["plain"]))
    assert abs(hits["random"].mean() - 0.1) < 4 * spread
    assert hits["plain"].mean() > 0.1 + 8 * spread


def test_a_cold_start_knows_nothing_of_the_target(across: Training) -> None:
    """Without any training item of the target, cold figures are the same; those with its items are not."""

    def emptied(prepared: Prepared) -> Prepared:
        target = prepared.splits["target"]
        bare = replace(target, train=Ragged.empty(len(target.train)))
        return replace(prepared, splits={**prepared.splits, "target": bare})

    bare = trained(ACROSS, emptied)
    for stage in (UNLEARNED, "pretrain", "finetune"):
        users, values = across.measured.users[stage, "target", "sampled"]
        others, same = bare.measured.users[stage, "target", "sampled"]
        assert np.array_equal(users, others)
        assert all(np.array_equal(values[name], same[name]) for name in values)
    with_items, without = (run.measured.users[CONTEXT, "target", "sampled"][1]["HR@10"] for run in (across, bare))
    assert not np.array_equal(with_items, without)


def test_items_of_the_target_are_a_stage_of_their_own_before_anything_is_trained_on_them(across: Training) -> None:
    stages = across.measured.table()["target"]
    assert [name for name in stages if name in ("finetune", CONTEXT, "localtrain")] == [
        "finetune",
        CONTEXT,
        "localtrain",
    ]
    assert UNLEARNED_IN_CONTEXT in stages
    assert CONTEXT not in across.measured.table()["source"]
    assert stages[CONTEXT] != stages["finetune"]
    verdicts = summarise_splits(across)["learning"]["target"]
    assert UNLEARNED_IN_CONTEXT not in verdicts["finetune"]["against"], "it knows what a cold start may not"
    assert {UNLEARNED, UNLEARNED_IN_CONTEXT} <= verdicts[CONTEXT]["against"].keys()


def test_one_model_of_the_source_is_tested_in_each_of_several_targets(tmp_path: Path) -> None:
    draw = np.random.default_rng(0)
    rows = ["user,item,time,title,domain"]
    for user in range(30):
        for shop in ("books", "films", "games"):
            had = enumerate(draw.permutation(25)[:6])
            rows += [f"u{user},{shop}{i},{1000 * user + n},{shop} of kind {i % 5},{shop}" for n, i in had]
    (tmp_path / "shops.csv").write_text("\n".join(rows))
    task = ["protocol.name=cross-domain", "protocol.source=books", "protocol.negatives=10", "rounds=2"]
    data = [f"data={tmp_path / 'shops.csv'}", "data_options={texts: [title]}"]
    run = trained([*HASHED, *task, *data, "protocol.target=[films, games]"])
    both = summarise_splits(run)
    assert list(both["stages"]) == ["source", "target films", "target games"]
    assert list(both["transfer"]["HR@10"]) == ["source", "target films", "delta films", "target games", "delta games"]
    assert "books -> films and games" in run.prepared.protocol
    alone = summarise_splits(trained([*HASHED, *task, *data, "protocol.target=films"]))["stages"]
    assert alone["source"] == both["stages"]["source"]
    assert alone["target"].keys() == both["stages"]["target films"].keys()


def test_a_share_of_what_rounds_changed_is_kept() -> None:
    text = torch.from_numpy(np.random.default_rng(0).standard_normal((20, 16)).astype(np.float32))
    settings = TransFRSettings(adapter=[8, 4], head=[4], keep=0.25)
    program = TransFR(settings, text, local_epochs=1)
    first = program.init_shared(3)
    moved = {name: value + 1.0 for name, value in first.items()}
    for name, value in program.kept(3, moved).items():
        torch.testing.assert_close(value, first[name] + 0.25)
    whole = TransFR(settings.model_copy(update={"keep": 1.0}), text, local_epochs=1).kept(3, moved)
    assert all(torch.equal(whole[name], value) for name, value in moved.items())
