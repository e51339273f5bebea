"""A text encoder makes vectors of items' texts: one registered object each, with all that its name means.

The table is here without torch, so that names can be checked before anything heavy is imported. Owns: the contract.
Does not own: the entries, which have a file each; their settings (`edgefr.experiment.sections`); how a device reads
(`edge`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from edgefr.data.prepared import Text
from privacy.progress import Progress
from privacy.table import Table

if TYPE_CHECKING:
    from edgefr.data.prepared import Prepared
    from edgefr.experiment.experiment import Experiment
    from edgefr.simulation.runs.run import Run
    from export.encoders import Reads
    from export.model import TrainedModel


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
    "text encoder", TextEncoder, home="edgefr.simulation.encoders.known", group="edgefr.text_encoders"
)
"""Every text encoder by its name."""
