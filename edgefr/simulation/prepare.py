"""The first stages of a run: data, splits, and (for methods that read) the catalogue as vectors."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from edgefr.data import datasets as data
from edgefr.data.interactions import Dataset
from edgefr.data.prepared_data import Prepared
from edgefr.data.prepared_data import Text as Text
from edgefr.experiment.experiment import Experiment
from edgefr.experiment.method import METHODS
from edgefr.simulation.encoders.encoder import encoder_of
from edgefr.simulation.protocols.protocol import protocol_of
from privacy.errors import InputError
from privacy.progress import Progress as Progress


def prepare(
    experiment: Experiment,
    data_dir: Path | None,
    device: str,
    progress: Progress | None = None,
    given: Dataset | None = None,
) -> Prepared:
    """Load the data, split it by the protocol, and encode the catalogue if the method reads text.

    `given` is a data set that the caller has, in place of what the experiment names.
    """
    needs_text = experiment.row.needs_text
    if needs_text and given is None and not data.has_texts(experiment.data, data_dir, experiment.data_options):
        raise _no_texts(experiment, experiment.data)
    dataset = given
    if dataset is None:
        dataset = data.load(experiment.data, data_dir, experiment.seed, experiment.data_options, progress)
    if needs_text and not any(dataset.catalogue.text):
        raise _no_texts(experiment, dataset.name)
    prepared = protocol_of(experiment).cut(experiment, dataset)
    if not needs_text:
        return prepared
    return replace(prepared, text=encoder_of(experiment).read(experiment, prepared, device, progress))


def _no_texts(experiment: Experiment, name: str) -> InputError:
    """Return the error of a method that reads texts where items have none."""
    others = [row.name for row in METHODS.values() if not row.needs_text and row.reads == experiment.row.reads]
    own = not data.is_named(experiment.data)
    mend = "name a file of items with texts by data_options.items (of a frame: items=), text columns of the "
    mend = f"{mend}interactions by data_options.texts (as [title]), or " if own else ""
    return InputError(
        f"{experiment.row.name} reads the texts of items, and '{name}' has none; {mend}choose a method that reads "
        f"none: --set method={' or '.join(others)}"
    )
