"""Runs over sessions: which session is met when, when a run ends, which model is kept, what a restart changes."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
import torch

from edge.ragged import Ragged
from edgefr.data.prepared_data import Prepared
from edgefr.experiment.experiment import Experiment, load_experiment
from edgefr.simulation.loop import Training
from edgefr.simulation.prepare import prepare
from edgefr.simulation.runs import checkpoint
from edgefr.simulation.stages.sessions import FIRST, HELD
from privacy.errors import InputError
from tests.continual.runs import ideal_fleet
from tests.federations import begun as begun_run
from tests.visits import SESSIONS, USERS, write_visits

SMALL = (
    "data=retailrocket",
    "rounds=3",
    "local_epochs=2",
    "protocol.negatives=20",
    "evaluation.k=[5]",
    "engine.shard_size=5",
)
SEQUENTIAL = ("model.dim=6", "model.length=4", "model.lr=0.02", "model.init_scale=0.1")
PERSONAL = (*SEQUENTIAL, "model.hidden=5")
KINDS = {
    "fcucr": ("method=fcucr", *PERSONAL, "knowledge.top_k=3"),
    "released": ("method=fcucr", "fidelity=released", *PERSONAL, "protocol.stream=one-pass", "knowledge.top_k=3"),
    "gru4rec": ("method=gru4rec", *SEQUENTIAL),
    "fedmf": ("method=fedmf", "protocol.name=sessions", "model.dim=4"),
    "pfedrec": ("method=pfedrec", "protocol.name=sessions", "model.dim=4"),
    "fedrap": ("method=fedrap", "protocol.name=sessions", "model.dim=4"),
    "gpfedrec": ("method=gpfedrec", "protocol.name=sessions", "model.dim=4"),
}
every = pytest.mark.parametrize("kind", KINDS)


def experiment(kind: str, *overrides: str) -> Experiment:
    return load_experiment(overrides=[*SMALL, *KINDS[kind], *overrides])


@cache
def prepared_of() -> Prepared:
    """The visits, which are the same for every method; nobody writes into them."""
    with TemporaryDirectory() as folder:
        return prepare(experiment("fedmf"), write_visits(Path(folder)), "cpu")


def begun(kind: str, *overrides: str, prepared: Prepared | None = None) -> Training:
    """The experiment before its first round; every client contributes."""
    prepared = prepared_of() if prepared is None else prepared
    return begun_run(experiment(kind, *overrides), prepared, ideal_fleet())


def shortened(*turns: int) -> Prepared:
    """Every client's training sessions of these turns (from 0) cut to one item."""
    prepared = prepared_of()
    sessions = prepared.sessions
    assert sessions is not None
    counts = sessions.items.counts.copy()
    for user in range(USERS):
        for turn in turns:
            counts[sessions.train[user][turn]] = 1
    kept = (
        np.arange(len(sessions.items.values)) - sessions.items.offsets[sessions.items.rows]
        < counts[sessions.items.rows]
    )
    offsets = np.concatenate([[0], np.cumsum(counts)])
    items, times = (Ragged(column.values[kept], offsets) for column in (sessions.items, sessions.times))
    return replace(prepared, sessions=replace(sessions, items=items, times=times))


def met(run: Training, monkeypatch: pytest.MonkeyPatch) -> list[dict[int, int]]:
    """Train to the end; for every round the session of each client that trained."""
    rounds: list[dict[int, int]] = []
    real = run.federation.round

    def watched(number, cohort, sampler, context):
        while len(rounds) < number - 1:
            rounds.append({})
        current = run.stage.current(number)
        if run.stage.windowed:
            assert (sampler.current == current).all()
            asked = run.experiment.model["query"] == "next"
            assert (sampler.following == run.stage.current(number + 1)).all() if asked else sampler.following is None
        rounds.append({int(client): int(current[client]) for client in cohort})
        return real(number, cohort, sampler, context)

    monkeypatch.setattr(run.federation, "round", watched)
    run.learn()
    return rounds


def curve(run: Training, which: str = "valid", split: str = "main") -> dict[int, float]:
    """HR + NDCG by round, from the first that learned."""
    out: dict[int, float] = {}
    for row in run.measured.rows:
        if row["round"] and (row["which"], row["on"]) == (which, split):
            out[row["round"]] = out.get(row["round"], 0.0) + row["value"] * row["metric"].startswith(("HR", "NDCG"))
    return out


# --- which session when ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["gru4rec", "released", "fedmf"])
def test_one_pass_meets_each_session_once_in_its_turn_and_ends(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    run = begun(kind, "rounds=50")
    rounds = met(run, monkeypatch)
    assert run.rounds == len(rounds) == SESSIONS - 2
    for client in range(USERS):
        assert [at[client] for at in rounds if client in at] == run.prepared.sessions.train[client].tolist()


def test_cyclic_meets_them_over_and_over(monkeypatch: pytest.MonkeyPatch) -> None:
    run = begun("gru4rec", "protocol.stream=cyclic", "rounds=10")
    rounds = met(run, monkeypatch)
    assert len(rounds) == 10
    for client in range(USERS):
        assert [at[client] for at in rounds] == (run.prepared.sessions.train[client].tolist() * 3)[:10]


@pytest.mark.parametrize("kind", ["fcucr", "fedmf"])
@pytest.mark.parametrize("stream", ["one-pass", "cyclic"])
def test_a_session_of_one_item_never_trains(kind: str, stream: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where all clients have such a session in one turn, the round passes and the run goes on."""
    run = begun(kind, f"protocol.stream={stream}", "rounds=6", prepared=shortened(1, 2))
    rounds = met(run, monkeypatch)
    turns = [0, 3] if stream == "one-pass" else [0, 3, 0]
    for client in range(USERS):
        assert [at[client] for at in rounds if client in at] == [
            int(run.prepared.sessions.train[client][t]) for t in turns
        ]
    assert [bool(at) for at in rounds] == [True, False, False, True, True][: len(rounds)]
    assert run.rounds == (4 if stream == "one-pass" else 6)
    assert sorted(curve(run)) == list(range(1, run.rounds + 1))


def test_a_run_of_sessions_that_cannot_train_ends() -> None:
    run = begun("gru4rec", "rounds=50", prepared=shortened(0, 1, 2, 3))
    run.learn()
    assert run.rounds == 4
    assert run.federation.counters.clients == 0


def test_clients_of_sets_learn_from_the_items_of_the_session_alone() -> None:
    run = begun("pfedrec")
    for number in (1, 2, 4):
        population, sampler = run.stage.turn(run, number)
        assert population.tolist() == list(range(USERS))
        for client in population:
            session = int(run.prepared.sessions.train[client][number - 1])
            assert sampler.train[client].tolist() == sorted(set(run.prepared.sessions.items[session].tolist()))


def test_nobody_may_be_late() -> None:
    fleet = ideal_fleet()
    late = fleet.model_copy(update={"rounds": fleet.rounds.model_copy(update={"policy": "async", "buffer": 4})})
    for kind in ("gru4rec", "fedmf"):
        with pytest.raises(InputError, match="policy") as caught:
            begun_run(experiment(kind), prepared_of(), late)
        assert "\n" not in str(caught.value)


# --- when a run ends, and what it keeps ------------------------------------------------------------------------------


@pytest.mark.parametrize("patience", [1, 2])
def test_a_run_ends_when_validation_has_stopped_improving(patience: int) -> None:
    still = begun("gru4rec", "protocol.stream=cyclic", "rounds=9", f"sessions.patience={patience}", "model.lr=1e-12")
    still.learn()
    assert (still.position.best_round, still.rounds) == (1, 1 + patience), "an equal round is no better one"
    moving = begun("gru4rec", "protocol.stream=cyclic", "rounds=9", f"sessions.patience={patience}")
    moving.learn()
    values, best = curve(moving), 0
    for number, value in values.items():
        assert number - best <= patience, "it should have ended before"
        best = number if value > max((values[n] for n in values if n < number), default=-1) else best
    assert moving.position.best_round == best
    assert moving.rounds == 9 or moving.rounds == best + patience


def test_the_last_round_is_measured_however_seldom_others_are() -> None:
    run = begun("gru4rec", "protocol.stream=cyclic", "rounds=5", "evaluation.every=3")
    run.learn()
    assert list(curve(run)) == [3, 5]
    assert run.position.best_round in (3, 5)
    short = begun("gru4rec", "rounds=40", "evaluation.every=40")  # one pass ends long before
    short.learn()
    assert list(curve(short)) == [short.stage.rounds] == [short.position.best_round]


@pytest.mark.parametrize(("patience", "measured"), [(2, [2, 3, 4]), (4, [3, 6, 7]), (6, [3, 6, 9])])
def test_patience_does_not_end_a_run_on_a_round_that_nobody_looked_at(patience: int, measured: list[int]) -> None:
    """Every third round is measured, and the one at which a run that gets no better would end."""
    still = ("protocol.stream=cyclic", "rounds=40", "evaluation.every=3", f"sessions.patience={patience}")
    run = begun("gru4rec", *still, "model.lr=1e-12")
    run.learn()
    assert list(curve(run)) == measured
    assert (run.position.best_round, run.rounds) == (measured[0], measured[-1])


@pytest.mark.parametrize("kind", ["gru4rec", "fedmf"])
def test_own_history_counts_whatever_clients_read(kind: str) -> None:
    """A bonus beyond any score brings all that was had to the top, for models of windows and of sets."""
    run = begun(kind, "rounds=1", "sessions.history_bonus=1e6")
    run.learn()
    users = run.prepared.train_split.users("test")
    had, pool = run.stage.had("test"), np.asarray(run.prepared.train_split.pool)
    scores = run.stage.score(run, run.together(), "test")(users, None)
    for user, row in zip(users.tolist(), scores, strict=True):
        own = np.intersect1d(had[user], pool)
        assert set(pool[np.argsort(-row)[: len(own)]].tolist()) == set(own.tolist())


def test_settings_that_nothing_would_read_are_refused() -> None:
    for override in ("patience=3", "first_session=true", "history_bonus=1", "popularity_weight=0.5"):
        with pytest.raises(InputError, match=r"protocol\.name=sessions") as caught:
            load_experiment(overrides=["method=fedmf", f"sessions.{override}"])
        assert f"sessions.{override.partition('=')[0]}" in str(caught.value)
        assert "\n" not in str(caught.value)
    for override in ("knowledge.top_k=3", "knowledge.window=2", "model.receiver_noise=0.1"):
        for alone in (["method=sasrec"], ["method=fcucr", "model.prototypes=none"]):
            with pytest.raises(InputError, match="prototypes") as caught:
                load_experiment(overrides=[*alone, override])
            assert override.rpartition(".")[2].partition("=")[0] in str(caught.value)
        load_experiment(overrides=["method=fcucr", override])
    assert load_experiment(overrides=["method=fedmf", "sessions.history_bonus=0"]).sessions.history_bonus == 0


@every
def test_the_best_rounds_model_is_tested(kind: str) -> None:
    """Its final metrics are those of its round, so tensors, replies and own rows are kept as they were."""
    run = begun(kind, "protocol.stream=cyclic", "rounds=5")
    kept: dict[int, dict[str, torch.Tensor]] = {}
    run.train([lambda run: kept.update({run.rounds: run.together().copy(run.federation.program).flat()})])
    values, best = curve(run), run.done[0]
    first = max(values.values())
    assert best["best_round"] == min(number for number, value in values.items() if value == first)
    assert best["best"] == pytest.approx(first)
    assert all(torch.equal(run.best.flat()[name], value) for name, value in kept[best["best_round"]].items())
    for which in HELD:
        final = {
            row["metric"]: row["value"]
            for row in run.measured.rows
            if row["round"] is None and row["which"] == which and row["stage"] == run.stages[0]
            if row["ranking"] == "sampled" and row["group"] == "all"
        }
        of_round = {
            row["metric"]: row["value"]
            for row in run.measured.rows
            if row["round"] == best["best_round"] and row["which"] == which and row["on"] == "main"
        }
        assert final == of_round
    assert any(not torch.equal(kept[1][name], value) for name, value in kept[5].items() if name.startswith("shared."))


def test_with_no_round_the_first_model_is_tested() -> None:
    run = begun("fcucr", "rounds=0")
    run.train()
    assert run.done[0]["best_round"] == 0
    assert torch.equal(run.final.shared["item"], run.federation.program.init_shared(run.experiment.seed)["item"])


# --- what is seen of what is asked -----------------------------------------------------------------------------------


def test_a_device_sees_a_held_out_session_without_its_last_item() -> None:
    run = begun("gru4rec", "sessions.first_session=true")
    s, length = run.prepared.sessions, 4
    for which, held in (
        ("valid", s.valid),
        ("test", s.test),
        (FIRST, [row[0] for row in map(s.train.__getitem__, range(USERS))]),
    ):
        for user, session in enumerate(held):
            view = run.stage.views[which]
            seen = s.items[int(session)].tolist()[:-1][-length:]
            assert view.items[user][view.real[user] > 0].tolist() == seen
            split = run.stage.first_split if which == FIRST else run.prepared.train_split
            target = (split.test if which == "test" else split.valid)[user]
            assert target == s.items[int(session)][-1]


@every
def test_scores_do_not_know_what_is_asked(kind: str) -> None:
    """Other targets, and other held-out sessions of everybody else: the same scores. Training never sees one."""
    run, prepared = begun(kind), prepared_of()
    sessions = run.prepared.sessions
    values = sessions.items.values.copy()
    for held in (sessions.valid, sessions.test):
        last = sessions.items.offsets[1:][held] - 1
        values[last] = (values[last] + 1) % 140
    other = replace(sessions, items=Ragged(values, sessions.items.offsets))
    blind = begun(kind, prepared=replace(prepared, sessions=other))
    items = np.tile(np.arange(140, dtype=np.int32), (USERS, 1))
    for one in (run, blind):
        for number in (1, 2):
            population, sampler = one.stage.turn(one, number)
            one.federation.round(number, population, sampler, prepared.train_split.train)
    for which in HELD:
        mine, theirs = (
            one.stage.score(one, one.stage.model(one), which)(np.arange(USERS), items) for one in (run, blind)
        )
        assert np.array_equal(mine, theirs)


def test_what_is_still_known_of_first_sessions_is_measured_every_round() -> None:
    run = begun("fcucr", "sessions.first_session=true")
    run.train()
    assert sorted(curve(run, split=FIRST)) == [1, 2, 3]
    assert sorted(curve(run)) == [1, 2, 3]
    users = {row["users"] for row in run.measured.rows if row["on"] == FIRST}
    assert users == {USERS}


def test_devices_ask_before_they_recommend_or_use_their_last_reply() -> None:
    asking, silent = (begun("fcucr", f"model.asks_when_recommending={ask}") for ask in ("true", "false"))
    for run in (asking, silent):
        run.learn()
    assert silent.stage.asked(silent, "valid") == {}
    replies = asking.stage.asked(asking, "valid")["valid"]
    assert replies.shape == asking.federation.private["prototype"].shape
    assert not torch.equal(replies, asking.federation.private["prototype"])
    for name, value in asking.federation.shared.items():
        assert torch.equal(value, silent.federation.shared[name]), "asking changes no round"
    assert "test" in asking.best.replies


# --- shares of probabilities -----------------------------------------------------------------------------------------


def test_probabilities_are_shares() -> None:
    run = begun("fcucr")
    run.train()
    found = run.schedule[0].probabilities(run, run.final)
    assert found["edges"] == pytest.approx([n / 20 for n in range(21)])
    for part in ("targets", "negatives"):
        assert len(found[part]) == 20
        assert sum(found[part]) == pytest.approx(1.0)


# --- kills, and who does the work ------------------------------------------------------------------------------------


def through_a_file(run: Training, folder: Path) -> dict:
    """The run's state as a checkpoint gives it back."""
    checkpoint.write(folder, run.rounds, run.state(), "run")
    found = checkpoint.newest(folder, "run", print)
    assert found is not None
    return found.state


@every
@pytest.mark.parametrize("at", [1, 3])
def test_a_restored_run_comes_to_the_same(kind: str, at: int, tmp_path: Path) -> None:
    options = ("protocol.stream=cyclic", "rounds=4", "knowledge.window=2") if kind == "fcucr" else ("rounds=4",)
    whole, stopped = begun(kind, *options), begun(kind, *options, f"rounds={at}")
    resumed = begun(kind, *options)
    stopped.learn()
    resumed.restore(through_a_file(stopped, tmp_path))
    for run in (whole, resumed):
        run.train()
    assert resumed.measured.rows == whole.measured.rows
    assert [done["best"] for done in resumed.done] == [done["best"] for done in whole.done]
    for mine, theirs in (
        (resumed.final.flat(), whole.final.flat()),
        (resumed.federation.shared, whole.federation.shared),
        (resumed.federation.private, whole.federation.private),
    ):
        assert mine.keys() == theirs.keys()
        assert all(torch.equal(mine[name], value) for name, value in theirs.items())
