"""References that need no language model: words are hashed, or weighed by TF-IDF and projected.

They read by the code that devices have (`edge.word_vectors`), so a device's vectors are the simulator's.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from edge.verified_files import mapped_array
from edge.word_vectors import RULE, Floats, WordEncoder, WordTable, numbers_of
from edgefr.data.prepared_data import Text
from edgefr.experiment.sections import EncoderSection
from edgefr.experiment.text_encoder import ENCODERS
from edgefr.simulation.encoders.encoder import RunEncoder
from edgefr.simulation.encoders.student import Student
from privacy.errors import InputError
from privacy.files import cache_dir, write_atomic
from privacy.progress import Progress

if TYPE_CHECKING:
    from edgefr.data.prepared_data import Prepared
    from edgefr.experiment.experiment import Experiment
    from edgefr.simulation.runs.folder import RunFolder
    from export.model import TrainedModel
    from export.word_encoders import Words

NUMBERS, WEIGHTS, VECTORS = "numbers.npy", "weights.npy", "vectors.npy"


class Hashed(RunEncoder):
    """Words are hashed with signs into so many places: nothing is learned, of no text."""

    name = "hash"
    language_model = False

    def read(self, experiment: Experiment, prepared: Prepared, device: str, progress: Progress | None = None) -> Text:
        settings = experiment.encoder
        encoder = WordEncoder(settings.width, settings.pairs)
        return Text(encoder.encode(prepared.dataset.catalogue.text), None, None, {"width": settings.width})

    def shipped(self, run: RunFolder, model: TrainedModel, progress: Progress | None = None) -> Words:
        from export.word_encoders import Words

        settings = run.experiment.encoder
        return Words(settings.width, settings.pairs, model.program.frozen["text"].numpy())


class TfIdf(RunEncoder):
    """Words are weighed by how few texts have them, and projected on the directions in which texts differ."""

    name = "tfidf"
    language_model = False

    def read(self, experiment: Experiment, prepared: Prepared, device: str, progress: Progress | None = None) -> Text:
        """Learn words of the texts of `encoder.fit`, and read every item's. What was learned is kept by its content."""
        settings, texts = experiment.encoder, prepared.dataset.catalogue.text
        learned_of = prepared.source_items if settings.fit == "source" else range(len(texts))
        table, directions = learn([texts[item] for item in learned_of], settings.width, settings.pairs, settings.words)
        content = hashlib.sha256(table.numbers.tobytes() + table.weights.tobytes()).hexdigest()[:24]
        folder = cache_dir() / f"words-{content}"
        for name, array in ((NUMBERS, table.numbers), (WEIGHTS, table.weights)):
            write_atomic(folder / name, partial(np.save, arr=array, allow_pickle=False))
        report = {"width": settings.width, "texts": len(learned_of), "words": len(table.numbers)}
        vectors = WordEncoder(settings.width, settings.pairs, table).encode(texts)
        return Text(vectors, None, folder, {**report, "directions": directions})

    def shipped(self, run: RunFolder, model: TrainedModel, progress: Progress | None = None) -> Words:
        from export.word_encoders import Words

        settings = run.experiment.encoder
        vectors, table = model.program.frozen["text"].numpy(), opened(run.path / "encoder")
        return Words(settings.width, settings.pairs, vectors, table)


def learn(texts: list[str], width: int, pairs: bool, most: int) -> tuple[WordTable, int]:
    """Learn a table of the `most` words that most texts have, ties by number; and say how many directions it has.

    Raises `InputError` for texts of which nothing can be learned.

    >>> table, directions = learn(["red wool", "blue wool", "blue jar"], width=8, pairs=False, most=3)
    >>> table.weights.shape, directions
    ((3, 8), 3)
    """
    from scipy.sparse import csr_array

    from cloud.tfidf import fit

    rows = [numbers_of(text, pairs) for text in texts]
    row = np.repeat(np.arange(len(rows)), [len(numbers) for numbers in rows])
    words, column = np.unique(np.concatenate([np.empty(0, np.int64), *rows]), return_inverse=True)
    counts = csr_array((np.ones(len(row)), (row, column)), shape=(len(rows), len(words)))
    having = np.bincount(counts.nonzero()[1], minlength=len(words))
    kept = np.sort(np.argsort(-having, kind="stable")[:most])
    weights, directions = fit(counts[:, kept], width)
    return WordTable(words[kept], weights), directions


def tfidf_vectors(texts: Sequence[str]) -> Floats | None:
    """Return the texts' vectors by TF-IDF at the encoder's defaults, float32 [n, width], which are kept by content.

    None where nothing can be learned of the texts: a reference needs two of them, and two words.
    """
    chosen = EncoderSection(kind="tfidf")
    size = (chosen.width, chosen.pairs, chosen.words)
    content = hashlib.sha256("\0".join([RULE, *map(str, size), *texts]).encode(errors="surrogatepass"))
    path = cache_dir() / f"words-{content.hexdigest()[:24]}" / VECTORS
    if path.is_file():
        try:
            return np.load(path, allow_pickle=False)  # type: ignore[no-any-return]
        except (ValueError, OSError):
            pass  # a damaged file is made anew
    try:
        table, _ = learn(list(texts), *size)
    except InputError:
        return None
    vectors = WordEncoder(chosen.width, chosen.pairs, table).encode(texts)
    write_atomic(path, partial(np.save, arr=vectors, allow_pickle=False))
    return vectors


def opened(folder: Path) -> WordTable:
    """Return the table of words that a run keeps. Raises `InputError` for files that are damaged or not there."""
    try:
        return WordTable(mapped_array(folder / NUMBERS), mapped_array(folder / WEIGHTS))
    except (ValueError, OSError) as error:
        raise InputError(f"cannot read the words of {folder}: {error}; run the experiment again") from error


for _encoder in (Student(), Hashed(), TfIdf()):
    ENCODERS.register(_encoder)
