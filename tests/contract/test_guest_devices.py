"""Devices do all that a program may ask for: round after round they learn what the simulator's clients do.

Pairs, support and query sets, private tensors made anew, phases that take turns, the whole catalogue, and messages.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from edge.delta import Delta
from edge.device import Device
from edge.learning import Learning
from edge.policy import Policy
from edge.ragged import Ragged
from edge.sessions import window_of
from edge.update import ClientUpdate, read_update
from edgefr.engine.executors import inline
from edgefr.engine.executors.sessions import WindowScorer
from edgefr.engine.scoring import ModelScorer
from edgefr.engine.work import LocalWork, Updates
from edgefr.methods.testing.closeness import after_training, assert_same
from export.learning import unlearnable
from export.program import LocalProgram, SessionProgram
from privacy.errors import InputError
from privacy.mechanism import Noise
from tests.contract import bundles, session_bundles, sessions
from tests.contract.programs import CLIENTS, ITEMS, VARIANTS, interactions, program, work
from tests.contract.test_devices import compare
from tests.devices import open_device
from tests.edge.folders import edit_json, resign
from tests.mostly_slow import mostly_slow

ROUNDS, SEED = 3, 3
NOISED = {"clip": 0.05, "noise": "discrete-laplace", "scale": 2.0**-9, "step": 2.0**-20, "noised": "here"}
SETS = ("fedmf by bpr", "fedrecon", *(name for name in VARIANTS if name.startswith(("fedcar", "fedlightgcn"))))
"""Pairs; vectors made anew; a message, a state with the encoder of the round before, the newest items as context."""
LEARNERS = {"set": (0, 7, 20), "sessions": (0, 1, 5, 7)}


def made(variant: str) -> LocalProgram:
    return program(variant) if variant in VARIANTS else sessions.program(variant)


def first(local: LocalProgram, clients: np.ndarray) -> dict[str, torch.Tensor]:
    """First private tensors; over sessions with a past, which the first round then reads."""
    if isinstance(local, SessionProgram):
        return sessions.private_of(local, clients)
    return local.init_private(SEED, torch.from_numpy(clients))


@cache
def bundle(variant: str, sender_noise: float = 0.0) -> Path:
    """The bundle of a program's first tensors, whose devices draw as the simulator's clients do. Read only."""
    out, local = bundles.fresh(), made(variant)
    if isinstance(local, SessionProgram):
        session_bundles.write(out, local, first(local, np.arange(sessions.CLIENTS)))
    else:
        how = replace(bundles.LEARNING, sender_noise=sender_noise)
        bundles.write(out, local, how, private=first(local, np.arange(CLIENTS)))
    return out / bundles.CLASS


@dataclass
class Fleet:
    """Some clients of a program, simulated, and the device of each."""

    local: LocalProgram
    clients: np.ndarray
    shared: dict[str, torch.Tensor]
    private: dict[str, torch.Tensor]
    todo: LocalWork
    devices: list[Device]

    @classmethod
    def of(cls, variant: str, folder: Path) -> Fleet:
        local = made(variant)
        reads = "sessions" if isinstance(local, SessionProgram) else "set"
        clients = np.array(LEARNERS[reads])
        todo = sessions.work(local) if isinstance(local, SessionProgram) else work(local)
        devices = [open_device(bundle(variant), folder / str(c), user=bundles.user(c)) for c in clients.tolist()]
        return cls(local, clients, local.init_shared(SEED), first(local, clients), todo, devices)

    def learn(self, number: int) -> tuple[Updates, list[ClientUpdate]]:
        """A round of everybody, here and there."""
        updates = inline.run(replace(self.todo, round=number), self.shared, self.private, self.clients)
        own = isinstance(self.local, SessionProgram)
        given: Any = [()] * len(self.devices) if own else [interactions()[client] for client in self.clients]
        return updates, [one.learn(items) for one, items in zip(self.devices, given, strict=True)]

    def step(self, number: int, updates: Updates) -> None:
        """The server takes the mean, and relays each client's message to the next one."""
        before = {name: value.clone() for name, value in self.shared.items()}
        for name, value in updates.dense.items():
            self.shared[name] = self.shared[name] + value.mean(0)
        for name, rows in updates.rows.items():
            self.shared[name] = self.shared[name].index_add(0, rows.rows, rows.values / len(self.clients))
        self.private |= updates.private
        told = updates.message
        if told is not None:
            self.private["message"] = told.roll(1, 0)
        kinds = {name: self.local.specs[name].kind for name in before}
        dense = {n: v.numpy() for n, v in self.shared.items() if kinds[n] == "dense"}
        every = np.arange(next(len(v) for n, v in before.items() if kinds[n] == "rows"))
        tables = {n: (every, v.numpy()) for n, v in self.shared.items() if kinds[n] == "rows"}
        for slot, one in enumerate(self.devices):
            delta = Delta(
                one.bundle.manifest.bundle_id, number - 1, number, dense, tables, signed_by=one.bundle.signed_by
            )
            one.apply(delta, None if told is None else self.private["message"][slot].numpy())

    def recommend(self) -> None:
        """What devices would recommend is what their clients would, the server's last step and reply included."""
        for slot, one in enumerate(self.devices):
            if any(spec.reset == "round" for spec in self.local.specs.values()):
                with pytest.raises(InputError, match="personalise first"):
                    one.scores()
                continue
            assert_same(one.scores(), scores_of(self, slot), size=float(np.abs(one.scores()).max()))


@pytest.mark.parametrize("variant", mostly_slow((*SETS, "sasrec, full softmax"), ("fedrecon", "fedcar")))
def test_rounds_on_devices_are_those_of_the_simulator(variant: str, tmp_path: Path) -> None:
    fleet = Fleet.of(variant, tmp_path)
    steps = 0
    for number in range(bundles.ROUND, bundles.ROUND + ROUNDS):
        updates, releases = fleet.learn(number)
        steps += max(one.work["steps"] for one in fleet.devices)
        bounds = after_training(fleet.local.phases, steps, fleet.shared, fleet.private)
        for slot, (one, release) in enumerate(zip(fleet.devices, releases, strict=True)):
            assert one.work["steps"] == one.work["planned"] > 0
            same_round(one, release, updates, slot, bounds)
        changes = [v for r in releases for v in (r.update, *(w for _, w in r.rows.values())) if v.size]
        assert max(np.abs(value).max() for value in changes) > 1e-3
        fleet.step(number, updates)
        fleet.recommend()


def scores_of(fleet: Fleet, slot: int) -> torch.Tensor:
    """A client's scores of everything in torch."""
    local, client = fleet.local, int(fleet.clients[slot])
    if isinstance(local, SessionProgram):
        items, times = sessions.sessions()
        view = window_of(items[client], times[client], sessions.LENGTH)
        own = {name: value[[slot]] for name, value in fleet.private.items()}
        pool = np.arange(sessions.ITEMS)
        scorer = WindowScorer(local, fleet.shared, own, view, pool, torch.device("cpu"))
    else:
        train = Ragged.from_lists([interactions()[client].tolist()])
        own = {name: value[[slot]] for name, value in fleet.private.items()}
        scorer = ModelScorer(local, fleet.shared, own, train, np.arange(ITEMS), ITEMS, torch.device("cpu"))  # type: ignore[assignment]
    return torch.from_numpy(scorer(np.array([0]), None)[0])


def same_round(one: Device, release: ClientUpdate, updates: Updates, slot: int, bounds: dict[str, float]) -> None:
    """What a device sends and keeps is what its client does."""
    compare(release, updates, slot, bounds)
    for name, value in updates.private.items():
        assert_same(one.state.part("private")[name], value[slot], **bounds, name=name)
    assert (release.prototype is None) == (updates.message is None)
    if updates.message is not None and release.prototype is not None:
        assert_same(release.prototype, updates.message[slot], **bounds)


BPR, WHOLE = "fedmf by bpr", "sasrec, full softmax"


def phase(number: int, **change: object) -> Callable[[dict], object]:
    return lambda learning: learning["phases"][number].update(change)


def both(**change: object) -> Callable[[dict], object]:
    return lambda learning: [one.update(change) for one in learning["phases"][:2]]


def made_anew(tensor: str, **change: object) -> Callable[[dict], object]:
    rule = {"purpose": "x", "scale": 0.1, **change}
    return lambda learning: [t.update(anew=rule) for t in learning["tensors"] if t["name"] == tensor]


@pytest.mark.parametrize(
    ("guest", "change", "match"),
    [
        (BPR, phase(0, pairs=False), r"needs input pairs\.positive, which the bundle does not have"),
        (BPR, lambda learning: learning.update(negatives=2), r"pairs\.negative is int64 .* instead of"),
        (BPR, phase(0, alternates=True), "'federated' alternates, but not with a phase of the same draws"),
        (BPR, phase(0, pairs=False, context=3), "asks for a context, which belongs to pairs"),
        (BPR, phase(0, context=-1), "context: Input should be greater than or equal to 0"),
        ("fedcar", both(context=0), r"needs input pairs\.(context|there), which the bundle does not have"),
        ("fedcar", both(context=9), r"pairs\.context is int64 .* instead of"),
        (BPR, phase(0, part="half"), "part: Input should be 'all', 'support', 'query' or 'whole'"),
        (BPR, lambda learning: learning.update(replay=bundles.REPLAY.model_dump()), "a replayed item has none"),
        ("fedrecon", phase(0, support=1.0), "support: Input should be less than 1"),
        ("fedrecon", phase(0, pairs=1.5), "pairs: Input should be a valid boolean"),
        ("fedrecon", phase(0, parts="all"), "parts: Extra inputs are not permitted"),
        ("fedrecon", made_anew("item"), "item is made anew .* a private dense tensor alone can be"),
        ("fedrecon", made_anew("user", scale=-1.0), "scale: Input should be greater than or equal to 0"),
        ("fedrecon", made_anew("user", rule="import os"), "rule: Extra inputs are not permitted"),
        ("fedcar", phase(1, epochs=7), "'contrast' alternates, but not with a phase of the same draws"),
        (WHOLE, phase(0, part="support"), "asks for pairs or parts of a session, which is one window, whole"),
        (WHOLE, lambda learning: learning["sessions"].update(whole_catalogue=3), "should be a valid boolean"),
    ],
)
def test_bundles_that_ask_for_what_no_device_gives(
    guest: str, change: Callable[[dict], object], match: str, tmp_path: Path
) -> None:
    made = shutil.copytree(bundle(guest), tmp_path / "bundle")
    edit_json(made / "config.json", lambda config: change(config["learning"]))
    resign(made)
    with pytest.raises(InputError, match=match) as error:
        open_device(made, tmp_path / "state", user=bundles.user(7)).learn(interactions()[7] if guest in SETS else ())
    assert "\n" not in str(error.value)


def test_what_no_device_does_is_named() -> None:
    """A device draws what is made anew by the rule that the program names, so the rule has to be the program's own."""
    local = program("fedrecon")
    assert unlearnable(local) is None
    said = local.specs["user"].first
    assert said is not None
    for first, why in ((None, "does not say how"), (replace(said, scale=0.2), "but not as its")):
        local.specs = {**local.specs, "user": replace(local.specs["user"], first=first)}
        assert f"makes 'user' anew in every round{' and ' if first is None else ', '}{why}" in str(unlearnable(local))


def test_a_step_that_asks_for_more_than_there_is_is_refused(tmp_path: Path) -> None:
    """A graph with an input that nobody feeds, of a bundle whose pairs are as they should be."""
    import onnx

    made = shutil.copytree(bundle(BPR), tmp_path / "bundle")
    path = made / "onnx" / "step.0.onnx"
    graph = onnx.load(path)
    for part in (*graph.graph.input, *graph.graph.node):
        if getattr(part, "name", "") == "pairs.share":
            part.name = "pairs.secret"
        for place, name in enumerate(getattr(part, "input", ())):
            if name == "pairs.share":
                part.input[place] = "pairs.secret"
    path.write_bytes(graph.SerializeToString())
    resign(made)
    with pytest.raises(InputError, match=r"needs input pairs\.secret, which the bundle does not have"):
        open_device(made, tmp_path / "state", user=bundles.user(7)).learn(interactions()[7])


def test_a_device_without_a_query_set_trains_its_support_set_alone(tmp_path: Path) -> None:
    """One interaction is all support: the items move nowhere, in the simulator and here."""
    one = open_device(bundle("fedrecon"), tmp_path, user=bundles.user(7))
    release = one.learn([5])
    assert one.work["steps"] == one.work["planned"] == 3
    items, values = release.rows["item"]
    assert not values.any()
    assert 5 in items
    fresh = one.learning.tensor("user").anew
    assert fresh is not None
    assert float(np.abs(one.state.part("private")["user"]).max()) > 0


def test_records_that_ask_for_nothing_new_read_as_before() -> None:
    plain = open_device(bundles.bundle("fedmf"), bundles.fresh(), user=bundles.user(7)).learning
    told = plain.model_dump(mode="json")
    assert not {"part", "support", "pairs", "alternates"} & set(told["phases"][0])
    assert all("anew" not in tensor for tensor in told["tensors"])
    assert Learning.model_validate(told) == plain
    asks = open_device(bundle("fedrecon"), bundles.fresh(), user=bundles.user(7)).learning
    assert Learning.model_validate(asks.model_dump(mode="json")) == asks


def test_a_message_leaves_with_the_devices_own_noise(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Exact noise of the scale that the run names, on what a device without noise sends, and on nothing else."""
    drawn: list[Noise] = []

    def exact(noise: Noise, size: int) -> np.ndarray:
        drawn.append(noise)
        return np.arange(size) * 1000

    monkeypatch.setattr(Noise, "exact", exact)
    quiet, loud = (
        open_device(bundle("fedcar", noise), tmp_path / str(noise), user=bundles.user(7)).learn(interactions()[7])
        for noise in (0.0, 0.1)
    )
    assert [noise.kind for noise in drawn] == ["discrete-laplace"]
    assert drawn[0].scale == pytest.approx(0.1, rel=1e-4)
    assert quiet.prototype is not None
    assert loud.prototype is not None
    step = drawn[0].step
    assert step is not None
    expected = (np.rint(quiet.prototype / step) + np.arange(quiet.prototype.size) * 1000) * step
    np.testing.assert_allclose(loud.prototype, expected, atol=1e-6)
    np.testing.assert_array_equal(loud.update, quiet.update)


def told(**change: object) -> Callable[[dict], object]:
    return lambda learning: learning["messages"].update(change)


@pytest.mark.parametrize(
    ("change", "match"),
    [
        (told(reply="user"), "rounds keep user, which is no private tensor"),
        (told(keeps={"previous.query": "item"}), "rounds keep item as previous.query, which has another shape"),
        (told(order="received"), "messages of the received model are sent of sessions alone"),
        (told(order=None), "messages are published without saying when"),
        (told(sender_noise=-1.0), "sender_noise: Input should be greater than or equal to 0"),
        (told(gap_s=3), "gap_s: Extra inputs are not permitted"),
        (
            lambda learning: learning["release"].update(NOISED),
            "has messages beside them, which bear no noise",
        ),
    ],
)
def test_messages_that_no_device_sends(change: Callable[[dict], object], match: str, tmp_path: Path) -> None:
    made = shutil.copytree(bundle("fedcar"), tmp_path / "bundle")
    edit_json(made / "config.json", lambda config: change(config["learning"]))
    resign(made)
    with pytest.raises(InputError, match=match):
        open_device(made, tmp_path / "state", user=bundles.user(7))


def test_messages_are_checked_as_replies_and_uploads_are(tmp_path: Path) -> None:
    one = open_device(bundle("fedcar"), tmp_path, user=bundles.user(7))
    release = one.learn(interactions()[7])
    assert release.prototype is not None
    content = replace(release, prototype=release.prototype[:-1]).to_bytes()
    with pytest.raises(InputError, match="prototype is not"):
        read_update(content, one.learning, one.bundle.manifest.bundle_id)
    for wrong in (release.prototype[:-1], release.prototype * np.float32(np.nan), release.prototype * 0 + 1e20):
        with pytest.raises(InputError, match=r"float32 of a length up to 1e\+06"):
            one.take(wrong.astype(np.float32))
    long = replace(release, prototype=(release.prototype * 0 + 1e20).astype(np.float32)).to_bytes()
    with pytest.raises(InputError, match="prototype is not"):
        read_update(long, one.learning, one.bundle.manifest.bundle_id)
    with pytest.raises(InputError, match="sends no prototypes"):
        one.prototype()
    closed = open_device(bundle("fedcar"), tmp_path, policy=Policy(signed=False))
    assert "policy unprotected" in str(closed.refuses())
    named = Policy(signed=False, unprotected=True, tensors=tuple(one.learning.released))
    assert "prototype would leave" in str(open_device(bundle("fedcar"), tmp_path, policy=named).refuses())


def test_a_device_that_keeps_nothing_of_its_user_recommends_once_that_is_made_anew(tmp_path: Path) -> None:
    """Before that it has the vector of the last round's support set, or a random one: neither is its user's."""
    one = open_device(bundle("fedrecon"), tmp_path, user=bundles.user(7))
    one.learn(interactions()[7])
    with pytest.raises(InputError, match="personalise first"):
        one.recommend(3)
    one.personalise()
    assert len(one.recommend(3)) == 3
    kept = one.state.part("private")["user"]
    assert not np.allclose(one.state.part("personal")["user"], kept)
