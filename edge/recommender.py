"""This recommends on the device, with a bundle, onnxruntime, and no torch."""

from collections.abc import Iterable
from pathlib import Path

import numpy as np
import numpy.typing as npt

from edge.bundle import open_bundle
from edge.catalogue import Catalogue, Recommendations, StartList, open_table, ranked
from edge.clients import Clients, ClientState, read_tensors
from edge.encoder import TextEncoder, open_encoder
from edge.explain import Explanation, explained
from edge.graph import Graph
from edge.scorer import Rows, placed, scores
from edge.sessions import Windows, window_of
from edge.signature import Trusted
from edge.word_vectors import WordEncoder
from privacy.errors import InputError

Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int64]


class Recommender:
    """A recommender scores and encodes with one bundle, which one of the keys `trusted` must have signed (None: any).

    Raises `InputError` for one that is damaged or inconsistent.

    >>> Recommender("bundles/rpi_5_8gb").recommend(10)  # doctest: +SKIP
    [('318', "Schindler's List (1993)", 4.81), ...]
    """

    def __init__(self, bundle: str | Path, *, trusted: Trusted = None) -> None:
        self.bundle = open_bundle(bundle, trusted=trusted)
        config = self.bundle.config
        self.catalogue = Catalogue(self.bundle)
        self._clients = Clients(self.bundle)
        self._tables = {table.name: open_table(self.bundle, table) for table in config.tables}
        self._shared = read_tensors(self.bundle, config.shared)
        self._score = Graph(self.bundle.file(config.score), entry=self.bundle.entry)
        self._start = StartList.of(self.bundle)
        self._encoder: TextEncoder | WordEncoder | None = None

    @property
    def users(self) -> list[str]:
        """Return the ids of the simulated users whose private state the bundle carries: nobody, unless asked for."""
        return list(self._clients.ids)

    @property
    def items(self) -> int:
        return self.catalogue.items

    def scores(self, user: str | ClientState | None = None, history: Iterable[str | int] | None = None) -> Floats:
        """Return a user's score (logit) of every item, float32 [items]. Arguments as in `recommend`."""
        return scores(self._score, self.items, *self._read(user, history))

    def explain(
        self,
        items: Iterable[str | int] | None = None,
        user: str | ClientState | None = None,
        history: Iterable[str | int] | None = None,
        k: int = 3,
    ) -> list[Explanation]:
        """Return what items lean on among those that the user had last, by the method's own weights, which sum to 1.

        `items`: ids or numbers (None: the `k` best); the others as in `recommend`. Raises `InputError` for a method
        that says nothing of the kind, and where the user has had nothing.
        """
        asked = [item for item, *_ in self.recommend(k, user, history=history)] if items is None else items
        dense, context, tables = self._read(user, history)
        return explained(self.bundle, dense, context, tables, self.catalogue.numbers(asked))

    def _read(
        self, user: str | ClientState | None, history: Iterable[str | int] | None
    ) -> tuple[dict[str, Floats], Ints | Windows, dict[str, Rows]]:
        """Return what scores are made of: dense tensors, past positives or their window, and rows of tables."""
        client = self._client(user)
        private, past, times = client.private, client.history, client.times
        if history is not None:
            past = self.catalogue.numbers(history)
            times = np.zeros(len(past), np.int64)
        context: Ints | Windows = past
        config = self.bundle.config
        if config.window is not None or config.last is not None:
            times = times if config.window is not None else np.zeros(len(past), np.int64)
            context = window_of(past, times, config.window or config.last or 0)
        own = {name: tensor.__getitem__ for name, tensor in private.items()}
        return placed(self._shared, private), context, own | self._tables

    def recommend(
        self,
        k: int,
        user: str | ClientState | None = None,
        exclude: Iterable[str | int] = (),
        history: Iterable[str | int] | None = None,
    ) -> Recommendations:
        """Return the k best items as (id, title, score), best first; ties in the catalogue's order.

        `user`: one of `users`, or the state of a client that the bundle does not carry; None: a new device. Items the
        user has seen are left out, and those in `exclude` (ids or numbers). `history` replaces the user's past
        positives; where these are a session it is in order, at one moment, and only `exclude` is left out. A user
        without history is shown the bundle's own list, or nothing: the `basis` says so. Raises `InputError` for k < 1,
        unknown users or items, and when nothing is left.
        """
        client, left_out = self._client(user), self.catalogue.numbers(exclude)
        given = None if history is None else self.catalogue.numbers(history).tolist()
        if self.bundle.config.window is None:
            left_out = np.concatenate([client.seen, left_out])
        left, had = self.catalogue.left(k, left_out), client.history if given is None else given
        scores = self.scores(client, given) if len(had) or len(client.seen) else None
        return ranked(left, k, scores, lambda: self._start, self.catalogue.named)

    def _client(self, user: str | ClientState | None) -> ClientState:
        if isinstance(user, ClientState):
            return user
        return self._clients.state(None if user is None else self._clients.number(user))

    def encode(self, texts: str | list[str]) -> Floats:
        """Return text vectors, float32 [n, width] (one text: n = 1). `InputError` when the bundle has no encoder."""
        if self._encoder is None:
            config, manifest = self.bundle.config, self.bundle.manifest
            if config.encoder is None:
                others = ", ".join(config.encoder_in)
                where = (
                    f"the bundles of these classes have one: {others}" if others else "no class of its export has one"
                )
                what = f"bundle {self.bundle.root} (variant {manifest.variant}) has cached item vectors only"
                raise InputError(f"{what}, no text encoder; {where}")
            self._encoder = open_encoder(config.encoder, self.bundle.file, self.bundle.entry)
        return self._encoder.encode([texts] if isinstance(texts, str) else list(texts))
