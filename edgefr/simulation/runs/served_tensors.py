"""A run publishes what real devices have learned as the next bundles of its lineage.

    RUN/bundles                     of the run's own tensors
    RUN/bundles-ROUND               of those after so many rounds, made by `edgefr export --served`
    RUN/bundles-ROUND-block-BLOCK   of those too, for the next block of time: `edgefr export --served --next-block`

A server goes on with the newest of them; older ones stay as they are, since devices may hold them. So which block is
open is what the newest bundles say, and a device ends its own when it takes up one of the next.

Owns: where these folders are, and which tensors were served. Does not own: bundles (`edgefr.simulation.bundles`),
rounds (`edgefr.simulation.runs.lineage`).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import torch

from edge.bundle import open_bundle
from edgefr.experiment.experiment import Experiment
from edgefr.simulation.runs.folder import RunFolder
from edgefr.simulation.runs.lineage import FOLDER, SHARED, Lineage, digest_of
from privacy.errors import InputError

BUNDLES = re.compile(r"bundles-([1-9][0-9]{0,8})(?:-block-([1-9][0-9]{0,8}))?")


@dataclass(frozen=True)
class ServedTensors:
    """These are the tensors after a lineage's last round that is over, its number, and when they were written.

    `block`: the block of time that goes on from them, a new one where it is the `opened`.
    """

    round: int
    shared: dict[str, torch.Tensor]
    written: datetime
    block: int = 0
    opened: bool = False

    @classmethod
    def of(cls, run: RunFolder, next_block: bool = False) -> ServedTensors:
        """Read them, for the block that is open, or for the `next_block`.

        Raises `InputError` for a run of which nothing was served, or that has no blocks, and while a round is being
        closed.
        """
        from safetensors.torch import load_file

        lineage, path = Lineage.of(run.path), run.path / FOLDER / SHARED
        if lineage.begun is None or lineage.tensors is None:
            raise InputError(f"nothing of {run.path} was served yet; `edgefr serve` does, or drop --served")
        if digest_of(path) != lineage.tensors:
            raise InputError(f"{path} is not what the last served round left: a round is being closed; try again")
        protocol = run.experiment.protocol
        if next_block and not protocol.entry.hands_on:
            raise InputError(f"a run over {protocol.name} has no blocks of time, so there is no next one")
        parts = {name.removeprefix("shared."): v for name, v in load_file(path).items() if name.startswith("shared.")}
        written = datetime.fromtimestamp(int(path.stat().st_mtime), UTC)
        return cls(lineage.over, parts, written, open_block(run) + next_block, next_block)

    def created(self, run_created: str, begun: int) -> str:
        """Return when their bundles say they were made: later than those of any round before.

        `run_created`: when the run was, whose rounds ended with `begun`.
        """
        least = datetime.fromisoformat(run_created) + timedelta(seconds=self.round - begun)
        return max(self.written, least).isoformat(timespec="seconds")


def published(run: RunFolder) -> Path:
    """Return the folder of a run's newest bundles."""
    matches = [(m, path) for path in run.path.glob("bundles-*") if (m := BUNDLES.fullmatch(path.name))]
    found = [((int(m[1]), int(m[2] or 0)), path) for m, path in matches]
    return max(found)[1] if found else run.path / "bundles"


def place_of(run: RunFolder, served: ServedTensors) -> Path:
    """Return the folder for bundles of served tensors."""
    return run.path / f"bundles-{served.round}{f'-block-{served.block}' if served.opened else ''}"


def first_block(experiment: Experiment) -> int:
    """Return the block of time that devices begin with: the one after all that were simulated with rounds."""
    return experiment.protocol.learned if experiment.protocol.entry.hands_on and experiment.total_rounds else 0


def open_block(run: RunFolder) -> int:
    """Return the block of time that a run's newest bundles are of."""
    for path in sorted(published(run).glob("*/manifest.json")):
        learning = open_bundle(path.parent).config.learning
        if learning is not None:
            return learning.block
    return first_block(run.experiment)
