"""A run publishes what real devices have learned as the next bundles of its lineage.

    RUN/bundles            of the run's own tensors
    RUN/bundles-ROUND      of those after so many rounds, made by `edgefr export --served`

A server goes on with the newest of them; older ones stay as they are, since devices may hold them.

Owns: where these folders are, and which tensors were served. Does not own: bundles (`edgefr.shipping`), rounds
(`edgefr.lineage`).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import torch

from edgefr.lineage import FOLDER, SHARED, Lineage, digest_of
from edgefr.run import Run
from privacy.errors import InputError

BUNDLES = re.compile(r"bundles-([1-9][0-9]{0,8})")


@dataclass(frozen=True)
class ServedTensors:
    """These are the tensors after a lineage's last round that is over, its number, and when they were written."""

    round: int
    shared: dict[str, torch.Tensor]
    written: datetime

    @classmethod
    def of(cls, run: Run) -> ServedTensors:
        """Read them. Raises `InputError` for a run of which nothing was served, and while a round is being closed."""
        from safetensors.torch import load_file

        lineage, path = Lineage.of(run.path), run.path / FOLDER / SHARED
        if lineage.begun is None or lineage.tensors is None:
            raise InputError(f"nothing of {run.path} was served yet; `edgefr serve` does, or drop --served")
        if digest_of(path) != lineage.tensors:
            raise InputError(f"{path} is not what the last served round left: a round is being closed; try again")
        parts = {name.removeprefix("shared."): v for name, v in load_file(path).items() if name.startswith("shared.")}
        return cls(lineage.over, parts, datetime.fromtimestamp(int(path.stat().st_mtime), UTC))

    def created(self, run_created: str, begun: int) -> str:
        """Return when their bundles say they were made: later than those of any round before.

        `run_created`: when the run was, whose rounds ended with `begun`.
        """
        least = datetime.fromisoformat(run_created) + timedelta(seconds=self.round - begun)
        return max(self.written, least).isoformat(timespec="seconds")


def published(run: Run) -> Path:
    """Return the folder of a run's newest bundles."""
    found = [(int(m[1]), path) for path in run.path.glob("bundles-*") if (m := BUNDLES.fullmatch(path.name))]
    return max(found)[1] if found else run.path / "bundles"


def place_of(run: Run, number: int) -> Path:
    """Return the folder for bundles of the tensors after a served round."""
    return run.path / f"bundles-{number}"
