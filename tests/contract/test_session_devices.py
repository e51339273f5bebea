"""What was simulated over sessions is what is shipped: a device's round, prototype and scores are the simulator's."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from edge.delta import Delta
from edge.device import Device
from edge.policy import Policy
from edge.recommender import Recommender
from edge.release import Withheld
from edge.sessions import window_of, windows
from edge.update import read_update
from edgefr.engine.executors import inline
from edgefr.engine.executors.sessions import WindowScorer, published
from privacy.errors import InputError
from tests.closeness import assert_same
from tests.contract import session_bundles as bundles
from tests.contract.bundles import fresh, user
from tests.contract.sessions import CLIENTS, ITEMS, LENGTH, private_of, program, sampler, sessions, work
from tests.contract.test_devices import bounds, compare
from tests.devices import open_device
from tests.edge.folders import edit_json, edit_tensors, resign
from tests.mostly_slow import mostly_slow

CPU = torch.device("cpu")


def device(variant: str, client: int, folder: Path | None = None) -> Device:
    return open_device(bundles.bundle(variant), fresh() if folder is None else folder, user=user(client))


RECURRENT = "fcucr as released on gru4rec"


@pytest.mark.parametrize("variant", mostly_slow((RECURRENT, "hearint"), (RECURRENT,)))
def test_asked_again_a_device_sends_the_same(variant: str) -> None:
    one = device(variant, 7)
    release = one.learn()
    assert one.work["steps"] == one.work["planned"] == 3
    assert one.learn().to_bytes() == release.to_bytes()
    content = read_update(release.to_bytes(), one.learning, one.bundle.manifest.bundle_id).to_bytes()
    assert content == release.to_bytes()


@pytest.mark.parametrize("variant", mostly_slow(bundles.SHIPPED))
def test_a_device_scores_by_its_window(variant: str) -> None:
    """As the bundle brought it, then as the session goes on, then in another after a pause."""
    local, everyone = program(variant), np.arange(CLIENTS)
    shared, private = local.init_shared(3), private_of(local, everyone)
    items, times = sessions()

    def expected(client: int, seen: np.ndarray, when: np.ndarray) -> torch.Tensor:
        own, view = {name: value[[client]] for name, value in private.items()}, window_of(seen, when, LENGTH)
        scores = WindowScorer(local, shared, own, view, np.arange(ITEMS), CPU)(np.array([0]), None)
        return torch.from_numpy(scores[0])

    for client in (0, 1, 7):
        one = device(variant, client)
        assert_same(one.scores(), expected(client, items[client], times[client]))
        last = int(times[client][-1])
        one.note([3, 9], [last + 60, last + 1860])
        more = np.append(items[client], [3, 9]), np.append(times[client], [last + 60, last + 1860])
        assert_same(one.scores(), expected(client, *more))
        one.note([4], [last + 1860 + 1801])
        assert_same(one.scores(), expected(client, np.array([4]), np.array([0])))
        assert len(one.recommend(ITEMS)) == ITEMS, "a session may repeat itself"
    new = open_device(bundles.bundle(variant), fresh())
    assert np.isfinite(new.scores()).all()
    with pytest.raises(InputError, match="fewer than two items"):
        new.learn([1])
    assert not len(new.state.tensors["session.items"]), "a call that fails changes nothing"


@pytest.mark.parametrize("variant", mostly_slow(v for v in bundles.SHIPPED if program(v).publishes != "none"))
def test_prototypes_and_replies(variant: str) -> None:
    """A device publishes what the simulator's clients do, trains with the reply, and recommends with one."""
    local, client = program(variant), 7
    items, times = sessions()
    who, shared = np.array([client]), local.init_shared(3)
    one = device(variant, client)
    assert_same(one.prototype("learning"), published(local, shared, sampler().window(who), CPU)[0])
    seen = windows(items, times, who, LENGTH)
    assert_same(one.prototype(), published(local, shared, seen, CPU)[0])

    reply = np.linspace(-1, 1, local.specs["prototype"].size, dtype=np.float32)
    private = private_of(local, who)
    private["prototype"] = torch.from_numpy(reply)[None]
    scores = WindowScorer(local, shared, private, seen, np.arange(ITEMS), CPU)(np.array([0]), None)
    before = one.scores()
    assert_same(one.scores(reply), torch.from_numpy(scores[0]))
    np.testing.assert_array_equal(one.scores(), before)
    one.take(reply)
    assert_same(one.scores(), torch.from_numpy(scores[0]))
    learned = one.learn()
    compare(learned, inline.run(work(local), shared, private, who), 0, bounds(local, one.work["steps"]))
    for wrong in (reply[:-1], reply.astype(np.float64), np.full_like(reply, np.nan)):
        with pytest.raises(InputError, match="finite float32"):
            one.take(wrong)  # type: ignore[arg-type]


def test_a_session_is_told_to_nobody_whom_the_devices_policy_does_not_allow() -> None:
    """A prototype has no noise: only a policy that lets unprotected things leave lets it, and no promise covers it."""
    variant = "fcucr"
    one = open_device(bundles.bundle(variant), fresh(), user=user(7), policy=Policy(signed=False))
    for before in ("recommending", "learning"):
        with pytest.raises(Withheld, match="policy unprotected"):
            one.prototype(before)  # type: ignore[arg-type]
    named = Policy(signed=False, unprotected=True, tensors=tuple(one.learning.released))
    with pytest.raises(Withheld, match="policy tensors: prototype would leave"):
        open_device(bundles.bundle(variant), one.store.folder, policy=named).prototype()
    assert one.status()["withheld"] is not None

    path = fresh() / "bundle"
    shutil.copytree(bundles.bundle(variant), path)
    says = {"trust": "local", "mechanism": "discrete-gaussian", "adjacency": "replace-one", "norm": "l2", "clip": 1.0}
    says |= {"multiplier": 4.0, "steps": 0, "epsilon": 5.0, "delta": 1e-5, "rounds": 20, "cohort": 1}
    resign(path, lambda record: record.update(privacy=says))
    promised = open_device(path, fresh(), user=user(7))
    with pytest.raises(Withheld, match="promises more than it does"):
        promised.prototype()


def test_a_reply_comes_with_an_update() -> None:
    variant, client = "fcucr", 5
    one = device(variant, client)
    one.learn()
    reply = np.full(one.learning.tensor("prototype").shape, 0.5, np.float32)
    base = one.bundle.manifest.bundle_id
    moved = {name: value + np.float32(0.01) for name, value in one.state.part("shared").items()}
    with pytest.raises(InputError, match="finite float32"):
        one.apply(Delta(base, 1, 2, moved, signed_by=one.bundle.signed_by), reply[:3])
    assert one.state.facts["round"] == 1, "an update with a wrong reply changes nothing"
    one.apply(Delta(base, 1, 2, moved, signed_by=one.bundle.signed_by), reply)
    assert one.state.facts["round"] == 2
    np.testing.assert_array_equal(one.state.part("private")["prototype"], reply)
    one.learn()
    one.undo()
    np.testing.assert_array_equal(one.state.part("session")["items"], sessions()[0][client][-LENGTH - 1 :])


def test_backbones_alone_say_nothing_but_updates() -> None:
    one = device("sasrec, full softmax", 0)
    with pytest.raises(InputError, match="sends no prototypes"):
        one.prototype()
    with pytest.raises(InputError, match="takes no replies"):
        one.take(np.zeros(3, np.float32))


def test_uploads_that_no_device_of_the_bundle_sends() -> None:
    """A prototype where none goes with an update, in another shape, or with numbers that are none."""
    asks, sends = device("fcucr", 5), device(RECURRENT, 5)
    plain, full = asks.learn(), sends.learn()
    assert full.prototype is not None
    wrong = [(asks, plain, full.prototype), (sends, full, full.prototype[:-1]), (sends, full, full.prototype * np.nan)]
    for one, release, prototype in wrong:
        content = replace(release, prototype=prototype).to_bytes()
        with pytest.raises(InputError, match="prototype"):
            read_update(content, one.learning, one.bundle.manifest.bundle_id)


SPOILT = {
    "missing": lambda times: None,
    "too few": lambda times: times[:-1],
    "falling": lambda times: times[::-1].copy(),
    "another type": lambda times: times.astype(np.int32),
}


@pytest.mark.parametrize("how", SPOILT)
def test_bundles_whose_times_do_not_fit(how: str, tmp_path: Path) -> None:
    def spoil(tensors: dict[str, np.ndarray]) -> None:
        spoilt = SPOILT[how](tensors.pop("history.times"))
        tensors |= {} if spoilt is None else {"history.times": spoilt}

    folder = shutil.copytree(bundles.bundle("fcucr"), tmp_path / "bundle")
    edit_tensors(folder / "private" / "users.safetensors", spoil)
    resign(folder)
    with pytest.raises(InputError, match=r"history\.times"):
        Recommender(folder).recommend(3, user(7))


@pytest.mark.parametrize(("window", "message"), [(None, "reads no window"), (LENGTH + 1, "instead of"), (0, "window")])
def test_bundles_whose_windows_do_not_fit(window: int | None, message: str, tmp_path: Path) -> None:
    folder = shutil.copytree(bundles.bundle("fcucr"), tmp_path / "bundle")
    edit_json(folder / "config.json", lambda config: config.update(window=window))
    resign(folder)
    with pytest.raises(InputError, match=message):
        Recommender(folder).scores(user(7))


def test_interactions_that_do_not_fit_change_nothing() -> None:
    one = device("fcucr", 5)
    before = one.state.digest()
    with pytest.raises(InputError, match="before the last one"):
        one.learn([1, 2], [5, 6])
    with pytest.raises(InputError, match="2 times for 1"):
        one.note([1], [5, 6])
    assert one.state.digest() == before
