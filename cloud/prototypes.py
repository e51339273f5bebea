"""The server's knowledge base of FCUCR: clients' prototypes, and for each client an answer made of similar ones.

    prototypes → add (Eq. 4, sliding window) → retrieve (Eq. 5, cosine, never the client's own) → answer (Eq. 6)

Retrieval looks at single vectors, so secure aggregation cannot hide them from the server: a prototype is a release of
its own, which a ledger counts with both who learn from it, the server and the clients it answers. Where all neighbours
found belong to one client, the answer is that client's prototype or a mean of its prototypes; `lone` counts these.
`least_clients` turns answers of too few clients into zeros, which is no guarantee: that needs prototypes clipped and
noised on the device (`privacy.prototypes`); everything here is then post-processing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from cloud.fusion import KnowledgeSettings
from cloud.host_transfer import there
from cloud.index import INDEXES
from cloud.search import Clusters, exact
from privacy.errors import InputError

Ints = npt.NDArray[np.int64]

SPARE = 8
"""Candidates beyond the k asked for: float32 products choose them, float64 cosines rank them."""

LONGEST, SHORTEST = 1e6, 1e-30
"""A prototype longer than the first, or not finite, is refused; a shorter one than the second has no direction."""

PIECE = 1 << 19
"""Numbers of one working piece of candidates (4 MB of float64, which stays in a cache)."""


@dataclass(frozen=True)
class Neighbours:
    """These are the prototypes nearest to each query, by falling cosine, equal ones by row.

    `rows` int64 [C, k]: where they are stored, -1 where there are fewer; `cosines` float64 [C, k], 0 where there are
    fewer; `clients` [C, k]: whose they are, -1 likewise. For the server's eyes only.
    """

    rows: Tensor
    cosines: Tensor
    clients: Tensor

    @property
    def owners(self) -> Tensor:
        """Count how many different clients each row of neighbours belongs to: int64 [C]."""
        ordered = self.clients.sort(1).values
        new = torch.ones_like(ordered, dtype=torch.bool)
        new[:, 1:] = ordered[:, 1:] != ordered[:, :-1]
        return (new & (ordered >= 0)).sum(1)


class KnowledgeBase:
    """The knowledge base holds prototypes of `width` numbers, found by cosine.

    A row whose prototype expired or was replaced is wiped and written over by the next new one, so nothing is moved
    from round to round and memory is that of the largest base there was (and at most as much again in reserve).
    What one call of `add` stores is in the order of (client, session) whatever the order of the call.

    >>> base = KnowledgeBase(2, KnowledgeSettings(top_k=2, fusion="mean"))
    >>> base.add(1, np.array([0, 1, 2]), torch.tensor([[1.0, 0.0], [0.9, 0.1], [0.0, 1.0]]))
    >>> base.answer(np.array([0, 7]), torch.tensor([[1.0, 0.0], [0.0, 3.0]])).tolist()
    [[0.44999998807907104, 0.550000011920929], [0.44999998807907104, 0.550000011920929]]
    >>> base.retrieve(np.array([0]), torch.tensor([[1.0, 0.0]])).clients.tolist()
    [[1, 2]]
    """

    def __init__(
        self,
        width: int,
        settings: KnowledgeSettings,
        device: torch.device | str = "cpu",
        dtype: torch.dtype = torch.float32,
    ):
        """Make an empty base on `device` that keeps and answers in `dtype`.

        Raises `InputError` for index faiss where it is not installed.
        """
        if width < 1:
            raise ValueError(f"a prototype has at least 1 number, got width {width}")
        INDEXES[settings.index].ready()
        self.width, self.settings, self.device, self.dtype = width, settings, torch.device(device), dtype
        self.round, self.refused, self.lone = 0, 0, 0
        self._used = 0  # rows that were ever written: the base is the first of each array
        self._vectors = torch.zeros(0, width, device=self.device, dtype=dtype)
        self._lengths = torch.ones(0, dtype=torch.float64, device=self.device)
        self._owner, self._session, self._since = (np.full(0, -1, np.int64) for _ in range(3))
        self._row_of: dict[tuple[int, int], int] = {}
        self._clusters: Clusters | None = None
        self._clustered = 0  # prototypes the centroids were made of

    def __len__(self) -> int:
        return int((self._owner[: self._used] >= 0).sum())

    # --- what is stored ----------------------------------------------------------------------------------------------

    def add(self, number: int, clients: Ints, prototypes: Tensor, sessions: Ints | None = None) -> None:
        """Take the prototypes of round `number` (Eq. 4) and drop those that the window no longer reaches.

        `clients` int64 [C], `prototypes` float32 [C, P], `sessions` int64 [C] they were made from (None: a client has
        one). With `replace` a session's older prototype is dropped. One that is not finite or longer than `LONGEST` is
        refused and counted in `refused`; zeros are similar to nothing, and are not kept. `ValueError` for shapes that
        do not fit, for a client and session named twice, and for a round before the last one.
        """
        who, vectors = self._fitting(clients, prototypes)
        of = np.zeros_like(who) if sessions is None else np.asarray(sessions, dtype=np.int64)
        if of.shape != who.shape:
            raise ValueError(f"{len(who)} clients need as many sessions, got {of.shape}")
        if number < self.round:
            raise ValueError(f"round {number} cannot come after round {self.round}")
        order = np.lexsort((of, who))
        who, of, vectors = who[order], of[order], vectors[there(order, self.device)]
        if len(who) and ((np.diff(who) == 0) & (np.diff(of) == 0)).any():
            raise ValueError("a client and session are named twice in one call")
        self.round = number
        if self.settings.window is not None:
            live = self._owner[: self._used] >= 0
            self._drop(np.flatnonzero(live & (self._since[: self._used] <= number - self.settings.window)))
        lengths = torch.linalg.vector_norm(vectors, dim=1, dtype=torch.float64)
        sound, long = torch.stack([lengths <= LONGEST, lengths >= SHORTEST]).cpu().numpy()  # no number is neither
        self.refused += int((~sound).sum())
        if self.settings.replace:
            keys = zip(who[sound].tolist(), of[sound].tolist(), strict=True)
            older = [self._row_of[key] for key in keys if key in self._row_of]
            self._drop(np.asarray(older, dtype=np.int64))
        kept = np.flatnonzero(sound & long)
        self._store(who[kept], of[kept], vectors[there(kept, self.device)])

    def _store(self, who: Ints, of: Ints, vectors: Tensor) -> None:
        free = np.flatnonzero(self._owner[: self._used] < 0)[: len(who)]
        end = self._used + len(who) - len(free)
        rows = np.concatenate([free, np.arange(self._used, end)])
        self._reserve(end)
        self._used, places = end, there(rows, self.device)
        self._vectors[places] = vectors
        self._lengths[places] = torch.linalg.vector_norm(vectors, dim=1, dtype=torch.float64)
        self._owner[rows], self._session[rows], self._since[rows] = who, of, self.round
        if self.settings.replace:
            self._row_of.update(zip(zip(who.tolist(), of.tolist(), strict=True), rows.tolist(), strict=True))
        if self._clusters is not None:
            self._clusters.add(rows, self._units(rows))

    def _drop(self, rows: Ints) -> None:
        for key in zip(self._owner[rows].tolist(), self._session[rows].tolist(), strict=True):
            self._row_of.pop(key, None)
        places = there(rows, self.device)
        self._vectors[places], self._lengths[places] = 0.0, 1.0
        self._owner[rows], self._session[rows], self._since[rows] = -1, -1, -1
        if self._clusters is not None:
            self._clusters.remove(rows)

    def _reserve(self, rows: int) -> None:
        """Make room for so many rows; it doubles, so that a row is copied a bounded number of times."""
        have = len(self._owner)
        if rows <= have:
            return
        vectors = torch.empty(max(rows, 2 * have), self.width, device=self.device, dtype=self.dtype)
        lengths = torch.empty(len(vectors), dtype=torch.float64, device=self.device)
        vectors[:have], lengths[:have] = self._vectors, self._lengths
        self._vectors, self._lengths = vectors, lengths
        new = np.full(len(vectors) - have, -1, np.int64)
        self._owner, self._session, self._since = (
            np.concatenate([array, new]) for array in (self._owner, self._session, self._since)
        )

    # --- what is found -----------------------------------------------------------------------------------------------

    def retrieve(self, clients: Ints, queries: Tensor) -> Neighbours:
        """Find the `top_k` prototypes nearest to each of `queries` [C, P] that are not the asking client's [C] (Eq. 5).

        Ranks are those of float64 cosines; candidates are `SPARE` more than k by float32 products, so only a prototype
        that more than `SPARE` others beat or meet by less than float32 can tell may be missed. A query without a
        direction, not finite, or too long finds nothing. With clusters (`index`) neighbours can be missed.
        """
        who, vectors = self._fitting(clients, queries)
        lengths = torch.linalg.vector_norm(vectors, dim=1, dtype=torch.float64)
        usable = (lengths <= LONGEST) & (lengths >= SHORTEST)
        units = torch.where(usable.unsqueeze(1), vectors / lengths.unsqueeze(1), 0.0)  # float64
        places = there(who, self.device)
        count = min(self.settings.top_k, self._used)
        parts, at = [], 0
        search = INDEXES[self.settings.index if len(self) else "exact"].search
        for candidates in search(self, places, units.float(), count + SPARE) if count else []:
            for some in candidates.split(max(PIECE // (candidates.shape[1] * self.width), 1)):
                parts.append(self._ranked(units[at : at + len(some)], some, count))
                at += len(some)
        rows = torch.full((len(who), self.settings.top_k), -1, device=self.device)
        cosines = torch.zeros(rows.shape, dtype=torch.float64, device=self.device)
        if parts:
            found, best = torch.cat([rows for rows, _ in parts]), torch.cat([cosines for _, cosines in parts])
            none = (found < 0) | ~usable.unsqueeze(1)
            rows[:, : found.shape[1]] = found.masked_fill(none, -1)
            cosines[:, : found.shape[1]] = best.masked_fill(none, 0.0)
        owners = there(np.append(self._owner[: self._used], -1), self.device)  # row -1: nobody
        return Neighbours(rows, cosines, owners[rows])

    def answer(self, clients: Ints, queries: Tensor) -> Tensor:
        """Make one vector for each client [C], of its neighbours to its query [C, P]: float32 [C, P] (Eq. 6).

        Zeros where there is no neighbour, or fewer clients behind them than `least_clients`.
        """
        who, vectors = self._fitting(clients, queries)
        found = self.retrieve(who, vectors)
        owners = found.owners.cpu()
        enough = owners >= self.settings.least_clients
        self.lone += int((enough & (owners == 1)).sum())
        out = torch.zeros(len(who), self.width, device=self.device, dtype=self.dtype)
        asked = there(torch.nonzero(enough & (owners > 0)).squeeze(1), self.device)
        for some in asked.split(max(PIECE // (self.settings.top_k * self.width), 1)):
            rows = found.rows[some]
            sets = self._vectors[rows.clamp_min(0)]
            found_of = sets, found.cosines[some], rows >= 0, vectors[some]
            out[some] = self.settings.entry.fused(self.settings, *found_of).to(self.dtype)
        return out

    def among_all(self, places: Tensor, queries: Tensor, count: int) -> list[Tensor]:
        """Return the rows nearest to each query of the clients `places` by comparing with all, see `cloud.index`."""
        owners = there(self._owner[: self._used], self.device)
        vectors, lengths = self._vectors[: self._used].float(), self._lengths[: self._used]
        return exact(queries, places, vectors, lengths, owners, count)

    def in_clusters(self, places: Tensor, queries: Tensor, count: int) -> list[Tensor]:
        """Return rows near to each query of the clients `places` in the nearest clusters, see `cloud.index`."""
        owner, live = self._owner[: self._used], len(self)
        if self._clusters is None or live >= 2 * self._clustered:
            self._cluster(owner)
        assert self._clusters is not None
        most_own = int(np.unique(owner[owner >= 0], return_counts=True)[1].max())
        found = there(self._clusters.nearest(queries.cpu().numpy(), count + most_own), self.device)
        owners = there(np.append(owner, -1), self.device)
        own = owners[found] == places.unsqueeze(1)
        return [found.masked_fill(own, -1)]

    def _cluster(self, owner: Ints) -> None:
        rows = np.flatnonzero(owner >= 0)
        units = self._units(rows)
        self._clusters, self._clustered = Clusters.of(units), len(rows)
        self._clusters.add(rows, units)

    def _ranked(self, units: Tensor, candidates: Tensor, count: int) -> tuple[Tensor, Tensor]:
        """Return rows and cosines [c, <= count] of the best of `candidates` [c, m] by float64, equal ones by row."""
        candidates = candidates.sort(1).values
        vectors = self._vectors[candidates.clamp_min(0)].double()
        cosines = vectors.mul_(units.unsqueeze(1)).sum(2) / self._lengths[candidates.clamp_min(0)]
        best = cosines.masked_fill_(candidates < 0, -torch.inf).sort(dim=1, descending=True, stable=True)
        return candidates.gather(1, best.indices)[:, :count], best.values[:, :count]

    def _units(self, rows: Ints) -> npt.NDArray[np.float32]:
        places = there(rows, self.device)
        units = (self._vectors[places] / self._lengths[places].unsqueeze(1).to(self.dtype)).float()
        return np.ascontiguousarray(units.cpu().numpy())

    def _fitting(self, clients: Ints, vectors: Tensor) -> tuple[Ints, Tensor]:
        who = np.asarray(clients, dtype=np.int64)
        if who.ndim != 1 or vectors.shape != (len(who), self.width):
            raise ValueError(
                f"{who.shape} clients need prototypes ({who.size}, {self.width}), got {tuple(vectors.shape)}"
            )
        if len(who) and who.min() < 0:
            raise ValueError(f"clients are numbered from 0, got {who.min()}")
        return who, there(vectors.detach(), self.device).to(self.dtype)

    # --- checkpoints -------------------------------------------------------------------------------------------------

    def state(self) -> dict[str, Any]:
        """Everything a checkpoint needs: arrays and numbers, copies of their own. Holds clients' prototypes as sent."""
        used = self._used
        clusters = np.zeros((0, self.width), np.float32) if self._clusters is None else self._clusters.centroids
        return {
            "vectors": self._vectors[:used].cpu().numpy().copy(),
            "owner": self._owner[:used].copy(),
            "session": self._session[:used].copy(),
            "since": self._since[:used].copy(),
            "centroids": clusters.copy(),
            "counters": dict(round=self.round, refused=self.refused, lone=self.lone, clustered=self._clustered),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from `state()` of a base of the same settings: the same rows, and the same answers from then on.

        Raises `InputError` for prototypes of another width, or arrays that do not fit together, and changes nothing.
        """
        vectors, owner, session, since = (np.array(state[name]) for name in ("vectors", "owner", "session", "since"))
        if vectors.ndim != 2 or vectors.shape[1] != self.width:
            raise InputError(
                f"the checkpoint's prototypes have shape {vectors.shape}, these have {self.width} numbers; "
                "resume with the settings the run was started with"
            )
        if not owner.shape == session.shape == since.shape == vectors.shape[:1]:
            raise InputError("the checkpoint's prototypes do not fit together; go on from an older checkpoint")
        clusters = Clusters(np.array(state["centroids"], np.float32)) if len(state["centroids"]) else None
        counters = state["counters"]
        self.round, self.refused, self.lone = (int(counters[name]) for name in ("round", "refused", "lone"))
        self._used, self._clusters, self._clustered = len(owner), clusters, int(counters["clustered"])
        self._vectors = torch.from_numpy(vectors).to(self.device, self.dtype)
        self._owner, self._session, self._since = (array.astype(np.int64) for array in (owner, session, since))
        live = np.flatnonzero(self._owner >= 0)
        lengths = torch.linalg.vector_norm(self._vectors, dim=1, dtype=torch.float64)
        self._lengths = torch.where(there(self._owner >= 0, self.device), lengths, 1.0)
        keys = zip(self._owner[live].tolist(), self._session[live].tolist(), strict=True)
        self._row_of = dict(zip(keys, live.tolist(), strict=True)) if self.settings.replace else {}
        if self._clusters is not None:
            self._clusters.add(live, self._units(live))
