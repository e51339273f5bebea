"""The first stages of a run: data, splits, and (for methods that read) the catalogue as vectors."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from edgefr import data
from edgefr.data.blocks import Block
from edgefr.data.interactions import Dataset
from edgefr.data.sessions import Sessions
from edgefr.data.split import Split
from edgefr.encoders import ENCODERS
from edgefr.encoders import Progress as Progress
from edgefr.encoders import Text as Text
from edgefr.experiment import Experiment
from edgefr.methods import METHODS
from privacy.errors import InputError


@dataclass(frozen=True)
class Prepared:
    """Training starts from this: what a protocol made of a data set, and texts for methods that read."""

    dataset: Dataset
    splits: dict[str, Split]
    protocol: str
    text: Text | None = None
    blocks: tuple[Block, ...] = ()
    sessions: Sessions | None = None

    @property
    def train_split(self) -> Split:
        """The split whose rounds are federated: "source" of a cross-domain task, else the only one."""
        return next(iter(self.splits.values()))

    @property
    def source_items(self) -> npt.NDArray[np.int64]:
        """Return the items that rounds can learn from, ascending: those of one domain in a cross-domain task."""
        if not self.splits:
            return np.arange(len(self.dataset.catalogue.ids))
        return self.train_split.pool.astype(np.int64)


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
    prepared = experiment.protocol.entry.cut(experiment, dataset)
    if not needs_text:
        return prepared
    return replace(prepared, text=ENCODERS[experiment.encoder.kind].read(experiment, prepared, device, progress))


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
