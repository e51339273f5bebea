"""`edgefr tune`: the same trials after any kill, one set of rules for a folder, recipes that run."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from edgefr.studies.sweeps.space import Range

import edgefr
from edgefr.studies.jobs import Failed
from edgefr.studies.reproductions.fedcar.recipes import _rules
from edgefr.studies.tuning import run as tuning
from edgefr.studies.tuning import trial as trials
from edgefr.studies.tuning.rules import Rules
from edgefr.studies.tuning.space import Base, Space
from edgefr.studies.tuning.trial import Job
from edgefr.studies.tuning.tune import tune
from privacy.errors import InputError
from privacy.files import write_json

SMALL = ["rounds=2", "model.dim=4", "data_options={users: 60, items: 160, interactions: 12}"]
RULES = Rules(trials=6, patience=5)
SPACES = {
    "fedmf": {"experiment": {"method": "fedmf"}, "ranges": {"model.lr": "log(0.1, 10)"}},
    "pfedrec": {"experiment": {"method": "pfedrec"}, "ranges": {"model.lr": "log(0.01, 1)"}},
}


@pytest.fixture
def spaces(tmp_path: Path) -> Path:
    folder = tmp_path / "spaces"
    folder.mkdir()
    for name, content in SPACES.items():
        (folder / f"{name}.yaml").write_text(yaml.safe_dump(content))
    return folder


@pytest.fixture(autouse=True)
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Trials are made in this process, and without archives."""
    monkeypatch.delenv("EDGEFR_DATA", raising=False)

    def at_once(call: Any, jobs: list[Job], common: Any, *_: Any) -> Iterator[tuple[Job, Any]]:
        for job in jobs:
            try:
                yield job, call(job, common)
            except Exception as error:
                yield job, Failed(f"{type(error).__name__}: {error}")

    monkeypatch.setattr(tuning, "run_jobs", at_once)


def tuned(spaces: Path, out: Path, *names: str, **options: Any) -> edgefr.studies.tuning.tune.Report:
    rules = options.pop("rules", RULES)
    return tune(list(names or ["fedmf"]), spaces=spaces, rules=rules, overrides=SMALL, out=out, **options)


def kept(out: Path) -> dict[str, Any]:
    """Every trial's record without its seconds, by folder."""
    found = {path.parent.name: json.loads(path.read_text()) for path in sorted(out.rglob("trial.json"))}
    return {name: {k: v for k, v in record.items() if k != "cpu_seconds"} for name, record in found.items()}


def test_every_method_has_a_recipe_that_loads_and_a_table_of_its_trials(spaces: Path, tmp_path: Path) -> None:
    found = tuned(spaces, tmp_path / "out", "fedmf", "pfedrec")
    assert not found.failures
    for name in SPACES:
        recipe = tmp_path / "out" / "recipes" / f"{name}.yaml"
        experiment = edgefr.load_experiment(recipe)
        table = found.tables[name]
        best = table.sort_values(["validation NDCG@10", "trial"], ascending=[False, True]).iloc[0]
        assert (experiment.method, experiment.seed) == (name, 0)
        assert experiment.model["lr"] == best["model.lr"]
        assert experiment.evaluation.curve_ranking == "full"
        assert experiment.evaluation.keep == "best", "as in its trials"
        assert len(table) == RULES.trials
        assert _rules(recipe) == RULES.columns, "rows of a table can be told to be searched alike"
        assert "test items are not looked at" in recipe.with_suffix(".md").read_text()
    assert list(found.tables["budgets"]["trials"]) == [6, 6]
    assert list(found.tables["budgets"]["fields"]) == [1, 1]


@pytest.mark.parametrize("after", [1, 3, 4, 5])
def test_a_killed_search_goes_on_with_the_trials_it_would_have_had(spaces: Path, tmp_path: Path, after: int) -> None:
    tuned(spaces, tmp_path / "whole")
    count = 0

    def progress(stage: str, done: int, total: int, note: str) -> None:
        nonlocal count
        count = done
        if done == after:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        tuned(spaces, tmp_path / "killed", progress=progress)
    assert count == after
    assert len(kept(tmp_path / "killed")) == after
    tuned(spaces, tmp_path / "killed")
    assert kept(tmp_path / "killed") == kept(tmp_path / "whole")
    recipes = [(tmp_path / which / "recipes" / "fedmf.yaml").read_text() for which in ("whole", "killed")]
    assert recipes[0] == recipes[1]


def test_a_finished_search_makes_nothing_again(spaces: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = tuned(spaces, tmp_path / "out")
    monkeypatch.setattr(trials, "make", lambda job, data_dir: pytest.fail("made again"))
    assert tuned(spaces, tmp_path / "out").records == first.records


@pytest.mark.parametrize(
    "maths", [FloatingPointError("overflow"), np.linalg.LinAlgError("singular"), torch.linalg.LinAlgError("singular")]
)
def test_a_trial_whose_own_maths_fails_counts_and_says_why(
    spaces: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, maths: Exception
) -> None:
    rounds = trials._rounds

    def sometimes(job: Job, experiment: edgefr.Experiment, data_dir: Path | None) -> trials.Watched:
        if job.trial.number == 1:
            raise maths
        return rounds(job, experiment, data_dir)

    monkeypatch.setattr(trials, "_rounds", sometimes)
    found = tuned(spaces, tmp_path / "out")
    assert found.failures == {"fedmf, trial 1": f"{type(maths).__name__}: {maths}"}
    assert found.tables["budgets"]["failed"][0] == 1
    assert len(found.tables["fedmf"]) == RULES.trials


@pytest.mark.parametrize(
    "outside",
    [OSError("disk full"), MemoryError("none left"), InputError("its archive is not there"), RuntimeError("a fault")],
)
def test_what_fails_from_outside_is_no_value_and_is_made_again(
    spaces: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, outside: Exception
) -> None:
    tuned(spaces, tmp_path / "whole")
    rounds = trials._rounds

    def sometimes(job: Job, experiment: edgefr.Experiment, data_dir: Path | None) -> trials.Watched:
        if job.trial.number == 4:
            raise outside
        return rounds(job, experiment, data_dir)

    monkeypatch.setattr(trials, "_rounds", sometimes)
    with pytest.raises(InputError, match=rf"^fedmf, trial 4: .*{outside}.*the same command"):
        tuned(spaces, tmp_path / "out")
    assert len(kept(tmp_path / "out")) == 4
    monkeypatch.setattr(trials, "_rounds", rounds)
    tuned(spaces, tmp_path / "out")
    assert kept(tmp_path / "out") == kept(tmp_path / "whole")


def test_a_data_set_that_is_not_there_is_refused_before_any_trial(spaces: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is not there"):
        tune(["fedmf"], spaces=spaces, rules=RULES, data="ml-100k", data_dir=tmp_path, out=tmp_path / "out")
    assert not (tmp_path / "out").exists()


CENTRAL: dict[str, Any] = {
    "experiment": {"method": "mf", "model.dim": 4, "model.epochs": 6, "model.patience": 6},
    "ranges": {"model.lr": "log(0.001, 0.1)"},
}


@pytest.mark.parametrize("metric", ["HR@10", "NDCG@20", "Recall@20"])
def test_what_is_reported_is_chosen_by_the_metric_of_the_search(spaces: Path, tmp_path: Path, metric: str) -> None:
    (spaces / "mf.yaml").write_text(yaml.safe_dump(CENTRAL))
    rules = Rules(trials=1, patience=99, metric=metric)
    asked = [*SMALL[-1:], "evaluation.k=[5, 10, 20]"]
    found = tune(["fedmf", "mf"], spaces=spaces, rules=rules, overrides=asked, out=tmp_path / "out")
    assert not found.failures
    for name in ("fedmf", "mf"):
        recipe = edgefr.load_experiment(tmp_path / "out" / "recipes" / f"{name}.yaml")
        assert recipe.evaluation.judged_by == metric


def test_a_recipe_is_written_as_soon_as_its_search_ends(spaces: Path, tmp_path: Path) -> None:
    def progress(stage: str, done: int, total: int, note: str) -> None:
        if stage == "pfedrec":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        tuned(spaces, tmp_path / "out", "fedmf", "pfedrec", progress=progress)
    assert {path.name for path in (tmp_path / "out" / "recipes").iterdir()} == {"fedmf.csv", "fedmf.md", "fedmf.yaml"}


@pytest.mark.parametrize("change", ["rounds=3", "fleet.dropout=0.1", "privacy.clip=1.0", "engine.shard_size=64"])
def test_what_federated_methods_alone_read_is_no_matter_to_a_central_one(
    spaces: Path, tmp_path: Path, change: str
) -> None:
    space = Space("mf", CENTRAL["experiment"], (Range.parse("model.lr=log(0.001, 0.1)"),))
    federated = Space("fedmf", {"method": "fedmf"}, (Range.parse("model.lr=log(0.1, 10)"),))
    plain, changed = (Base(None, changes, RULES.laid) for changes in ((), (change, "batch_size=64")))
    assert {one.batch_size for one in changed.ends(space)} == {64}, "what it reads is laid"
    assert [one.model_copy(update={"batch_size": 1}) for one in changed.ends(space)] == [
        one.model_copy(update={"batch_size": 1}) for one in plain.ends(space)
    ]
    assert changed.ends(federated)[0] != plain.ends(federated)[0].model_copy(update={"batch_size": 64})


@pytest.mark.parametrize("change", ["rounds=-1", "roundz=3", "sessions.patience=3", "encoder.teacher=x"])
def test_what_no_method_takes_is_refused_for_central_ones_too(change: str) -> None:
    space = Space("mf", CENTRAL["experiment"], (Range.parse("model.lr=log(0.001, 0.1)"),))
    with pytest.raises(InputError, match=change.partition("=")[0]):
        Base(None, (change,), RULES.laid).ends(space)


@pytest.mark.parametrize("metric", ["HR@7", "MRR@10", "NDCG", "NDCG@"])
def test_a_metric_that_is_not_measured_is_refused_under_its_own_name(spaces: Path, tmp_path: Path, metric: str) -> None:
    with pytest.raises(InputError, match=rf"^unknown --metric '{metric}'.*HR@10"):
        tuned(spaces, tmp_path / "out", rules=Rules(metric=metric))


def test_seeds_of_results_are_not_searched_with(spaces: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"seed 4 is one that results are reported with.*give --seed 5 or more"):
        tuned(spaces, tmp_path / "out", rules=Rules(seeds=(4, 5)))
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("rules", "option"),
    [
        (Rules(trials=7, patience=5), "--trials"),
        (Rules(trials=6, patience=4), "--patience"),
        (Rules(trials=6, patience=5, prune=True), "--prune"),
        (Rules(trials=6, patience=5, seeds=(1001,)), "--seed"),
        (Rules(trials=6, patience=5, ranking="sampled"), "--ranking"),
        (Rules(trials=6, patience=5, metric="HR@10"), "--metric"),
    ],
)
def test_one_folder_has_one_budget(spaces: Path, tmp_path: Path, rules: Rules, option: str) -> None:
    tuned(spaces, tmp_path / "out")
    with pytest.raises(InputError, match=f"tuned by other rules: its {option}.* differs"):
        tuned(spaces, tmp_path / "out", "pfedrec", rules=rules)


def test_another_space_under_the_same_name_is_refused(spaces: Path, tmp_path: Path) -> None:
    tuned(spaces, tmp_path / "out")
    content = {**SPACES["fedmf"], "ranges": {"model.lr": "log(0.1, 20)"}}
    (spaces / "fedmf.yaml").write_text(yaml.safe_dump(content))
    with pytest.raises(InputError, match="its search space differs"):
        tuned(spaces, tmp_path / "out")


def test_a_best_value_at_the_edge_widens_the_range_within_the_budget(
    spaces: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def the_larger_the_better(job: Job, data_dir: Path | None) -> float:
        value = job.trial.values["model.lr"]
        run = {"seed": 1000, "best_round": 1, "ended": trials.ALL, "curve": [[1, value]]}
        record = {"schema": trials.SCHEMA, "number": job.trial.number, "values": job.trial.values, "value": value}
        write_json(job.out / trials.FILE, {**record, "metric": "NDCG@10", "runs": [run], "cpu_seconds": 0.0})
        return float(value)

    monkeypatch.setattr(trials, "make", the_larger_the_better)
    rules = Rules(trials=40)
    found = tuned(spaces, tmp_path / "out", rules=rules)
    values = found.tables["fedmf"]["model.lr"]
    (budget,) = found.tables["budgets"].to_dict("records")
    assert len(values) == budget["trials"] == 40, "none more where a range was widened"
    assert values[:8].between(0.1, 10).all()
    assert values.max() > 10
    assert budget["widened"] >= 1
    page = (tmp_path / "out" / "recipes" / "fedmf.md").read_text()
    assert "widened: model.lr: log(0.1, 10) became log(0.1, 100) after " in page
    again = tuned(spaces, tmp_path / "out", rules=rules)
    assert again.records == found.records
    assert again.warnings == found.warnings


def test_what_no_round_measures_is_refused(spaces: Path, tmp_path: Path) -> None:
    content = {"experiment": {"method": "transfr"}, "ranges": {"model.lr": "log(0.001, 0.1)"}}
    (spaces / "transfr.yaml").write_text(yaml.safe_dump(content))
    with pytest.raises(InputError, match="transfr ends with local training"):
        tune(["transfr"], spaces=spaces, rules=RULES, out=tmp_path / "out")
    content = {"experiment": {"method": "f3crec"}, "ranges": {"model.lr": "log(0.1, 1)"}}
    (spaces / "f3crec.yaml").write_text(yaml.safe_dump(content))
    with pytest.raises(InputError, match="rounds over blocks are not tuned"):
        tune(["f3crec"], spaces=spaces, rules=RULES, out=tmp_path / "out")


def test_a_record_that_is_gone_is_missed(spaces: Path, tmp_path: Path) -> None:
    tuned(spaces, tmp_path / "out")
    shutil.rmtree(next((tmp_path / "out" / "fedmf" / "trials").glob("trial-002-*")))
    with pytest.raises(InputError, match=r"trial-002-.* is gone"):
        tuned(spaces, tmp_path / "out")
