"""Bundles carry encoders without a graph: what reads a text's words, with the table of words where one was learned."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from edge.manifest import LearnedWords
from edge.manifest import Words as Record
from edge.word_vectors import RULE, WordTable
from export.encoders import SAMPLE, Floats, StagedEncoder, encoder_of
from export.quantise import cosine
from export.staged_files import Staging
from export.trace import TOLERANCE
from export.variants import GraphCost
from privacy.errors import InputError

NUMBERS, WEIGHTS, SCALE = "words/numbers.npy", "words/weights.npy", "words/scale.npy"
LONG = 128  # words of a text whose reading is counted


@dataclass(frozen=True)
class Words:
    """This is an encoder that reads words, of vectors of `width` values; `vectors` [items, width] are the items'.

    `kind`: what it is called. `pairs`: two neighbours are a word too. `table`: what was learned of words (None: they
    are hashed).
    """

    kind: str
    width: int
    pairs: bool
    vectors: Floats
    table: WordTable | None = None

    def forms(self, stage: Staging, texts: Sequence[str]) -> dict[str, StagedEncoder]:
        """Stage the table, if there is one; the one form, by its kind.

        Raises `InputError` where a device would read an item's text as another vector than the item has.
        """
        record = Record(words=RULE, width=self.width, pairs=self.pairs, table=self._table(stage))
        rows = [row for row, text in enumerate(texts) if text.strip()]
        rows = rows[:: max(1, len(rows) // SAMPLE)][:SAMPLE]
        got, have = encoder_of(stage, record).encode([texts[row] for row in rows]), self.vectors[rows]
        if got.shape != have.shape or np.abs(got - have).max(initial=0) > TOLERANCE:
            raise InputError(f"encoder.kind={self.kind} reads texts as other vectors than items have; run it again")
        size, of_row = (0, 0) if self.table is None else (self.table.weights.size, self.table.weights[0].nbytes)
        work = GraphCost(2.0 * LONG * self.width, float(LONG * of_row))
        close = float(cosine(got, have).mean()) if len(rows) else None
        return {self.kind: StagedEncoder(record, size, close, work, None)}

    def _table(self, stage: Staging) -> LearnedWords | None:
        """Stage what was learned of words; return the entry that names its files."""
        if self.table is None:
            return None
        table = self.table
        scale = None if table.scale is None else SCALE
        for path, array in ((NUMBERS, table.numbers), (WEIGHTS, table.weights), (SCALE, table.scale)):
            if array is not None:
                stage.add(path, "words", partial(np.save, arr=array, allow_pickle=False))
        count = len(table.numbers)
        return LearnedWords(count=count, numbers=NUMBERS, weights=WEIGHTS, scale=scale, parts=table.parts)
