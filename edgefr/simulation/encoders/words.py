"""Words alone are read: hashed, or looked up in a table that TF-IDF made, a teacher that read each word, or both.

They are read by the code that devices have (`edge.word_vectors`), so a device's vectors are the simulator's.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from edge.verified_files import mapped_array
from edge.word_vectors import RULE, Floats, WordEncoder, WordTable, numbers_of, words_of
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

NUMBERS, WEIGHTS, SCALE, VECTORS = "numbers.npy", "weights.npy", "scale.npy", "vectors.npy"
TOKENS = 32  # that a teacher reads of a word or a pair, at most


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
        return Words(self.name, settings.width, settings.pairs, model.program.frozen["text"].numpy())


@dataclass(frozen=True)
class Counted:
    """These words are in texts: `numbers` int64 [n], ascending, the `words` themselves, `counts` [texts, n], sparse."""

    numbers: npt.NDArray[np.int64]
    words: list[str]
    counts: Any


def counted(texts: list[str], pairs: bool, most: int) -> Counted:
    """Return the `most` words that most of the texts have, ties by number."""
    from scipy.sparse import csr_array

    rows = [numbers_of(text, pairs) for text in texts]
    row = np.repeat(np.arange(len(rows)), [len(numbers) for numbers in rows])
    numbers, first, column = np.unique(
        np.concatenate([np.empty(0, np.int64), *rows]), return_index=True, return_inverse=True
    )
    counts = csr_array((np.ones(len(row)), (row, column)), shape=(len(rows), len(numbers)))
    having = np.bincount(counts.nonzero()[1], minlength=len(numbers))
    kept = np.sort(np.argsort(-having, kind="stable")[:most])
    begins = np.cumsum([0, *map(len, rows)])
    words = [words_of(texts[row[at]], pairs)[at - begins[row[at]]] for at in first[kept]]
    return Counted(numbers[kept], words, counts[:, kept])


def by_tfidf(found: Counted, width: int, settings: EncoderSection, device: str, progress: Progress | None) -> Rows:
    """Return rows by which texts are their TF-IDF, on the directions in which they differ most."""
    from cloud.tfidf import fit

    weights, directions = fit(found.counts, width)
    return weights, {"directions": directions}


def by_teacher(found: Counted, width: int, settings: EncoderSection, device: str, progress: Progress | None) -> Rows:
    """Return rows by which texts are what a teacher says of their words, each of which it reads alone."""
    from cloud.encode import encode
    from cloud.model_folder import resolve
    from cloud.settings import EncodeSettings
    from cloud.static_words import fit
    from cloud.tfidf import inverse_frequency
    from edgefr.engine.device import torch_device

    folder, how, chip = resolve(settings.teacher), EncodeSettings(max_tokens=TOKENS), str(torch_device(device))
    vectors = encode(folder, found.words, how, chip, cache_dir(), progress)
    return fit(vectors, inverse_frequency(found.counts), width), {"teacher": settings.teacher}


Rows = tuple[npt.NDArray[Any], dict[str, Any]]
Maker = Callable[[Counted, int, EncoderSection, str, Progress | None], Rows]


@dataclass(frozen=True)
class Tabled(RunEncoder):
    """Words have rows in a table, of equal parts side by side; `in_bytes`: int8 with a scale a part, or float16."""

    name: str
    parts: tuple[Maker, ...]
    in_bytes: bool = True

    language_model = False

    def read(self, experiment: Experiment, prepared: Prepared, device: str, progress: Progress | None = None) -> Text:
        """Learn words of the texts of `encoder.fit`, and read every item's. What was learned is kept by its content."""
        settings, texts = experiment.encoder, prepared.dataset.catalogue.text
        learned_of = prepared.source_items if settings.fit == "source" else range(len(texts))
        found = counted([texts[item] for item in learned_of], settings.pairs, settings.words)
        table, said = self.table(found, settings, device, progress)
        arrays = _files(table)
        content = hashlib.sha256(b"".join(array.tobytes() for array in arrays.values())).hexdigest()[:24]
        folder = cache_dir() / f"words-{content}"
        for name, array in arrays.items():
            write_atomic(folder / name, partial(np.save, arr=array, allow_pickle=False))
        report = {"width": settings.width, "texts": len(learned_of), "words": len(table.numbers)}
        return Text(WordEncoder(settings.width, settings.pairs, table).encode(texts), None, folder, report | said)

    def table(
        self, found: Counted, settings: EncoderSection, device: str = "cpu", progress: Progress | None = None
    ) -> tuple[WordTable, dict[str, Any]]:
        """Return the table of words that were counted, and what is to be reported of it."""
        from export.quantise import table_int8

        width = settings.width // len(self.parts)
        made = [make(found, width, settings, device, progress) for make in self.parts]
        said = {name: value for _, part in made for name, value in part.items()}
        if not self.in_bytes:
            return WordTable(found.numbers, made[0][0]), said
        rows = np.stack([rows for rows, _ in made], axis=1).astype(np.float32)
        values, scale = table_int8(rows.reshape(-1, width))
        return WordTable(found.numbers, values.reshape(len(rows), -1), scale.reshape(len(rows), -1)), said

    def shipped(self, run: RunFolder, model: TrainedModel, progress: Progress | None = None) -> Words:
        from export.word_encoders import Words

        settings = run.experiment.encoder
        vectors, table = model.program.frozen["text"].numpy(), opened(run.path / "encoder")
        return Words(self.name, settings.width, settings.pairs, vectors, table)


def _files(table: WordTable) -> dict[str, npt.NDArray[Any]]:
    """Return the arrays of a table by the files that they are kept in."""
    arrays: dict[str, npt.NDArray[Any]] = {NUMBERS: table.numbers, WEIGHTS: table.weights}
    return arrays if table.scale is None else arrays | {SCALE: table.scale}


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
        table, _ = TABLES[0].table(counted(list(texts), chosen.pairs, chosen.words), chosen)
    except InputError:
        return None
    vectors = WordEncoder(chosen.width, chosen.pairs, table).encode(texts)
    write_atomic(path, partial(np.save, arr=vectors, allow_pickle=False))
    return vectors


def opened(folder: Path) -> WordTable:
    """Return the table of words that a run keeps. Raises `InputError` for files that are damaged or not there."""
    try:
        scale = mapped_array(folder / SCALE) if (folder / SCALE).exists() else None
        return WordTable(mapped_array(folder / NUMBERS), mapped_array(folder / WEIGHTS), scale)
    except (ValueError, OSError) as error:
        raise InputError(f"cannot read the words of {folder}: {error}; run the experiment again") from error


TABLES = (
    Tabled("tfidf", (by_tfidf,), in_bytes=False),
    Tabled("static", (by_teacher,)),
    Tabled("static+tfidf", (by_teacher, by_tfidf)),
)
for _encoder in (Student(), Hashed(), *TABLES):
    ENCODERS.register(_encoder)
