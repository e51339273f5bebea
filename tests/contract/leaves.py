"""Every setting of an experiment is changed, one at a time: the run comes to something else, or the change is refused.

    python -m tests.contract.leaves [BASE ...]     every base (or these): a line per setting, then a table of counts

A setting that is refused since nothing reads it has to be one that nothing reads: with that refusal turned off,
changing it changes nothing. `tests.contract.bases` has what is started from, `tests.contract.schema` the settings.
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import yaml

import edgefr
from edge.manifest import MANIFEST
from edgefr.experiment.experiment import Change, Experiment
from edgefr.experiment.unread_settings import unread
from edgefr.fleet import FleetFile, load_fleet
from edgefr.simulation.bundles import export_run
from edgefr.simulation.runs.run import Run
from edgefr.simulation.simulate import fleet_overrides
from export.quality import Quality
from export.variants import Variant
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

ECHOED = {
    "method",
    "backbone",
    "strategy",
    "fidelity",
    "data",
    "protocol",
    "rounds",
    "seed",
    "trust",
    "adjacency",
    "adversary",
    "delta",
}
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
        self.devices = few_devices(folder / "devices.yaml", base.slow)
        self.experiment, fleet = self.load(())
        self.leaves = [leaf for leaf in leaves(self.experiment, fleet) if not base.asks or leaf.within(base.asks)]

    @property
    def has_bundles(self) -> bool:
        """Whether the base ships bundles: not where clients have item rows of their own, nor of a central reference."""
        return not self.experiment.row.own_rows and self.experiment.row.central is None

    def load(self, changes: Asked) -> tuple[Experiment, FleetFile]:
        """Return the base with changes, and its fleet; raises `InputError` where either refuses them."""
        made = edgefr.load_experiment(overrides=[*self.overrides, *changes])
        return made, load_fleet(self.devices, fleet_overrides(made))

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
        ships = leaf.name.startswith("export.") and self.has_bundles
        try:
            found = self.results(asked, ships)
        except InputError as error:
            return Outcome("unread" if self._unread(leaf, change) else "refused", str(error), (change,))
        lines = differences(found, self.results(tuple(beside), ships))
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
        ships = self.has_bundles and any(c.field.startswith("export") for c in batch)
        try:
            with unguarded():
                found = differences(self.results(batch, ships), self.results((), ships))
        except InputError:
            half = len(batch) // 2
            return self._read_of(batch[:half]) + self._read_of(batch[half:]) if half else []  # refused all the same
        names = ", ".join(change.field for change in batch)
        return [f"{line} (one of {names})" for line in found if not line.startswith("/who")]

    def results(self, changes: Asked, ships: bool) -> Results:
        """Return tensors, metrics, ledger, clock and the rest of the summary of a run; or what is shipped of one."""
        kept = not any(change.source == "the change" for change in changes)
        known = f"{changes} {ships}"
        if known in self.known:
            return self.known[known]
        found = self._shipped(changes) if ships else self._learned(changes)
        if kept:
            self.known[known] = found
        return found

    def _learned(self, changes: Asked) -> Results:
        with tempfile.TemporaryDirectory(dir=self.folder) as place:
            made, fleet = self.load(changes)
            key = KEY if made.draws_noise else None
            run = edgefr.simulate(made, fleet, out=Path(place) / "run", bundles=False, figures=False, noise_key=key)
            summary = run.summary
            files = sorted(str(path.relative_to(run.path)) for path in run.path.rglob("*") if path.is_file())
            plain = {key: value for key, value in _plain(summary).items() if key != "experiment"}
            who = {key: summary["engine"].get(key) for key in ("executor", "workers", "shard_size", "device")}
            who["experiment"] = summary["experiment"]
            return {**values_of(run.path), "files": files, "summary": plain, "who": who}

    def _shipped(self, changes: Asked) -> Results:
        """Return what the bundle for one device class holds; each takes seconds. Training is done once for all."""
        trained = self.folder / "trained"
        if not trained.exists():
            one = Change("fleet.share", {"laptop_x86": 1.0}, "beside it")
            edgefr.simulate(*self.load((one,)), out=trained, bundles=False, figures=False)
        made, _ = self.load(changes)
        with tempfile.TemporaryDirectory(dir=self.folder) as place:
            run = Run(shutil.copytree(trained, Path(place) / "run"))
            run.write_experiment(run.experiment.model_copy(update={"export": made.export}))
            learns = any(change.field == "export.learning" for change in changes)
            with nullcontext() if learns else ships_plainly():
                (row,) = export_run(run)
            manifest = json.loads((Path(row["path"]) / MANIFEST).read_text())
            files = {file["path"]: file["sha256"] for file in manifest["files"] if file["path"] != "MODEL_CARD.md"}
            return {k: row[k] for k in ("class", "variant", "fits", "lacks", "passed_over")} | {"files": files}

    def outcomes(self) -> Iterator[tuple[Leaf, Outcome]]:
        """Yield every setting that the base asks for, and what came of it."""
        for leaf in self.leaves:
            yield leaf, self.outcome(leaf)


def few_devices(path: Path, gflops: float) -> Path:
    """Write a devices.yaml with some of the classes that ship, which is read in no time, and a slow one."""
    values = yaml.safe_load(Path("devices.yaml").read_text())
    values["devices"] = {name: values["devices"][name] for name in CLASSES}
    values["fleet"]["share"] = dict.fromkeys(CLASSES, 1 / len(CLASSES))
    values["devices"]["slow"] = deepcopy(values["devices"]["laptop_x86"])
    values["devices"]["slow"]["compute"]["fp32_gflops"] = gflops
    path.write_text(yaml.safe_dump(values))
    return path


@contextmanager
def ships_plainly() -> Iterator[None]:
    """Let bundles only recommend, which is traced sooner, and int8 vectors lose half of what small models have."""

    def quality(kit: Any, tables: Any, texts: Any, variant: Variant, judge: Any) -> Quality:
        kept = 0.5 if variant.table == "i8" else 1.0
        return Quality(1, overlap=kept, hit_rate=kept, kept=kept)

    measured = mock.patch("export.candidates._quality", quality)
    with measured, mock.patch("edgefr.simulation.bundles.learning_of", return_value=None):
        yield


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


def swept(name: str) -> tuple[Counter[str], dict[str, str]]:
    """Print every setting of a base with what came of it, and what is read though refused; return counts and kinds."""
    counts, kinds, began = Counter[str](), dict[str, str](), time.process_time()
    with tempfile.TemporaryDirectory() as place:
        sweep, refused = Sweep(name, Path(place)), list[Change]()
        for leaf, found in sweep.outcomes():
            kinds[leaf.name] = found.kind
            counts[found.kind] += 1
            refused += found.asked if found.kind == "unread" and leaf.own else ()
            print(f"{name}: {found.kind} {leaf.name}: {found.why[:150]}", flush=True)
        for line in sweep.read_after_all(refused):
            counts["read"] += 1
            print(f"{name}: READ {line[:300]}", flush=True)
    counts["seconds"] = round(time.process_time() - began)
    return counts, kinds


def main() -> None:
    """Sweep the bases that are named, or all of them; print a table of counts, and what was changed in none of them."""
    columns, rows, kinds = ("changed", "unread", "refused", "nothing", "read", "seconds"), list[str](), dict[str, str]()
    for name in sys.argv[1:] or [*BASES, *CHOICES]:
        counts, found = swept(name)
        kinds |= {setting: kind for setting, kind in found.items() if kinds.get(setting) != "changed"}
        rows.append(f"| {name} | " + " | ".join(str(counts[column]) for column in columns) + " |")
        print(rows[-1], flush=True)
    print("\n| base | " + " | ".join(columns) + " |\n" + "|---" * (len(columns) + 1) + "|\n" + "\n".join(rows))
    print("changed in none:", ", ".join(sorted(name for name, kind in kinds.items() if kind != "changed")))


if __name__ == "__main__":
    main()
