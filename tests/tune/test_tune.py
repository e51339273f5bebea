"""`edgefr tune`: the same trials after any kill, one set of rules for a folder, recipes that run."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml

import edgefr
import edgefr.studies.tuning.run
from edgefr.studies.jobs import Failed
from edgefr.studies.reproductions.fedcar.recipes import _rules
from edgefr.studies.sweeps.grid import Range
from edgefr.studies.tuning import trial as trials
from edgefr.studies.tuning.rules import Rules
from edgefr.studies.tuning.space import Base, Space
from edgefr.studies.tuning.trial import TrialJob
from edgefr.studies.tuning.tune import tune
from privacy.errors import InputError

SMALL = ["rounds=2", "model.dim=4", "data_options={users: 60, items: 160, interactions: 12}"]
RULES = Rules(trials=6, patience=5)
SPACES = {
    "fedmf": {"experiment": {"method": "fedmf"}, "ranges": {"model.lr": "log(0.1, 10)"}},
    "pfedrec": {"experiment": {"method": "pfedrec"}, "ranges": {"model.lr": "log(0.01, 1)"}},
}


def write_spaces(folder: Path, spaces: dict[str, Any]) -> Path:
    folder.mkdir(exist_ok=True)
    for name, content in spaces.items():
        (folder / f"{name}.yaml").write_text(yaml.safe_dump(content))
    return folder


@pytest.fixture
def spaces(tmp_path: Path) -> Path:
    return write_spaces(tmp_path / "spaces", SPACES)


def at_once(call: Any, jobs: list[TrialJob], common: Any, *_: Any) -> Iterator[tuple[TrialJob, Any]]:
    for job in jobs:
        try:
            yield job, call(job, common)
        except Exception as error:
            yield job, Failed(f"{type(error).__name__}: {error}")


@pytest.fixture(scope="module", autouse=True)
def here() -> Iterator[None]:
    """Trials are made in this process, and without archives."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("EDGEFR_DATA", raising=False)
        patch.setattr(edgefr.studies.tuning.run, "run_jobs", at_once)
        yield


@dataclass(frozen=True)
class Made:
    """A tuning's folder and its report."""

    out: Path
    report: edgefr.studies.tuning.tune.Report


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory, here: None) -> Made:
    """Both methods, which nobody disturbs."""
    at = tmp_path_factory.mktemp("whole")
    return Made(at / "out", tuned(write_spaces(at / "spaces", SPACES), at / "out", "fedmf", "pfedrec"))


@pytest.fixture
def done(whole: Made, tmp_path: Path) -> Path:
    """A copy of that folder."""
    return Path(shutil.copytree(whole.out, tmp_path / "out"))


def tuned(spaces: Path, out: Path, *names: str, **options: Any) -> edgefr.studies.tuning.tune.Report:
    rules = options.pop("rules", RULES)
    return tune(list(names or ["fedmf"]), spaces=spaces, rules=rules, overrides=SMALL, out=out, **options)


def kept(out: Path, method: str = "fedmf") -> dict[str, Any]:
    """Every trial's record of a method without its seconds, by folder."""
    found = {path.parent.name: json.loads(path.read_text()) for path in sorted((out / method).rglob("trial.json"))}
    return {name: {k: v for k, v in record.items() if k != "cpu_seconds"} for name, record in found.items()}


@pytest.mark.parametrize("name", SPACES)
def test_every_method_has_a_recipe_that_loads_and_a_table_of_its_trials(whole: Made, name: str) -> None:
    assert not whole.report.failures
    recipe, table = whole.out / "recipes" / f"{name}.yaml", whole.report.tables[name]
    experiment = edgefr.load_experiment(recipe)
    best = table.sort_values(["validation NDCG@10", "trial"], ascending=[False, True]).iloc[0]
    assert (experiment.method, experiment.seed) == (name, 0)
    assert experiment.model["lr"] == best["model.lr"]
    assert experiment.evaluation.curve_ranking == "full"
    assert experiment.evaluation.keep == "best", "as in its trials"
    assert len(table) == RULES.trials
    assert _rules(recipe) == RULES.columns, "rows of a table can be told to be searched alike"
    assert "test items are not looked at" in recipe.with_suffix(".md").read_text()
    (budget,) = [one for one in whole.report.tables["budgets"].to_dict("records") if one["method"] == name]
    assert (budget["trials"], budget["fields"], budget["failed"]) == (6, 1, 0)


@pytest.mark.parametrize("after", [1, 3, 4, 5])
def test_a_killed_search_goes_on_with_the_trials_it_would_have_had(
    whole: Made, spaces: Path, tmp_path: Path, after: int
) -> None:
    def progress(stage: str, done: int, total: int, note: str) -> None:
        if done == after:
            raise KeyboardInterrupt

    out = tmp_path / "killed"
    with pytest.raises(KeyboardInterrupt):
        tuned(spaces, out, progress=progress)
    assert len(kept(out)) == after
    tuned(spaces, out)
    assert kept(out) == kept(whole.out)
    recipe = Path("recipes", "fedmf.yaml")
    assert (out / recipe).read_text() == (whole.out / recipe).read_text()


def test_a_finished_search_makes_nothing_again(
    whole: Made, done: Path, spaces: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trials, "make", lambda job, data_dir: pytest.fail("made again"))
    assert tuned(spaces, done, "fedmf", "pfedrec").records == whole.report.records


def broken(monkeypatch: pytest.MonkeyPatch, number: int, error: Exception) -> Any:
    """Let a trial fail; returns the function that was there."""
    rounds = trials._rounds

    def sometimes(job: TrialJob, experiment: edgefr.Experiment, data_dir: Path | None) -> trials.Watched:
        if job.trial.number == number:
            raise error
        return rounds(job, experiment, data_dir)

    monkeypatch.setattr(trials, "_rounds", sometimes)
    return rounds


@pytest.mark.parametrize(
    "maths", [FloatingPointError("overflow"), np.linalg.LinAlgError("singular"), torch.linalg.LinAlgError("singular")]
)
def test_a_trial_whose_own_maths_fails_counts_and_says_why(
    spaces: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, maths: Exception
) -> None:
    broken(monkeypatch, 1, maths)
    found = tuned(spaces, tmp_path / "out")
    assert found.failures == {"fedmf, trial 1": f"{type(maths).__name__}: {maths}"}
    assert found.tables["budgets"]["failed"][0] == 1
    assert len(found.tables["fedmf"]) == RULES.trials


@pytest.mark.parametrize(
    "outside",
    [OSError("disk full"), MemoryError("none left"), InputError("its archive is not there"), RuntimeError("a fault")],
)
def test_what_fails_from_outside_is_no_value_and_is_made_again(
    whole: Made, spaces: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, outside: Exception
) -> None:
    rounds = broken(monkeypatch, 4, outside)
    with pytest.raises(InputError, match=rf"^fedmf, trial 4: .*{outside}.*the same command"):
        tuned(spaces, tmp_path / "out")
    assert len(kept(tmp_path / "out")) == 4
    monkeypatch.setattr(trials, "_rounds", rounds)
    tuned(spaces, tmp_path / "out")
    assert kept(tmp_path / "out") == kept(whole.out)


CENTRAL: dict[str, Any] = {
    "experiment": {"method": "mf", "model.dim": 4, "model.epochs": 6, "model.patience": 6},
    "ranges": {"model.lr": "log(0.001, 0.1)"},
}


@pytest.mark.parametrize("metric", ["HR@10", "NDCG@20", "Recall@20"])
def test_what_is_reported_is_chosen_by_the_metric_of_the_search(spaces: Path, tmp_path: Path, metric: str) -> None:
    write_spaces(spaces, {"mf": CENTRAL})
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
    assert {path.name for path in (tmp_path / "out" / "recipes").iterdir()} == {
        "fedmf.csv",
        "fedmf.md",
        "fedmf.tex",
        "fedmf.yaml",
    }


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


@pytest.mark.parametrize(
    ("method", "asked", "says"),
    [
        ("fedmf", {"rules": Rules(metric=name)}, rf"^unknown --metric '{name}'.*HR@10")
        for name in ("HR@7", "MRR@10", "NDCG", "NDCG@")
    ]
    + [
        (
            "fedmf",
            {"rules": Rules(seeds=(4, 5))},
            r"seed 4 is one that results are reported with.*give --seed 5 or more",
        ),
        ("fedmf", {"data": "ml-100k", "overrides": ()}, "is not there"),
        ("transfr", {"overrides": ()}, "transfr ends with local training"),  # which no round measures
        ("f3crec", {"overrides": ()}, "rounds over blocks are not tuned"),
    ],
)
def test_what_no_trial_could_follow_is_refused_before_any(
    method: str, asked: dict[str, Any], says: str, spaces: Path, tmp_path: Path
) -> None:
    write_spaces(spaces, {method: {"experiment": {"method": method}, "ranges": {"model.lr": "log(0.1, 1)"}}})
    asked = {"rules": RULES, "overrides": SMALL, "data_dir": tmp_path, **asked}
    with pytest.raises(InputError, match=says):
        tune([method], spaces=spaces, out=tmp_path / "out", **asked)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("change", "option"),
    [
        ({"trials": 7}, "--trials"),
        ({"patience": 4}, "--patience"),
        ({"prune": True}, "--prune"),
        ({"seeds": (1001,)}, "--seed"),
        ({"ranking": "sampled"}, "--ranking"),
        ({"metric": "HR@10"}, "--metric"),
    ],
)
def test_one_folder_has_one_budget(whole: Made, spaces: Path, change: dict[str, Any], option: str) -> None:
    with pytest.raises(InputError, match=f"tuned by other rules: its {option}.* differs"):
        tuned(spaces, whole.out, "pfedrec", rules=replace(RULES, **change))


def test_another_space_under_the_same_name_is_refused(whole: Made, spaces: Path) -> None:
    write_spaces(spaces, {"fedmf": {**SPACES["fedmf"], "ranges": {"model.lr": "log(0.1, 20)"}}})
    with pytest.raises(InputError, match="its search space differs"):
        tuned(spaces, whole.out)


def test_a_best_value_at_the_edge_widens_the_range_within_the_budget(
    spaces: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def the_larger_the_better(job: TrialJob, data_dir: Path | None) -> float:
        value = job.trial.values["model.lr"]
        run = {"seed": 1000, "best_round": 1, "ended": trials.ALL, "curve": [[1, value]]}
        trials._write(job, value, {"metric": "NDCG@10", "runs": [run], "cpu_seconds": 0.0})
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


def test_a_record_that_is_gone_is_missed(done: Path, spaces: Path) -> None:
    shutil.rmtree(next((done / "fedmf" / "trials").glob("trial-002-*")))
    with pytest.raises(InputError, match=r"trial-002-.* is gone"):
        tuned(spaces, done)
