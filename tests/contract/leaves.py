"""Every setting of an experiment is changed, one at a time: the run comes to something else, or the change is refused.

A setting that is refused since nothing reads it has to be one that nothing reads: with that refusal turned off,
changing it changes nothing. `tests.contract.bases` has what is started from, `tests.contract.schema` the settings.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any
from unittest import mock

import yaml

import edgefr
from edgefr.experiment.experiment import Change, Experiment
from edgefr.experiment.unread_settings import unread
from edgefr.fleet import FleetFile, load_fleet
from edgefr.simulation.simulate import fleet_overrides
from privacy.errors import InputError
from privacy.setting_scope import unread_fields
from tests.contract.bases import BASES, CHOICES
from tests.contract.schema import Leaf, leaves
from tests.contract.values import BESIDE
from tests.golden.cases import STUDENT
from tests.golden.values import differences, values_of
from tests.noises import KEY

Results = dict[str, Any]
Asked = tuple[Change, ...]

CLASSES = ("android_go_a22", "phone_sd680", "watch_w5", "laptop_x86")

ENGINE = ("executor", "workers", "ray_address", "shard_size", "memory_mb", "device")
WHO = ("name", *(f"engine.{name}" for name in ENGINE))
"""Settings that say what a run is called and who does the work; results do not depend on them, a summary names them."""

ECHOED = {"method", "backbone", "strategy", "fidelity", "data", "protocol", "rounds", "seed"}
ECHOED |= {"trust", "adjacency", "adversary", "delta"}
"""Parts of a summary that repeat what was asked, and say nothing of what came out."""

OF_THE_MACHINE = {"seconds", "clients_per_second", "peak_rss_mb", "versions", "bundles", "engine"}


@dataclass(frozen=True)
class Outcome:
    """What came of changing a setting: "changed", "unread" (nothing reads it here, and it was refused for that),
    "refused" (for another reason), or "nothing"; and what differed, or the reason."""

    kind: str
    why: str
    asked: Asked = ()


class Sweep:
    """Runs of one base, each with one setting changed; what they are compared with is run once."""

    def __init__(self, name: str, folder: Path):
        base = (BASES | CHOICES)[name]
        self.name, self.folder, self.known = name, folder, dict[str, Results]()
        self.overrides = [_placed(text) for text in base.overrides()]
        self.devices = folder / "devices.yaml"
        self.devices.write_text(few_devices(base.slow))
        self.fleets = dict[str, FleetFile]()
        self.experiment, fleet = self.load(())
        self.leaves = [leaf for leaf in leaves(self.experiment, fleet) if not base.asks or leaf.within(base.asks)]

    def load(self, changes: Asked) -> tuple[Experiment, FleetFile]:
        """Return the base with changes, and its fleet; raises `InputError` where either refuses them."""
        made = edgefr.load_experiment(overrides=[*self.overrides, *changes])
        asked = fleet_overrides(made)
        if repr(asked) not in self.fleets:
            self.fleets[repr(asked)] = load_fleet(self.devices, asked)
        return made, self.fleets[repr(asked)]

    def outcome(self, leaf: Leaf) -> Outcome:
        """Return what came of the first value that has an effect, or else was taken, or else of the first."""
        ranked, found = ("changed", "nothing", "unread", "refused"), list[Outcome]()
        for value in leaf.others:
            found.append(self._of_value(leaf, value))
            if found[-1].kind == "changed":
                break
        return min(found, key=lambda one: ranked.index(one.kind), default=Outcome("refused", "there is no other value"))

    def accepts(self, leaf: Leaf) -> bool:
        """Whether the base can be made with any other value of a setting; nothing is run."""
        return any(self._taken(self._asked(leaf, value)) for value in leaf.others)

    def _asked(self, leaf: Leaf, value: Any) -> Asked:
        """Return the change of a setting to a value, after what is set beside it."""
        beside = [Change(name, _placed(other), "beside it") for name, other in BESIDE.get(leaf.name, {}).items()]
        return (*beside, Change(leaf.sets, _placed(value), "the change"))

    def _of_value(self, leaf: Leaf, value: Any) -> Outcome:
        *beside, change = asked = self._asked(leaf, value)
        try:
            found = self.results(asked)
        except InputError as error:
            return Outcome("unread" if self._unread(leaf, change) else "refused", str(error), (change,))
        lines = differences(found, self.results(tuple(beside)))
        told = [line for line in lines if leaf.name in WHO or not line.startswith("/who")]
        return Outcome("changed", told[0]) if told else Outcome("nothing", f"{leaf.sets}={value}")

    def _unread(self, leaf: Leaf, change: Change) -> bool:
        """Whether a change is refused since it is of a setting that nothing reads beside the others."""
        if not leaf.own:
            return True
        if self._taken((change,)) or not self._taken_if_read((change,)):
            return False
        with unguarded():
            made, fleet = self.load((change,))
            places = {".".join(place) for place in unread(made)}
            places |= {f"fleet.rounds.{name}" for name in unread_fields(fleet.rounds)}
        return any(leaf.within((place,)) for place in places)

    def _taken(self, changes: Asked) -> bool:
        """Whether an experiment and its fleet can be made with these changes."""
        try:
            self.load(changes)
        except InputError:
            return False
        return True

    def _taken_if_read(self, changes: Asked) -> bool:
        """Whether they would be taken if settings that nothing reads were."""
        with unguarded():
            return self._taken(changes)

    def read_after_all(self, refused: list[Change]) -> list[str]:
        """Return what differs where settings that "nothing reads" are changed all the same; empty: nothing reads them.

        As many are changed at once as go together.
        """
        waiting, lines = refused, []
        while waiting:
            batch: Asked = ()
            for change in waiting:
                if self._taken_if_read((*batch, change)):
                    batch = (*batch, change)
            waiting = [change for change in waiting if change not in batch] if batch else []
            lines += self._read_of(batch) if batch else ["it is refused"]
        return lines

    def _read_of(self, batch: Asked) -> list[str]:
        """Return what differs where these are changed together; by halves where one of them lets no run begin."""
        try:
            with unguarded():
                found = differences(self.results(batch), self.results(()))
        except InputError:
            half = len(batch) // 2
            return self._read_of(batch[:half]) + self._read_of(batch[half:]) if half else []  # refused all the same
        names = ", ".join(change.field for change in batch)
        return [f"{line} (one of {names})" for line in found if not line.startswith("/who")]

    def results(self, changes: Asked) -> Results:
        """Return tensors, metrics, ledger, clock and the rest of the summary of a run."""
        known = f"{changes}"
        if known in self.known:
            return self.known[known]
        found = self._learned(changes)
        if not any(change.source == "the change" for change in changes):
            self.known[known] = found
        return found

    def _learned(self, changes: Asked) -> Results:
        with tempfile.TemporaryDirectory(dir=self.folder) as place:
            made, fleet = self.load(changes)
            key = KEY if made.draws_noise else None
            run = edgefr.simulate(made, fleet, out=Path(place) / "run", bundles=False, page=False, noise_key=key)
            summary = run.summary
            files = sorted(str(path.relative_to(run.path)) for path in run.path.rglob("*") if path.is_file())
            plain = {key: value for key, value in _plain(summary).items() if key != "experiment"}
            who = {key: summary["engine"].get(key) for key in ("executor", "workers", "shard_size", "device")}
            who["experiment"] = summary["experiment"]
            return {**values_of(run.path), "files": files, "summary": plain, "who": who}


@cache
def few_devices(gflops: float) -> str:
    """Return a devices.yaml with some of the classes that ship, which is read in no time, and a slow one."""
    values = yaml.safe_load(Path("devices.yaml").read_text())
    values["devices"] = {name: values["devices"][name] for name in CLASSES}
    values["fleet"]["share"] = dict.fromkeys(CLASSES, 1 / len(CLASSES))
    values["devices"]["slow"] = deepcopy(values["devices"]["laptop_x86"])
    values["devices"]["slow"]["compute"]["fp32_gflops"] = gflops
    return str(yaml.safe_dump(values))


@contextmanager
def unguarded() -> Iterator[None]:
    """Let settings through that nothing reads, which belong to another choice, for a while."""
    fields = mock.patch("privacy.setting_scope.unread_fields", return_value={})
    with fields, mock.patch("edgefr.experiment.unread_settings.unread", return_value={}):
        yield


def _plain(value: Any) -> Any:
    """Return a summary without what is of the machine or of the moment."""
    if isinstance(value, dict):
        kept = {key: part for key, part in value.items() if key not in OF_THE_MACHINE | ECHOED}
        return {key: _plain(part) for key, part in kept.items() if not key.endswith("_seconds")}
    return [_plain(part) for part in value] if isinstance(value, list) else value


def _placed(value: Any) -> Any:
    """Return a value with the folders of two small text encoders in their places."""
    from tests.contract.encoders import OTHER, other_student
    from tests.export.worlds import student

    if isinstance(value, dict):
        return {key: _placed(part) for key, part in value.items()}
    if isinstance(value, list):
        return [_placed(part) for part in value]
    if not isinstance(value, str):
        return value
    value = value.replace(OTHER, str(other_student())) if OTHER in value else value
    return value.replace(STUDENT, str(student())) if STUDENT in value else value
