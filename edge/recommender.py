"""Recommendation on the device: a bundle, onnxruntime, no torch."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from edge.bundle import open_bundle
from edge.clients import Clients, named, read_strings, read_tensors
from edge.encoder import TextEncoder
from edge.graph import Graph
from edge.tables import open_table
from privacy.errors import InputError

Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int64]
BLOCK = 4096  # items scored in one call: bounds memory whatever the catalogue's size


class Recommender:
    """Scores and encodes with one bundle. Raises `InputError` for one that is damaged or inconsistent.

    >>> Recommender("bundles/rpi_5_8gb").recommend(10, user="196")  # doctest: +SKIP
    [('318', "Schindler's List (1993)", 4.81), ...]
    """

    def __init__(self, bundle: str | Path) -> None:
        self.bundle = open_bundle(bundle)
        manifest, config = self.bundle.manifest, self.bundle.config
        self.item_ids = read_strings(self.bundle, manifest.ids_file, "ids", manifest.item_count)
        self.titles = read_strings(self.bundle, manifest.ids_file, "titles", manifest.item_count)
        self._item_number = {item: number for number, item in enumerate(self.item_ids)}
        self._offered = self._read_offered()
        self._clients = Clients(self.bundle)
        self._tables = {table.name: open_table(self.bundle, table) for table in config.tables}
        self._shared = read_tensors(self.bundle, config.shared)
        self._graph = Graph(self.bundle.file(config.score))
        self._encoder: TextEncoder | None = None

    def _read_offered(self) -> npt.NDArray[np.bool_]:
        """Which items may be recommended: all, unless the bundle names them."""
        ids_file = self.bundle.manifest.ids_file
        if "offered" not in json.loads(Path(self.bundle.file(ids_file)).read_bytes()):
            return np.ones(self.items, bool)
        out = np.zeros(self.items, bool)
        out[self._numbers(read_strings(self.bundle, ids_file, "offered"))] = True
        return out

    @property
    def users(self) -> list[str]:
        """Ids of the simulated users whose private state the bundle carries."""
        return list(self._clients.ids)

    @property
    def items(self) -> int:
        """Number of items of the catalogue."""
        return self.bundle.manifest.item_count

    def scores(self, user: str | None = None, history: Iterable[str | int] | None = None) -> Floats:
        """A user's score (logit) of every item, float32 [items]. Arguments as in `recommend`."""
        number = None if user is None else self._clients.number(user)
        private = self._clients.private(number)
        past = self._clients.items("history", number) if history is None else self._numbers(history)
        feeds = self._client_inputs(private, past)
        wanted = [name.removeprefix("items.") for name in self._graph.inputs if name.startswith("items.")]
        out = np.empty(self.items, np.float32)
        for start in range(0, self.items, BLOCK):
            block = slice(start, min(start + BLOCK, self.items))
            feeds |= {f"items.{name}": self._rows(name, block, private) for name in wanted}
            scored = self._graph.run(feeds)
            if scored.shape != out[block].shape:
                raise InputError(f"{self._graph.path} gives {scored.shape} scores for {out[block].shape} items")
            out[block] = scored
        if not np.isfinite(out).all():
            raise InputError(f"{self._graph.path} gives scores that are not finite; the exported model has diverged")
        return out

    def recommend(
        self,
        k: int,
        user: str | None = None,
        exclude: Iterable[str | int] = (),
        history: Iterable[str | int] | None = None,
    ) -> list[tuple[str, str, float]]:
        """The k best items as (id, title, score), best first; ties in the catalogue's order.

        `user`: one of `users`; None is a new device with the initial private tensors. Items the user has seen
        are left out, and so are those in `exclude` (ids, or numbers in the catalogue). `history` replaces the
        user's own past positives in methods that read them. Fewer than k come back when fewer are left.
        Raises `InputError` for k < 1, unknown users or items, and when nothing is left.
        """
        if not isinstance(k, int | np.integer) or isinstance(k, bool) or k < 1:
            raise InputError(f"k must be a whole number of at least 1, got {k}")
        number = None if user is None else self._clients.number(user)
        left = self._offered.copy()
        left[self._clients.items("seen", number)] = False
        left[self._numbers(exclude)] = False
        candidates = np.flatnonzero(left)
        if not len(candidates):
            raise InputError(f"nothing to recommend: all {self.items:,} items are seen or excluded; exclude fewer")
        scores = self.scores(user, history)
        best = top(scores[candidates], int(k))
        return [(self.item_ids[i], self.titles[i], float(scores[i])) for i in candidates[best]]

    def encode(self, texts: str | list[str]) -> Floats:
        """Text vectors, float32 [n, width] (one text: n = 1). `InputError` when the bundle has no encoder."""
        if self._encoder is None:
            config, manifest = self.bundle.config, self.bundle.manifest
            if config.encoder is None:
                others = ", ".join(config.encoder_in)
                where = (
                    f"the bundles of these classes have one: {others}" if others else "no class of its export has one"
                )
                what = f"bundle {self.bundle.root} (variant {manifest.variant}) has cached item vectors only"
                raise InputError(f"{what}, no text encoder; {where}")
            part, file = config.encoder, self.bundle.file
            self._encoder = TextEncoder(file(part.tokenizer), file(part.path), part.width, part.max_tokens)
        return self._encoder.encode([texts] if isinstance(texts, str) else list(texts))

    def _client_inputs(self, private: dict[str, Floats], past: Ints) -> dict[str, npt.NDArray[Any]]:
        """All graph inputs that do not change from block to block."""
        feeds: dict[str, npt.NDArray[Any]] = {f"shared.{name}": tensor for name, tensor in self._shared.items()}
        feeds |= {f"private.{name}": tensor for name, tensor in private.items()}
        # nothing yet: one row of padding, labelled and weighted 0
        rows = past if len(past) else np.zeros(1, np.int64)
        label = np.full(len(rows), 1 if len(past) else 0, np.float32)
        feeds |= {"label.history": label, "weight.history": label / np.float32(len(rows))}
        wanted = [name.removeprefix("history.") for name in self._graph.inputs if name.startswith("history.")]
        return feeds | {f"history.{name}": self._rows(name, rows, private) for name in wanted}

    def _rows(self, name: str, items: slice | Ints, private: dict[str, Floats]) -> Floats:
        """Rows of a catalogue table, or of the user's own private one."""
        if name in self._tables:
            return self._tables[name].rows(items)
        if name not in private:
            raise InputError(f"{self._graph.path} reads table '{name}', which the bundle does not have; export again")
        return private[name][items]

    def _numbers(self, items: Iterable[str | int]) -> Ints:
        """Numbers in the catalogue of items given by id or number."""
        if isinstance(items, str):
            raise InputError(f"items must be a list of ids or numbers, got the text '{items}'; write ['{items}']")
        out = []
        for item in items:
            if not isinstance(item, str | int | np.integer) or isinstance(item, bool):
                raise InputError(f"an item is an id (text) or a number in the catalogue, got {item!r}")
            number = named("item", item, self._item_number) if isinstance(item, str) else int(item)
            if not 0 <= number < self.items:
                raise InputError(f"item number {number} is outside the catalogue (0 to {self.items - 1})")
            out.append(number)
        return np.asarray(out, np.int64)


def top(scores: Floats, k: int) -> Ints:
    """Positions of the k largest scores, best first, ties by position.

    >>> top(np.array([1.0, 3.0, 3.0, 2.0], np.float32), 3).tolist()
    [1, 2, 3]
    """
    if k < len(scores):
        least = np.partition(scores, -k)[-k]
        candidates = np.flatnonzero(scores >= least)
    else:
        candidates = np.arange(len(scores))
    return candidates[np.argsort(-scores[candidates], kind="stable")][:k]
