"""A data set as a run uses it: tasks by name, and items' texts as vectors."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from edgefr.data.interactions import Dataset
from edgefr.data.splits.blocks import Block
from edgefr.data.splits.sessions import Sessions
from edgefr.data.splits.split import Split

Vectors = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Text:
    """This is the catalogue through an encoder: `vectors` [items, f]; `untrained` before training.

    `folder`: what the encoder learned, a transformers folder or a table of words (None: nothing); `report` describes
    it.
    """

    vectors: Vectors
    untrained: Vectors | None
    folder: Path | None
    report: dict[str, Any]


@dataclass(frozen=True)
class Prepared:
    """Training starts from this: a protocol's tasks of a data set, and texts for methods that read."""

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
        """Return the items that rounds can learn from, ascending: those of one domain in a cross-domain task.

        Cold items and those of a time to come are not among them, where they are held out.
        """
        if not self.splits:
            return np.arange(len(self.dataset.catalogue.ids))
        return self.train_split.drawn.astype(np.int64)
