"""A text encoder makes vectors of items' texts: one registered object each, with all that its name means.

The table is here without torch, so that names can be checked before anything heavy is imported. Owns: the contract.
Does not own: the entries, which have a file each; their settings (`edgefr.sections`); how a device reads (`edge`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from privacy.table import Table

if TYPE_CHECKING:
    from edgefr.experiment import Experiment
    from edgefr.prepare import Prepared
    from edgefr.run import Run
    from export.encoders import Reads
    from export.model import TrainedModel

Progress = Callable[[str, int, int, str], None]
Vectors = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Text:
    """This is the catalogue through an encoder:

    `vectors` [items, f]; `untrained` through the same encoder before training.

    `folder` has what the encoder learned (an ordinary transformers folder, or a table of words; None: it learned
    nothing), `report` says what it is: of a student, what distillation kept of the teacher.
    """

    vectors: Vectors
    untrained: Vectors | None
    folder: Path | None
    report: dict[str, Any]


class TextEncoder(ABC):
    """A text encoder is everything that its name means.

    `language_model`: it is a BERT, of which smaller students can be distilled and whose attention clients can train.
    """

    name: str
    language_model: bool

    @abstractmethod
    def read(self, experiment: Experiment, prepared: Prepared, device: str, progress: Progress | None = None) -> Text:
        """Learn what the encoder learns of a catalogue's texts, and return every item's vector."""

    @abstractmethod
    def shipped(self, run: Run, model: TrainedModel, progress: Progress | None = None) -> Reads:
        """Return what bundles of a finished run carry, by which devices read new texts."""


ENCODERS: Table[TextEncoder] = Table(
    "text encoder", TextEncoder, home="edgefr.encoders.known", group="edgefr.text_encoders"
)
"""Every text encoder by its name."""
