"""The attackers on real uploads: a FedMF run of the demo, and a TransFR program on made-up texts."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import edgefr
from edge.ragged import Ragged
from edgefr.methods.transfr.program import TransFR
from edgefr.methods.transfr.settings import TransFRSettings
from edgefr.report.audit import FILE, read_bound
from edgefr.simulation.runs.run import Run
from edgefr.studies.audits.attack_run import audit_run
from edgefr.studies.audits.attacks import matching, membership, sign_split
from edgefr.studies.audits.finding import Effort
from edgefr.studies.audits.games import game
from edgefr.studies.audits.target import AttackTarget
from export.model import Names, TrainedModel
from privacy import keyed
from privacy.errors import InputError
from privacy.plan import plan
from privacy.settings import PrivacySettings
from tests.cli import commands

USERS = 12
FEDMF = ["method=fedmf", "rounds=3", "model.dim=8", "data_options.users=60", "data_options.items=160"]
DAMAGE = ["", "[]", "\x00", "[" * 100_000, '{"schema": "edgefr.audit/1"}', '{"schema": "edgefr.audit/2"}']
DAMAGE += [f'{{"schema": "edgefr.audit/2", "eps_lb95": {value}}}' for value in ("NaN", "-1.0", "Infinity", '"2"')]
LOUD = ["privacy.mechanism=gaussian", "privacy.trust=local", "privacy.clip=1", "privacy.epsilon=8"]


def quiet(stage: str, done: int, total: int, note: str) -> None:
    pass


def simulated(out: Path, *changes: str) -> Run:
    experiment = edgefr.load_experiment(overrides=[*FEDMF, "data_options.interactions=16", *changes])
    return edgefr.simulate(experiment, out=out, bundles=False, page=False)


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run of FedMF that nobody clipped or noised."""
    return simulated(tmp_path_factory.mktemp("audit") / "bare")


@pytest.fixture(scope="module")
def noised(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """The same under local noise of epsilon 8."""
    return simulated(tmp_path_factory.mktemp("audit") / "noised", *LOUD)


def test_uploads_are_those_of_the_real_round(bare: Run, noised: Run) -> None:
    """Bare: rows that the client drew, its own among them, and no others. Noised: every coordinate, each draw anew."""
    target = AttackTarget.open(bare)
    client = int(target.chosen(1)[0])
    own = target.own[client].astype(np.int64)
    seen = target.upload(client, own, 0)["item"]
    touched = np.flatnonzero((seen != 0).any(1))
    assert set(own) <= set(touched.tolist()) < set(range(len(seen)))
    assert np.array_equal(seen, target.upload(client, own, 0)["item"]), "the same draw gives the same bits"
    assert not np.array_equal(seen, target.upload(client, own, 1)["item"])
    loud = AttackTarget.open(noised)
    assert (loud.upload(client, own, 0)["item"] != 0).all()
    assert np.linalg.norm(loud.upload(client, own, 0, noise=False)["item"]) <= 1.0 + 1e-6
    assert np.std(loud.upload(client, own, 0)["item"]) == pytest.approx(loud.plan.noise.std, rel=0.05)


def test_the_model_is_as_it_was_after_an_attack(bare: Run) -> None:
    target = AttackTarget.open(bare)
    before = {n: v.clone() for n, v in {**target.model.shared, **target.model.private}.items()}
    sign_split(target, Effort(3, 100), quiet)
    assert all(torch.equal(v, before[n]) for n, v in {**target.model.shared, **target.model.private}.items())


def test_signs_give_the_items_away_and_noise_hides_them(bare: Run, noised: Run) -> None:
    found = sign_split(AttackTarget.open(bare), Effort(USERS, 100), quiet)
    assert found.of == USERS
    assert found.auc > 0.95
    assert found.tpr > 0.5
    assert found.auc_null < 0.65
    hidden = sign_split(AttackTarget.open(noised), Effort(USERS, 100), quiet)
    assert abs(hidden.auc - 0.5) < 0.1
    assert hidden.best_auc < hidden.best_auc_null + 0.05


def test_one_interaction_shows_without_noise_and_not_with_it(bare: Run, noised: Run) -> None:
    open_, hidden = (membership(AttackTarget.open(run), Effort(2 * USERS, 100), quiet) for run in (bare, noised))
    assert open_.auc > open_.auc_null
    assert hidden.auc < hidden.auc_null + 0.05


def adapters() -> AttackTarget:
    """TransFR on 40 items in four clear kinds of text; every client likes one kind. No run is needed for it."""
    items, clients, width = 40, 16, 24
    kind = np.arange(items) % 4
    text = keyed.normal(keyed.key(0, "kinds"), np.arange(4 * width)).reshape(4, width)[kind]
    text = text + 0.7 * keyed.normal(keyed.key(0, "texts"), np.arange(items * width)).reshape(items, width)
    settings = TransFRSettings(adapter=[16, 8], head=[8], adapter_init="random")
    program = TransFR(settings, torch.from_numpy(text.astype(np.float32)), 3)
    own = Ragged.from_lists(
        [np.flatnonzero(kind == client % 4)[: 5 + client % 3].tolist() for client in range(clients)]
    )
    shared, private = program.init_shared(0), program.init_private(0, torch.arange(clients))
    experiment = edgefr.load_experiment(overrides=["rounds=2", "local_epochs=3"])
    return AttackTarget(
        experiment=experiment,
        model=TrainedModel(program, shared, private, Names(range(clients), range(items), []), seen=own, own=own),
        plan=plan(PrivacySettings(), 2, clients, clients),
        rounds=2,
        p90=None,
    )


def test_adapters_give_the_items_away() -> None:
    target = adapters()
    assert target.table is None
    found = matching(target, Effort(USERS, 100), quiet)
    assert found.auc > found.auc_null + 0.1
    assert found.best_auc > 0.8
    assert sign_split(target, Effort(USERS, 100), quiet).note


def test_the_command(bare: Run) -> None:
    """JSON is what lies in the folder; the table names every attack and why one was not made."""
    few = ("--users", "4", "--trials", "400")
    made = commands.edgefr("audit", bare.path, *few, "--json", cache=bare.path)
    assert made.returncode == 0, made.stderr
    report = json.loads(made.stdout)
    assert report == json.loads((bare.path / FILE).read_text())
    rows = {row["attack"]: row for row in report["attacks"]}
    games = ["game", "canaries", "game-rows", "game-bytes", "game-steps"]
    assert list(rows) == ["sign-split", "membership", "gradient-matching", *games]
    assert rows["sign-split"]["auc"] > 0.9
    assert rows["gradient-matching"]["auc"] is None
    assert (rows["game"]["claimed"], rows["game"]["exceeds"]) == ("inf", False)
    assert report["eps_lb95"] == max(rows[name]["eps_corrected"] or 0.0 for name in games) == read_bound(bare.path)
    assert report["verdict"].startswith("this run's updates have no guarantee")
    shown = commands.edgefr("audit", bare.path, *few, "--attacks", "sign-split,gradient-matching", cache=bare.path)
    assert "gradient-matching: not run: a table of items leaves the device" in shown.stdout
    assert json.loads((bare.path / FILE).read_text())["attacks"] == report["attacks"], "nothing is forgotten"
    assert read_bound(bare.path) == report["eps_lb95"]
    printed = commands.edgefr("privacy", bare.path, "--json", cache=bare.path)
    assert json.loads(printed.stdout)["eps_lb95"] == read_bound(bare.path)


@pytest.mark.parametrize(
    ("attacks", "effort", "message"),
    [
        (["sign-spilt"], Effort(), "sign-split"),
        ([], Effort(users=0), "--users takes a whole number of at least 1"),
        ([], Effort(trials=99), "--trials takes a whole number from 100"),
        ([], Effort(seed=-1), "--seed takes a whole number from 0"),
    ],
)
def test_wrong_input_is_refused(bare: Run, attacks: list[str], effort: Effort, message: str) -> None:
    with pytest.raises(InputError, match=message):
        audit_run(bare, attacks, effort)


def test_a_folder_that_is_no_run_is_refused(tmp_path: Path) -> None:
    done = commands.edgefr("audit", tmp_path, cache=tmp_path)
    assert "is not a run folder" in commands.refused(done.returncode, done.stdout, done.stderr)


@pytest.mark.parametrize("content", DAMAGE)
def test_a_damaged_audit_is_refused(tmp_path: Path, content: str) -> None:
    assert read_bound(tmp_path) is None
    (tmp_path / FILE).write_text(content)
    with pytest.raises(InputError, match="run edgefr audit again"):
        read_bound(tmp_path)


def test_progress_goes_to_its_end(bare: Run) -> None:
    told: list[tuple[str, int, int]] = []

    def progress(stage: str, done: int, total: int, note: str) -> None:
        told.append((stage, done, total))

    report: dict[str, Any] = audit_run(bare, ["game", "sign-split"], Effort(2, 100), progress)
    assert {"sign-split", "game"} <= {row["attack"] for row in report["attacks"]}
    assert {stage for stage, done, total in told if done == total} == {"checks", "sign-split", "game"}
    assert all(0 <= done <= total for _, done, total in told)


def test_clients_without_items_are_not_attacked() -> None:
    target = adapters()
    target.model = replace(target.model, own=Ragged.empty(16))
    for attack in (matching, membership):
        found = attack(target, Effort(USERS, 100), quiet)
        assert found.note == "no client has items that an attack could distinguish"
        assert found.row()["auc"] is None


# A run that projects, rounds to a grid and seals its sums


SHORT = ["privacy.mechanism=gaussian", "privacy.clip=1", "privacy.project=50"]
GRID = ["privacy.sampler=grid", "privacy.grid_exponent=-10", "privacy.at_least=20"]


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> AttackTarget:
    return AttackTarget.open(simulated(tmp_path_factory.mktemp("short") / "run", *SHORT, *GRID, "privacy.sigma=0.5"))


def test_an_upload_is_seen_as_the_server_takes_it_back(target: AttackTarget) -> None:
    client = int(target.chosen(1)[0])
    own = target.own[client].astype(np.int64)
    seen = target.upload(client, own, 0)["item"].ravel()
    assert len(np.unique(np.rint(np.abs(seen) * 2.0**10))) <= 50
    assert (seen != 0).mean() > 0.8  # all of it has noise, and of fifty values one in 1,300 is rounded to 0
    assert target.plan.values == 50
    plain = target.upload(client, own, 0, noise=False)["item"]
    assert (plain == 0).all(axis=1).any()  # what an attacker trains for itself is not projected


def test_the_mechanism_leaks_no_more_than_it_says_and_something(target: AttackTarget) -> None:
    found = game(target, Effort(users=5, trials=400), quiet)
    assert 0 < found.eps_lb95 <= found.claimed
    assert sign_split(target, Effort(users=5), quiet).auc is not None
