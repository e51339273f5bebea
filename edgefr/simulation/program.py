"""A run's clients run this local program, built on the prepared catalogue."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import torch

from edgefr.data.prepared_data import Prepared
from edgefr.engine.aggregate import restricted
from edgefr.experiment.experiment import Experiment
from export.given import Given
from export.program import LocalProgram

if TYPE_CHECKING:
    from edgefr.methods.transfr.bert import TitleReader


def build_program(experiment: Experiment, prepared: Prepared, present: int | None = None) -> LocalProgram:
    """Build the experiment's local program on the prepared catalogue; `present`: the items that learning rates count.

    None: all of the catalogue.
    """
    row = experiment.row
    text = None if prepared.text is None else torch.from_numpy(prepared.text.vectors)
    items = len(prepared.dataset.catalogue.ids)
    reader = None if prepared.text is None else partial(read_on_device, experiment, prepared)
    source = torch.from_numpy(prepared.source_items)
    given = Given(items, experiment.local_epochs, text, reader, present, source)
    made = row.program(row.settings.model_validate(experiment.model), given)
    return restricted(made, experiment.privacy.tensors)


def read_on_device(experiment: Experiment, prepared: Prepared) -> TitleReader:
    """Return titles and encoder for clients that read for themselves."""
    from edgefr.methods.transfr.bert import TitleReader

    assert prepared.text is not None
    assert prepared.text.folder is not None
    how = experiment.encoder.encode
    return TitleReader.open(prepared.text.folder, prepared.dataset.catalogue.text, how.pooling, how.max_tokens)
