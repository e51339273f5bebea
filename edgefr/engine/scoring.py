"""A trained model is scored for evaluation by the program's own functions on many users at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from edge.ragged import Ragged
from edge.sessions import windows
from edgefr.engine.work import OwnTable
from export.batches import One, Window
from export.model import TrainedModel
from export.program import LocalProgram, Tensors

HELD = 4
"""Layers of the size of item vectors that are held at a time, of programs that make some for every pair."""


class _OneProduct(TorchFunctionMode):
    """This computes a shared matrix [n, d] times one vector per client [C, d, 1] as one product, 25 times faster."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        alike = func is torch.matmul and len(args) == 2 and args[0].dim() == 2 and args[1].dim() == 3
        if alike and args[1].shape[-1] == 1:
            return torch.mm(args[1].squeeze(-1), args[0].T).unsqueeze(-1)
        return func(*args, **(kwargs or {}))


class _Gathered(One):
    """These are examples of many users whose `rows` tensors are not shared: they come gathered, one row per example."""

    def rows(self, table: Tensor) -> Tensor:
        return table


class ModelScorer:
    """This is a scorer for evaluation: (users [n], items [n, K] or None for the whole pool) -> scores.

    `shared` and `private` [clients, ...] are the model's tensors, `context` the users' own items for programs that
    average over them. Shared item vectors are computed once. `values_per_block` bounds the values held at once beside
    the answer. `tables` are the rows tensors that differ by user; if a shared one is among them, every user's item
    vectors are made of its own rows.
    """

    def __init__(
        self,
        program: LocalProgram,
        shared: Tensors,
        private: Tensors,
        context: Ragged,
        pool: npt.NDArray[np.integer],
        catalogue: int,
        device: torch.device,
        values_per_block: int = 1 << 22,
        tables: Mapping[str, OwnTable] | None = None,
    ):
        self.program, self.private, self.context = program, private, context
        self.shared = {name: value.to(device) for name, value in shared.items()}
        self.device, self.values_per_block, self.tables = device, values_per_block, tables or {}
        self.remade = any(program.specs[name].place == "shared" for name in self.tables)
        self.pool = torch.from_numpy(np.asarray(pool, np.int64)).to(device)
        program.frozen.update({name: table.to(device) for name, table in program.frozen.items()})
        with torch.inference_mode():
            blocks = [self._catalogue(at) for at in torch.arange(catalogue, device=device).split(8192)]
            self.vectors = torch.cat(blocks)
            whole = len(pool) == catalogue and bool((self.pool == torch.arange(catalogue, device=device)).all())
            self.ranked = self.vectors if whole else self.vectors[self.pool]

    @classmethod
    def of(cls, model: TrainedModel, device: torch.device) -> ModelScorer:
        past = Ragged.empty(len(model.names.users))
        if model.history is not None:
            past = Ragged(model.history.values, model.history.offsets)
        tensors, items = (model.program, model.shared, model.private, past), len(model.names.items)
        return cls(*tensors, model.offered, items, device, tables=model.tables)

    def _catalogue(self, items: Tensor) -> Tensor:
        return self.program.vectors(self.shared, One(items, items, items, items))

    def __call__(self, users: npt.NDArray[np.int64], items: npt.NDArray[np.integer] | None) -> npt.NDArray[np.float32]:
        width = len(self.pool) if items is None else items.shape[1]
        # a pointwise program scores the pool from vectors that all clients share; others make some for every client
        shared = items is None and self.program.pointwise and not self.tables
        each = 1 if shared else HELD * self.vectors.shape[1]
        block = max(1, self.values_per_block // (width * each))
        with torch.inference_mode(), _OneProduct():
            if 0 < len(users) <= block:
                return self._scores(users, items).cpu().numpy()
            out = np.empty((len(users), width), np.float32)
            for at in range(0, len(users), block):
                part = slice(at, at + block)
                out[part] = self._scores(users[part], None if items is None else items[part]).cpu().numpy()
        return out

    def in_tiles(self, users: npt.NDArray[np.int64]) -> Callable[[int, int], npt.NDArray[np.float32]] | None:
        """Return what scores a part [start, stop) of the pool for these users, for a program that is pointwise."""
        if not self.program.pointwise or self.program.needs_history or self.tables:
            return None
        tensors = self._tensors(users)

        def tile(start: int, stop: int) -> npt.NDArray[np.float32]:
            items, vectors = self.pool[start:stop], self.ranked[start:stop]
            batch = One(items, items, items, items)
            with torch.inference_mode(), _OneProduct():
                user = self.program.user(tensors, batch, None, vectors)
                return self.program.score(tensors, batch, vectors, user).cpu().numpy()

        return tile

    def _tensors(self, users: npt.NDArray[np.int64]) -> dict[str, Tensor]:
        who = torch.from_numpy(users)
        return {**self.shared, **{n: v[who].to(self.device) for n, v in self.private.items()}}

    def _scores(self, users: npt.NDArray[np.int64], items: npt.NDArray[np.integer] | None) -> Tensor:
        tensors = self._tensors(users)
        wanted = self.pool if items is None else torch.from_numpy(np.asarray(items, np.int64)).to(self.device)
        history = self._history(users) if self.program.needs_history else None
        batch = (_Gathered if self.tables else One)(wanted, wanted, wanted, wanted, history)
        own = tensors | self._gathered(users, wanted)
        past = None if history is None else self._past(tensors, history, users)
        if self.remade:
            vectors = self.program.vectors(own, batch)
        else:
            vectors = self.ranked if items is None else batch.frozen(self.vectors)
        return self.program.score(own, batch, vectors, self.program.user(own, batch, past, vectors))

    def _gathered(self, users: npt.NDArray[np.int64], items: Tensor) -> dict[str, Tensor]:
        """Return the rows tensors for the users' items: their own, and where vectors are made of them, shared ones."""
        out = {name: self._own(table, users, items) for name, table in self.tables.items()}
        if self.remade:
            rows = (n for n, spec in self.program.specs.items() if spec.kind == "rows" and n in self.shared)
            out |= {name: self.shared[name][items] for name in rows if name not in self.tables}
        return out

    def _past(self, tensors: Tensors, history: One, users: npt.NDArray[np.int64]) -> Tensor:
        if not self.remade:
            return history.frozen(self.vectors)
        batch = _Gathered(history.items, history.catalogue, history.label, history.weight)
        return self.program.vectors({**tensors, **self._gathered(users, history.items)}, batch)

    def _own(self, table: OwnTable, users: npt.NDArray[np.int64], items: Tensor) -> Tensor:
        """Return the users' own rows for the items [n, K], or for the whole pool [K]: [n, K, width]."""
        numbers = np.broadcast_to(items.cpu().numpy(), (len(users), items.shape[-1]))
        found = table.rows(np.repeat(users, items.shape[-1]), numbers.ravel())
        return found.view(*numbers.shape, -1).to(self.device)

    def _history(self, users: npt.NDArray[np.int64]) -> One:
        own = self.context.take(users)
        return self._all(own) if self.program.window is None else self._window(own, self.program.window)

    def _window(self, own: Ragged, length: int) -> Window:
        """Return the newest items of each user, the last of them last."""
        seen = windows(own, own, np.arange(len(own)), length)
        items, real = torch.from_numpy(seen.items).to(self.device), torch.from_numpy(seen.real).to(self.device)
        return Window(items, items, real, real)

    def _all(self, own: Ragged) -> One:
        place = np.arange(max(int(own.counts.max(initial=0)), 1))
        real = place < own.counts[:, None]
        at = np.where(real, own.offsets[:-1, None] + place, 0)
        items = np.where(real, own.values[at] if len(own.values) else 0, 0).astype(np.int64)
        label = torch.from_numpy(real.astype(np.float32)).to(self.device)
        index = torch.from_numpy(items).to(self.device)
        return One(index, index, label, label)
