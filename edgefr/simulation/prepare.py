"""The first stages of a run: data, splits, and (for methods that read) the catalogue as vectors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from edgefr.data import datasets as data
from edgefr.data.filtering import of_users
from edgefr.data.interactions import Dataset
from edgefr.data.prepared_data import Prepared
from edgefr.experiment.experiment import Experiment
from edgefr.experiment.method import METHODS
from edgefr.simulation.encoders.encoder import encoder_of
from edgefr.simulation.protocols.protocol import protocol_of
from privacy.errors import InputError
from privacy.progress import Progress


def prepare(
    experiment: Experiment,
    data_dir: Path | None,
    device: str,
    progress: Progress | None = None,
    given: Dataset | None = None,
    users: Sequence[str] | None = None,
) -> Prepared:
    """Load the data, split it by the protocol, and encode the catalogue if the method reads text.

    `given` is a data set that the caller has, in place of what the experiment names. `users`: who is in the data (None:
    everybody). Raises `InputError` for a method
    that reads texts where items have none.
    """
    e, protocol, encoder = experiment, protocol_of(experiment), encoder_of(experiment)
    name = e.data if given is None else given.name
    if given is None:
        dataset = data.load(e.data, data_dir, e.seed, e.data_options, progress, users)
    else:
        dataset = given if users is None else of_users(given, users)
    if e.row.needs_text and not any(dataset.catalogue.text):
        others = [row.name for row in METHODS.values() if not row.needs_text and row.reads == e.row.reads]
        own = "name a file of items with texts by data_options.items (of a frame: items=), text columns of the "
        own = f"{own}interactions by data_options.texts (as [title]), or " if not data.is_named(e.data) else ""
        raise InputError(
            f"{e.row.name} reads the texts of items, and '{name}' has none; {own}choose a method that reads "
            f"none: --method {' or '.join(others)}"
        )
    prepared = protocol.cut(e, dataset)
    if not e.row.needs_text:
        return prepared
    return replace(prepared, text=encoder.read(e, prepared, device, progress))
