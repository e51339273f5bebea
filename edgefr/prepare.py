"""The first stages of a run: data, splits, and (for methods that read) the catalogue as vectors."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from edgefr import data
from edgefr.data.blocks import Block
from edgefr.data.interactions import Dataset
from edgefr.data.sessions import Sessions
from edgefr.data.split import Split
from edgefr.experiment import Experiment
from edgefr.methods import METHODS
from privacy.errors import InputError

Progress = Callable[[str, int, int, str], None]
Vectors = npt.NDArray[np.float32]


def cache_dir() -> Path:
    """Return where distilled encoders and encoded catalogues are kept:

    EDGEFR_CACHE, or edgefr in the user's cache folder.
    """
    chosen = os.environ.get("EDGEFR_CACHE")
    if chosen:
        return Path(chosen)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "edgefr"


@dataclass(frozen=True)
class Text:
    """This is the catalogue through an encoder:

    `vectors` [items, f]; `untrained` through the same encoder before training.

    `folder` is the encoder (an ordinary transformers folder), `report` what distillation kept of the teacher.
    """

    vectors: Vectors
    untrained: Vectors | None
    folder: Path
    report: dict[str, Any]


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
    return replace(prepared, text=read(experiment, prepared.dataset.catalogue.text, device, progress))


def _no_texts(experiment: Experiment, name: str) -> InputError:
    """Return the error of a method that reads texts where items have none."""
    others = [row.name for row in METHODS.values() if not row.needs_text and row.reads == experiment.row.reads]
    own = not data.is_named(experiment.data)
    mend = "name a file of items with texts by data_options.items (of a frame: items=), or " if own else ""
    return InputError(
        f"{experiment.row.name} reads the texts of items, and '{name}' has none; {mend}choose a method that reads "
        f"none: --set method={' or '.join(others)}"
    )


def read(experiment: Experiment, texts: list[str], device: str, progress: Progress | None = None) -> Text:
    """Distil the student (or take the teacher) and encode every item's text once. Both are cached by content."""
    from cloud.distill import distill, untrained
    from cloud.encode import encode
    from cloud.teacher import resolve

    cache, settings = cache_dir(), experiment.encoder
    if settings.distill is None:
        folder = resolve(settings.teacher)
        return Text(
            encode(folder, texts, settings.encode, device, cache, progress),
            None,
            folder,
            {"teacher": settings.teacher},
        )
    student = distill(texts, settings.distill, cache, device, progress)
    blank = untrained(settings.distill, cache)
    return Text(
        vectors=encode(student.path, texts, settings.encode, device, cache, progress),
        untrained=encode(blank.path, texts, settings.encode, device, cache, progress),
        folder=student.path,
        report={**student.report, "digest": student.digest, "cached": student.cached},
    )
