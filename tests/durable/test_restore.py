"""Whatever has a state is filled, saved, restored into something new, and goes on as if nothing had happened.

Every class with `state` and `restore`, or `state_dict` and `load_state_dict`, has a case here: one without fails.
"""

from __future__ import annotations

import ast
import dataclasses
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch

from cloud.fusion import KnowledgeSettings
from cloud.optimisers import Moments, RunningSum, Stepping
from cloud.prototypes import KnowledgeBase
from edgefr.engine.cohort import ClipTold, Counters, Norms
from edgefr.engine.federation import Federation
from edgefr.engine.noise import SimulatedNoise
from edgefr.engine.transfer import Transfer
from edgefr.experiment.experiment import load_experiment
from edgefr.fleet import Fleet, FleetFile, Work
from edgefr.fleet.availability import AvailabilityProcess, Charge
from edgefr.fleet.crowd import ActiveClients, ClientTask, rows
from edgefr.fleet.devices import Devices
from edgefr.fleet.fedbuff import Buffered
from edgefr.fleet.histogram import QUANTITIES, Histogram
from edgefr.simulation.participation import Participation
from edgefr.simulation.runs import checkpoint
from privacy import keyed
from privacy.correlated_noise import CorrelatedNoise
from privacy.guarantee import Event
from privacy.ledger import Ledger
from privacy.prototypes import Prototypes
from tests.cli.commands import ROOT
from tests.contract import programs, sessions
from tests.durable.test_checkpoint import OWNER, same
from tests.federations import federation as made_federation
from tests.fleet.fleets import shipped, work
from tests.noises import KEY

CPU = torch.device("cpu")
AT_RUN_LEVEL = {"Running", "Measurements", "Keeping", "Proxies"}
"""What carries a whole run: `test_whole_runs` stops and resumes runs in which all of it is in use."""
OF_NOTHING = {"Participants", "Exchange"}
"""What has nothing to restore, unless a class made of it says so itself."""


@dataclasses.dataclass(frozen=True)
class Case:
    """How one class is made, filled, and goes on.

    `new()` is as at a run's start, `fill(it)` leaves no part of it as it was but `constant` ones (paths in its state),
    `go(it, k)` does round k and gives back what comes of it. `restore` is the name of what it is restored by.
    """

    new: Callable[[], Any]
    fill: Callable[[Any], object]
    go: Callable[[Any, int], Any]
    constant: tuple[str, ...] = ()
    derived: tuple[str, ...] = ()


# --- leaves ----------------------------------------------------------------------------------------------------------


def leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """All that a value holds, by path: what our own objects hold as well, but nothing that only computes."""
    if isinstance(value, torch.Tensor):
        yield path, value.detach().cpu().numpy()
    elif isinstance(value, dict):
        for key, inner in value.items():
            yield from leaves(inner, f"{path}.{key}")
    elif isinstance(value, list | tuple):
        for number, inner in enumerate(value):
            yield from leaves(inner, f"{path}.{number}")
    elif value is None or isinstance(value, bool | int | float | str | np.ndarray | np.generic):
        yield path, value
    elif type(value).__module__.split(".")[0] in ("edgefr", "cloud", "privacy") and hasattr(value, "__dict__"):
        yield from leaves(vars(value), path)


def equal(one: Any, other: Any) -> bool:
    if isinstance(one, np.ndarray) or isinstance(other, np.ndarray):
        one, other = np.asarray(one), np.asarray(other)
        return one.shape == other.shape and bool(np.array_equal(one, other, equal_nan=one.dtype.kind == "f"))
    return type(one) is type(other) and one == other


def differences(found: Any, expected: Any) -> list[str]:
    """Paths at which two values are not the same."""
    mine, its = dict(leaves(found)), dict(leaves(expected))
    return sorted(p for p in mine.keys() | its.keys() if p not in mine or p not in its or not equal(mine[p], its[p]))


def state_of(it: Any) -> dict[str, Any]:
    return it.state() if hasattr(it, "state") else it.state_dict()


def through_a_checkpoint(it: Any, folder: Path) -> dict[str, Any]:
    checkpoint.write(folder, 1, state_of(it), OWNER)
    found = checkpoint.newest(folder, OWNER, pytest.fail)
    assert found is not None
    return found.state


def restore(it: Any, state: dict[str, Any]) -> None:
    if isinstance(it, Stepping):
        it.restore(state, CPU)
    elif hasattr(it, "restore"):
        it.restore(state)
    else:
        it.load_state_dict(state)


# --- the fleet -------------------------------------------------------------------------------------------------------

CLIENTS = 40
EVERYONE = np.arange(CLIENTS)
HOUR = 3600.0


def restless() -> FleetFile:
    """A fleet whose rounds wait for no one and in which everything is drawn, spent and counted."""
    online = {"mean_on_h": 0.3, "mean_off_h": 0.2, "sigma_ln": 0.7, "by_hour": [1.0] * 24}
    fleet = {"availability": online, "dropout": 0.2, "battery": {}, "share": {"speaker_512": 0.5, "watch_w5": 0.5}}
    rounds = {"policy": "async", "concurrency": 12, "min_fraction": 0.8, "deadline_s": 900}
    return shipped(fleet, rounds)


SPEC = restless()


def fleet() -> Fleet:
    return Fleet(SPEC, np.arange(CLIENTS), seed=3)


def calm() -> Fleet:
    """The same without anything that devices carry from round to round."""
    quiet = SPEC.fleet.model_copy(update={"availability": None, "battery": None})
    return Fleet(SPEC.model_copy(update={"fleet": quiet}), np.arange(CLIENTS), seed=3)


def asked(ids: np.ndarray) -> Work:
    return work(steps=300 * (1 + ids % 40), flops_per_example=1e6, bytes_down=1e7, bytes_up=1e7)


def step(it: Fleet, number: int) -> Any:
    order = np.argsort(keyed.fold(keyed.key(3, "order", number), EVERYONE))
    return vars(it.step(number, order, asked, wanted(number)))


def wanted(number: int) -> int:
    """Round 6 wants more than come, so what came of it waits."""
    return 4 if number < 6 else 40 if number == 6 else 28


def lived(it: Fleet) -> None:
    """Six rounds of the third day."""
    it.now = 49 * HOUR
    several(step)(it)


def look(it: AvailabilityProcess, number: int) -> Any:
    return [it.online_until(EVERYONE, (number + hour) * HOUR) for hour in range(4)]


def counted(it: Histogram, number: int) -> Any:
    device = (EVERYONE % 2).astype(np.uint16)
    it.outcome(device, (EVERYONE % 11).astype(np.uint8))
    for at, name in enumerate(QUANTITIES):
        it.add(name, device, np.exp(EVERYONE / 7.0) * (number + at))
    return [it.quantiles(name, device) for name in QUANTITIES for device in (None, 0, 1)]


def spent(it: Charge, number: int) -> Any:
    it.spend(EVERYONE, number * 7 * HOUR, 50.0 + EVERYONE)
    return it.level(EVERYONE, number * 7 * HOUR), it.allows(
        EVERYONE, number * 7 * HOUR, 1.0 + EVERYONE, 60.0 + EVERYONE
    )


def crowded(it: ActiveClients) -> None:
    """Six at work, who leave two by two, and two whose uploads wait; the one that was asked last has left."""
    planned, _ = fleet()._devices.plan(1, EVERYONE, asked(EVERYONE))
    for client, seconds in ((3, 90.0), (9, 60.0), (1, 60.0), (7, 30.0), (8, 30.0), (2, 90.0), (5, 10.0), (4, 10.0)):
        place = rows(planned, [client])
        it.enter(ClientTask(client, 2, it.version, it.serial, 5.0 + client, seconds - client, client % 2, place))
        it.serial += 1
    it.waiting = [it.leave(), it.leave()]
    it.version = 3


def left(it: ActiveClients, number: int) -> Any:
    found = it.leave()
    entered = dataclasses.replace(found, client=20 + number, serial=it.serial, started=found.started + 1)
    it.enter(entered)
    it.serial += 1
    return found, it.aggregate(1), it.next, it.busy(), it.versions


def buffered(it: Buffered, number: int) -> Any:
    return vars(it.step(number, 900.0 * number, EVERYONE[::-1], asked, wanted(number), 12, True))


def invited(it: Devices, number: int) -> Any:
    planned, walks = it.plan(number, EVERYONE, asked(EVERYONE))
    codes, lost, planned = it.asked(EVERYONE, planned, walks, 5000.0 * number)
    it.charge.spend(EVERYONE, 5000.0 * number, it.account(EVERYONE, planned, planned.ends[:, 2]))
    it.histogram.outcome(it.device_of, codes)
    it.histogram.add("memory_mb", it.device_of, planned.memory_mb)
    return codes, lost


# --- the server ------------------------------------------------------------------------------------------------------


def based(it: KnowledgeBase, number: int) -> Any:
    """Prototypes of which one is refused and one client's is asked after alone."""
    draw = keyed.generator(number, "prototypes of a base")
    who = draw.choice(30, 12, replace=False)
    sent = torch.from_numpy(draw.standard_normal((12, 4)).astype(np.float32))
    sent[0] = torch.nan
    it.add(number, who, sent, who % 2)
    return it.answer(np.arange(30), torch.from_numpy(draw.standard_normal((30, 4)).astype(np.float32)))


def alone(it: KnowledgeBase) -> None:
    for number in (1, 2):
        it.add(number, np.zeros(3, np.int64), torch.eye(3, 4), np.arange(3))
        it.answer(np.ones(1, np.int64), torch.ones(1, 4))
    for number in (3, 4, 5):
        based(it, number)


def adapted(it: Stepping, number: int) -> Any:
    draw = keyed.generator(number, "steps of a server")
    names = ("item", "bias") if number % 2 else ("item",)
    return [it.step(name, torch.from_numpy(draw.normal(size=(3, 2)))) for name in names]


def noised(it: CorrelatedNoise, number: int) -> Any:
    draw = keyed.generator(number, "fresh noise")
    return [it.of_round(name, number, draw.normal(size=(3, 2))) for name in ("item", "bias")]


EVENTS = Event("gaussian", multiplier=4.0), Event("gaussian", multiplier=2.0)


def ledger() -> Ledger:
    return Ledger(CLIENTS, delta=1e-5, adjacency="zero-out", budget=2.5, run="r")


def charged(it: Ledger, number: int) -> Any:
    return it.try_spend(EVERYONE[number % 3 :: 2], EVENTS[number % 2]), it.epsilon()


def federation(variant: str, privacy: dict[str, Any] | None = None, **aggregation: Any) -> Federation:
    session = variant in sessions.VARIANTS
    local = sessions.program(variant, 1) if session else programs.program(variant, 1)
    count = sessions.CLIENTS if session else programs.CLIENTS
    noise = SimulatedNoise(KEY, 1)
    made = made_federation(local, count, aggregation, privacy, rounds=9, seed=1, noise=noise)
    if session:
        base = KnowledgeBase(local.settings.reply, KnowledgeSettings(top_k=2))
        made.transfer = Transfer(base, local.publishes, Prototypes(base.width, 2), 3)  # type: ignore[arg-type, attr-defined]
    return made


def trained(it: Federation, number: int) -> Any:
    module: ModuleType = sessions if it.transfer is not None else programs
    some = np.arange(module.CLIENTS)[number % 2 :]
    chores = module.work(it.program)
    it.round(number, some, chores.sampler, chores.context)
    return it.shared, it.private


def worn(it: Federation) -> None:
    """Three rounds, the last in a second block, and counters that say that something went wrong."""
    trained(it, 1)
    if it.aggregation.rule == "temporal-mean":
        it.previous = {name: (value.clone(), torch.arange(len(value)) % 3 > 0) for name, value in it.shared.items()}
    trained(it, 2)
    trained(it, 3)
    it.counters = Counters(
        *(7, 1.5, 2, 3, 4, 5),
        Norms([np.array([0.5, 2.0])], 5, 2),
        ClipTold(np.array([2.5, 3.5]), 7, 3, scale=0.7),
        np.arange(1, len(it.counters.participation) + 1),
    )


APART = {"mechanism": "gaussian", "clip": 0.5, "sigma": 4, "apart": 2, "correlated": True}
EXPERIMENT = load_experiment(
    overrides=[
        "method=fedmf",
        "clients_per_round=4",
        "privacy={mechanism: gaussian, clip: 0.5, sigma: 4, trust: local}",
        "fleet={rounds: {policy: async}}",
    ]
)


def participation() -> Participation:
    made = federation("fedmf", {"mechanism": "gaussian", "clip": 0.5, "sigma": 4, "trust": "local"})
    return Participation(
        EXPERIMENT.cohort_size,
        EXPERIMENT.privacy,
        made,
        Fleet(SPEC, np.arange(programs.CLIENTS), seed=3),
        lambda events: None,
    )


def met(it: Participation, number: int) -> Any:
    chores = programs.work(it.federation.program)
    it.federation.shared = {name: torch.full_like(value, number) for name, value in it.federation.shared.items()}
    groups = it.meet(number, np.arange(programs.CLIENTS), chores.sampler)
    return [(group.clients, group.number, group.shared, group.weight) for group in groups]


def coming_apart() -> Participation:
    fleet = Fleet(shipped(), np.arange(programs.CLIENTS), seed=3)
    return Participation(lambda clients: 3, EXPERIMENT.privacy, federation("fedmf", APART), fleet, lambda events: None)


def invited_apart(it: Participation, number: int) -> Any:
    return it.meet(number, np.arange(programs.CLIENTS), programs.work(it.federation.program).sampler)


def gathered(it: Participation) -> None:
    it.fleet.now = 49 * HOUR
    several(met)(it)


def several(do: Callable[[Any, int], Any], rounds: int = 6) -> Callable[[Any], None]:
    def fill(it: Any) -> None:
        for number in range(1, rounds + 1):
            do(it, number)

    return fill


LATER = 100
"""Rounds that go on are numbered from here."""

HEAP = "._buffered.crowd._heap"
CLUSTERS = (".centroids", ".counters.clustered")
FACTS = (".adjacency", ".budget", ".clients", ".delta", ".run", ".schema")
OF_ITS_BASE = tuple(f".transfer.base{path}" for path in (*CLUSTERS, ".counters.lone", ".counters.refused"))
OF_ITS_PARTS = (".fleet.buffered.crowd.waiting", ".fleet.clock.void", *(f".ledger{path}" for path in FACTS))
BESIDE = (".federation", ".ledger._filter")
OF_WAITING = (".broadcasts", *OF_ITS_PARTS, *(path for path, _ in leaves({"fleet": coming_apart().fleet.state_dict()})))
CASES: dict[str, list[Case]] = {
    "AvailabilityProcess": [
        Case(lambda: AvailabilityProcess(SPEC.fleet.availability, CLIENTS, 3), several(look), look)
    ],
    "Charge": [Case(lambda: Charge(SPEC.fleet.battery, np.full(CLIENTS, 9e3), 3), several(spent), spent)],
    "Histogram": [Case(lambda: Histogram(2, 11), several(counted), counted)],
    "ActiveClients": [Case(ActiveClients, crowded, left, derived=("._heap",))],
    "Devices": [Case(lambda: fleet()._devices, several(invited), invited)],
    "Buffered": [Case(lambda: calm()._buffered, several(buffered), buffered, derived=("._devices", ".crowd._heap"))],
    "Fleet": [Case(fleet, lived, step, derived=(HEAP,))],
    "Stepping": [
        Case(lambda: Moments(0.1, 1e-3), several(adapted), adapted),
        Case(lambda: RunningSum(0.1, 0.9), several(adapted), adapted),
    ],
    "KnowledgeBase": [
        Case(lambda: KnowledgeBase(4, KnowledgeSettings(top_k=2)), alone, based, CLUSTERS, ("._",)),
        Case(lambda: KnowledgeBase(4, KnowledgeSettings(top_k=2, index="faiss")), alone, based, (), ("._",)),
    ],
    "Ledger": [Case(ledger, several(charged), charged, FACTS, ("._filter",))],
    "Federation": [
        Case(lambda: federation("fedmf", rule="temporal-mean"), worn, trained, (".transfer",)),
        Case(lambda: federation("fedmf", optimiser="adam"), worn, trained, (".transfer",)),
        Case(lambda: federation("fedrap"), worn, trained, (".transfer",), (".tables",)),
        Case(lambda: federation("gpfedrec", rule="graph"), worn, trained, (".transfer",)),
        Case(lambda: federation("fcf", rule="gram"), worn, trained, (".transfer",)),
        Case(lambda: federation("fcucr"), worn, trained, OF_ITS_BASE, (".transfer.base._",)),
        Case(lambda: federation("fedmf", APART), worn, trained, (".transfer",)),
    ],
    "Transfer": [],  # with its federation
    "CorrelatedNoise": [Case(lambda: CorrelatedNoise(3, 2.0**-10), several(noised), noised)],
    "Participation": [
        Case(participation, gathered, met, OF_ITS_PARTS, (*BESIDE, f".fleet{HEAP}", ".worked")),
        Case(coming_apart, several(invited_apart), invited_apart, OF_WAITING, (*BESIDE, ".fleet")),
    ],
}


def has_a_state(node: ast.ClassDef) -> bool:
    named = {inner.name for inner in node.body if isinstance(inner, ast.FunctionDef)}
    return {"state", "restore"} <= named or {"state_dict", "load_state_dict"} <= named


def test_every_class_with_a_state_has_a_case() -> None:
    found = set()
    for room in ("edgefr", "cloud", "edge", "export", "privacy"):
        for file in (ROOT / room).rglob("*.py"):
            nodes = ast.parse(file.read_text()).body
            found |= {node.name for node in nodes if isinstance(node, ast.ClassDef) and has_a_state(node)}
    without = found - CASES.keys() - AT_RUN_LEVEL - OF_NOTHING
    assert not without, f"say in CASES how {sorted(without)} is filled, or nobody knows whether it is restored"
    assert CASES.keys() <= found, "CASES has classes that are gone"


ALL = [pytest.param(case, id=f"{name}-{n}") for name, cases in CASES.items() for n, case in enumerate(cases)]


@pytest.mark.parametrize("case", ALL)
def test_what_is_restored_is_what_was_saved_and_goes_on_alike(case: Case, tmp_path: Path) -> None:
    filled, new = case.new(), case.new()
    untouched = dict(leaves(state_of(new)))
    case.fill(filled)
    saved = through_a_checkpoint(filled, tmp_path)
    as_new = {p for p, value in leaves(saved) if p in untouched and equal(value, untouched[p])}
    restored = case.new()
    restore(restored, saved)
    assert same(through_a_checkpoint(restored, tmp_path), saved)
    assert [p for p in differences(restored, filled) if not p.startswith(case.derived or ("?",))] == []
    for number in range(LATER, LATER + 3):
        assert differences(case.go(restored, number), case.go(filled, number)) == []
    assert [p for p in differences(state_of(restored), state_of(filled)) if p != ".counters.seconds"] == []
    assert as_new <= set(case.constant), "these parts of the state are as in something new: fill them"
