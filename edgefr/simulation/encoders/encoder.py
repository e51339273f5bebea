"""A run asks its text encoder for every item's vector, and for what bundles carry to read new texts."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from edgefr.data.prepared_data import Prepared, Text
from edgefr.experiment.experiment import Experiment
from edgefr.experiment.text_encoder import ENCODERS, TextEncoder
from privacy.progress import Progress

if TYPE_CHECKING:
    from edgefr.simulation.runs.folder import RunFolder
    from export.encoders import Reads
    from export.model import TrainedModel


class RunEncoder(TextEncoder, ABC):
    """A text encoder as a run uses it."""

    @abstractmethod
    def read(self, experiment: Experiment, prepared: Prepared, device: str, progress: Progress | None = None) -> Text:
        """Learn what the encoder learns of a catalogue's texts, and return every item's vector."""

    @abstractmethod
    def shipped(self, run: RunFolder, model: TrainedModel, progress: Progress | None = None) -> Reads:
        """Return what bundles of a finished run carry, by which devices read new texts."""


def encoder_of(experiment: Experiment) -> RunEncoder:
    """Return the experiment's text encoder as a run uses it."""
    entry = ENCODERS[experiment.encoder.kind]
    assert isinstance(entry, RunEncoder)
    return entry
