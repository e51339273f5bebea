"""A campaign makes many runs in one folder: its record says what was asked for, and finished runs are kept.

    recognise the folder by its record → hold it alone → runs that are left → workers, here or on Ray → each as it ends

Sweeps, tuning and reproductions say which runs there are, and what is read of them.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from edgefr.data import datasets
from edgefr.engine.device import torch_device
from edgefr.experiment.experiment import Experiment
from edgefr.fleet import FleetFile, load_fleet
from edgefr.simulation.simulate import fleet_overrides
from privacy.errors import InputError
from privacy.machine import hold

SUMMARY = "summary.json"
"""The file that a run's folder has as soon as the run is finished."""


@dataclass(frozen=True)
class RecordFile:
    """This is the kind of file that says what was asked for. `remedy`: what to do about one that is damaged."""

    name: str
    schema: str
    remedy: str

    def read(self, folder: Path) -> dict[str, Any]:
        """Return what the record of a folder says. Raises `InputError` for a damaged one."""
        path = folder / self.name
        try:
            found = json.loads(path.read_text(encoding="utf-8"))
            if found["schema"] != self.schema:
                raise ValueError(f"it is of schema {found['schema']}")
        except (OSError, ValueError, LookupError, TypeError) as error:
            raise InputError(f"cannot read {path}: {error}; {self.remedy}") from None
        return dict(found)

    def difference(self, folder: Path, asked: Mapping[str, Any], keys: Mapping[str, str]) -> tuple[str, Any] | None:
        """Return the first of `keys` whose value is not what is asked for, by its name there, and what is kept."""
        kept, wanted = self.read(folder), json.loads(json.dumps(asked))
        return next(((what, kept.get(key)) for key, what in keys.items() if kept.get(key) != wanted.get(key)), None)

    @contextmanager
    def alone(self, folder: Path) -> Iterator[None]:
        """Hold a folder while the block runs. Raises `InputError` where another process does: it would remove runs."""
        record = folder / self.name
        try:
            handle = hold(record)
        except BlockingIOError:
            what = f"another process is at work on the {record.stem} in {folder}"
            raise InputError(f"{what}; wait for it or stop it") from None
        try:
            yield
        finally:
            os.close(handle)


@dataclass
class Fleets:
    """These are the fleets that experiments of a campaign ask for, each read once from `devices`."""

    devices: Path
    read: dict[str, FleetFile] = field(default_factory=dict)

    def of(self, experiment: Experiment) -> FleetFile:
        """Return the devices of an experiment."""
        overrides = fleet_overrides(experiment)
        if (key := repr(overrides)) not in self.read:
            self.read[key] = load_fleet(self.devices, overrides)
        return self.read[key]

    def check(self, experiments: Sequence[Experiment]) -> None:
        """Raise `InputError` for a data set, a chip or a fleet that is not there; one message for each."""
        seen = set()
        for experiment in experiments:
            key = repr((experiment.data, experiment.data_options, experiment.engine.device))
            if key not in seen:
                datasets.check(experiment.data, experiment.data_options)
                torch_device(experiment.engine.device)
                seen.add(key)
            self.of(experiment)


def finished(run: Path) -> bool:
    """Say whether the folder of a run has a summary."""
    return (run / SUMMARY).is_file()


def occupied(folder: Path) -> bool:
    """Say whether something stands where a new folder would be made."""
    return folder.exists() and (not folder.is_dir() or any(folder.iterdir()))


def digest(*parts: str) -> str:
    """Return a digest of texts."""
    return hashlib.sha256("\n".join(parts).encode("utf-8", "backslashreplace")).hexdigest()
