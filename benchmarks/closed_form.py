"""FedMF and others, one client after another in numpy: gradients by hand, touched rows alone, one sum.

What somebody who knows the methods would write for speed, as a rival for `engine.py`: no autograd, no module, nothing
padded. The examples of all clients are drawn in one vectorised call, so nobody is charged for small draws; an item is
found among a client's rows by a map of the catalogue, not by sorting; an item drawn twice is one row of double weight.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from edge.optimiser import BETA_1, corrections
from edge.sampling import Sampler
from edgefr.engine.tables import LaidRows
from edgefr.engine.work import LocalWork
from export.program import turns

Floats = npt.NDArray[np.floating[Any]]
Own = dict[str, Floats]


@dataclass(frozen=True)
class Step:
    """A step's rows as they are, with weights and weights times labels; what it makes of `own` is put in place."""

    rows: Floats
    weight: Floats
    target: Floats

    def errors(self, scores: Floats) -> Floats:
        """Return the derivative of the mean cross-entropy by each score."""
        return self.weight / (1 + np.exp(-scores)) - self.target


def fedmf(step: Step, own: Own, lr: dict[str, float], phase: str) -> Floats:
    """Take a step on the user, and return the change of the rows."""
    user = own["user"]
    g = step.errors(step.rows @ user)
    change = np.multiply.outer(g * np.float32(-lr["item"]), user)
    own["user"] = user - np.float32(lr["user"]) * (g @ step.rows)
    return change


def fedncf(step: Step, own: Own, lr: dict[str, float], phase: str) -> Floats:
    """Take a step on user and scorer, and return the change of the rows."""
    user, weight, bias = own["user"], own["scorer.weight"], own["scorer.bias"]
    of_user, of_item = weight[: len(user)], weight[len(user) :]
    g = step.errors(step.rows @ of_item + (of_user @ user + bias))
    total, rate = g.sum(), np.float32(lr["scorer.weight"])
    change = np.multiply.outer(g * np.float32(-lr["item"]), of_item)
    own["user"] = user - np.float32(lr["user"]) * total * of_user
    own["scorer.weight"] = weight - rate * np.concatenate([total * user, g @ step.rows])
    own["scorer.bias"] = bias - np.float32(lr["scorer.bias"]) * total
    return change


def pfedrec(step: Step, own: Own, lr: dict[str, float], phase: str) -> Floats | None:
    """Take a step on the scorer, or return the change of the rows."""
    weight, bias = own["scorer.weight"], own["scorer.bias"]
    g = step.errors(step.rows @ weight + bias)
    if phase == "item":
        return np.multiply.outer(g * np.float32(-lr["item"]), weight)
    own["scorer.weight"] = weight - np.float32(lr["scorer.weight"]) * (g @ step.rows)
    own["scorer.bias"] = bias - np.float32(lr["scorer.bias"]) * g.sum()
    return None


STEPS: dict[str, Callable[..., Floats | None]] = {"fedmf": fedmf, "fedncf": fedncf, "pfedrec": pfedrec}
"""Methods that have a loop here."""


def closed_form(
    work: LocalWork, shared: dict[str, Any], private: dict[str, Any], clients: npt.NDArray[np.int64]
) -> Any:
    """Return the sum of the clients' changes [items, d], the norm of each, and their own tensors; one local epoch."""
    sampler, take = work.sampler, STEPS[work.program.name]
    assert isinstance(sampler, Sampler)
    examples = sampler.epoch(clients, work.phases[0].purpose, work.round, 0)
    size, table = sampler.batch_size, shared["item"].numpy()
    sums, norms = np.zeros(table.shape), np.zeros(len(clients))
    number, places = np.zeros(len(table), np.int64), np.arange(int(examples.counts.max(initial=0)))
    ends = np.cumsum(examples.counts).tolist()
    everything = {name: value.numpy() for name, value in private.items()}
    left: list[Own] = []
    start = 0
    for slot, end in enumerate(ends):
        own: Own = {name: value[slot] for name, value in everything.items()}
        items, label = examples.items[start:end], examples.label[start:end]
        number[items] = places[: end - start]  # an item's last place stands for it
        last = number[items]
        kept = last == places[: end - start]
        touched, known = items[kept], label[kept]
        row = (np.cumsum(kept) - 1)[last]
        changes: Floats | None = None
        begun = table[touched]
        batches = range(0, end - start, size)
        for phase, at in ((phase, at) for turn in turns(work.phases) for at in batches for phase in turn):
            some = row[at : at + size]
            weight = np.bincount(some, minlength=len(touched)).astype(np.float32) / np.float32(len(some))
            if end - start <= size:
                where: Any = slice(None)
            else:
                where = np.flatnonzero(weight)
                weight = weight[where]
            now = begun[where] if changes is None else begun[where] + changes[where]
            change = take(Step(now, weight, weight * known[where]), own, phase.lr, phase.name)
            if change is None:
                continue
            if changes is None and end - start <= size:
                changes = change
            else:
                changes = np.zeros_like(begun) if changes is None else changes
                changes[where] += change
        if changes is not None:
            norms[slot] = np.sqrt(np.einsum("ij,ij", changes, changes, dtype=np.float64))
            sums[touched] += changes
        left.append(own)
        start = end
    return sums, norms, left


def fedrecon(work: LocalWork, shared: dict[str, Any], private: dict[str, Any], clients: npt.NDArray[np.int64]) -> Any:
    """Return what `closed_form` does of FedRecon: a vector is rebuilt on one part of the items, the other's rows learn.

    While it is rebuilt no row changes, so an item drawn twice may stay two examples.
    """
    sampler, (rebuild, update) = work.sampler, work.phases
    assert isinstance(sampler, Sampler)
    table, size = shared["item"].numpy(), sampler.batch_size
    epochs, (drawn,) = (
        [sampler.epoch(clients, phase.purpose, work.round, at, which=phase.which) for at in range(phase.epochs)]
        for phase in (rebuild, update)
    )
    sums, norms, left = np.zeros(table.shape), np.zeros(len(clients)), []
    number, places = np.zeros(len(table), np.int64), np.arange(int(drawn.counts.max(initial=0)))
    ends, query_ends = (np.cumsum(some.counts).tolist() for some in (epochs[0], drawn))
    users = work.begun(private, clients)["user"].numpy()
    first = start = 0
    for slot, (last, end) in enumerate(zip(ends, query_ends, strict=True)):
        user, rate = users[slot], np.float32(rebuild.lr["user"])
        for some, at in itertools.product(epochs, range(first, last, size)):
            batch = slice(at, min(at + size, last))
            rows, label = table[some.items[batch]], some.label[batch]
            user = user - rate * (((1 / (1 + np.exp(-(rows @ user))) - label) / np.float32(len(label))) @ rows)
        left.append({"user": user})
        items, label = drawn.items[start:end], drawn.label[start:end]
        number[items] = places[: end - start]
        where = number[items]
        kept = where == places[: end - start]
        touched, known, row = items[kept], label[kept], (np.cumsum(kept) - 1)[where]
        now, worth = table[touched], np.float32(-update.lr["item"])
        for at in range(0, end - start, size):
            times = np.bincount(row[at : at + size], minlength=len(touched)).astype(np.float32)
            times /= np.float32(len(row[at : at + size]))
            some = np.flatnonzero(times)
            weight = times[some]
            g = weight / (1 + np.exp(-(now[some] @ user))) - weight * known[some]
            now[some] += np.multiply.outer(g * worth, user)
        change = now - table[touched]
        norms[slot] = np.sqrt(np.einsum("ij,ij", change, change, dtype=np.float64))
        sums[touched] += change
        first, start = last, end
    return sums, norms, left


def fcf(work: LocalWork, shared: dict[str, Any], private: dict[str, Any], clients: npt.NDArray[np.int64]) -> Any:
    """Return what `closed_form` does of FCF: one call of LAPACK solves for the user, two products make the gradient."""
    sampler, settings = work.sampler, work.program.settings
    assert isinstance(sampler, Sampler)
    had, table, of_items = sampler.train.take(clients), shared["item"].numpy(), shared["gram.item"].numpy()
    alpha, more = np.float32(settings.alpha), np.float32(1 + settings.alpha)
    ridge = np.eye(table.shape[1], dtype=np.float32) * np.float32(settings.ridge)
    sums, by_gram, norms, left = np.zeros(table.shape), np.zeros(of_items.shape), np.zeros(len(clients)), []
    for slot in range(len(clients)):
        items = had[slot]
        rows = table[items]
        user = np.linalg.solve(of_items + alpha * (rows.T @ rows) + ridge, more * rows.sum(0))
        scores = rows @ user
        change, of_gram = np.multiply.outer(2 * (more * (1 - scores) + scores), user), np.multiply.outer(user, user)
        square = sum(np.einsum("ij,ij", part, part, dtype=np.float64) for part in (change, of_gram))
        norms[slot], sums[items] = np.sqrt(square), sums[items] + change
        by_gram -= of_gram
        left.append({"user": user})
    return sums, norms, left


def gpfedrec(work: LocalWork, shared: dict[str, Any], private: dict[str, Any], clients: npt.NDArray[np.int64]) -> Any:
    """Return what `closed_form` does of GPFedRec: a row is how far it is from the client's own table, and nothing else.

    Where a regulariser moves all rows in every step, k steps that do not read one leave (1 - rate)^k of its way: so
    none is moved before it is read, and a step that reads it takes another (1 - rate) and the scores' gradient.
    """
    sampler, (phase,) = work.sampler, work.phases
    assert isinstance(sampler, Sampler)
    drawn, size = sampler.epoch(clients, phase.purpose, work.round, 0), sampler.batch_size
    table, theirs = shared["item"].numpy(), work.tables["received.item"]
    stays = 1 - 2 * work.program.settings.pull * phase.lr["item"] / table.size
    take = _layers if "user" in private else _line
    sums, norms, left = np.zeros(table.shape), np.zeros(len(clients)), []
    number, places = np.zeros(len(table), np.int64), np.arange(int(drawn.counts.max(initial=0)))
    everything = {name: value.numpy() for name, value in private.items()}
    for slot, end in enumerate(np.cumsum(drawn.counts).tolist()):
        own = {name: value[slot] for name, value in everything.items()}
        some = slice(end - int(drawn.counts[slot]), end)
        items, label = drawn.items[some], drawn.label[some]
        number[items] = places[: len(items)]
        last = number[items]
        kept = last == places[: len(items)]
        touched, known, row = items[kept], label[kept], (np.cumsum(kept) - 1)[last]
        made = _made(theirs, clients[slot], touched)
        apart = table[touched] - made
        steps, done = -(-len(items) // size), np.zeros(len(touched), np.int64)
        share = np.array([stays if phase.pulls else 1.0]) ** np.arange(steps + 1)
        share = share.astype(np.float32)[:, None]
        for step in range(steps):
            batch = row[step * size : (step + 1) * size]
            weight = np.bincount(batch, minlength=len(touched)).astype(np.float32) / np.float32(len(batch))
            where = np.flatnonzero(weight)
            now = apart[where] * share[step - done[where]] if step else apart[where]
            weight = weight[where]
            by_rows = take(Step(now + made[where], weight, weight * known[where]), own, phase.lr)
            apart[where] = np.float32(stays) * now - np.float32(phase.lr["item"]) * by_rows
            done[where] = step + 1
        change = apart * share[steps - done] + made - table[touched]
        norms[slot] = np.sqrt(np.einsum("ij,ij", change, change, dtype=np.float64))
        sums[touched] += change
        left.append(own)
    return sums, norms, left


def _made(table: Any, client: np.int64, items: npt.NDArray[np.integer[Any]]) -> Floats:
    """Return rows that the server made for a client, whose tables are laid out in the clients' order or not at all."""
    if isinstance(table, LaidRows):
        return table.values[client].numpy()[items]
    return table.rows(np.full(len(items), client), items).numpy()


def _line(step: Step, own: Own, lr: dict[str, float]) -> Floats:
    """Take a step on a scorer of one layer, and return the gradient of the rows."""
    weight, bias = own["scorer.weight"], own["scorer.bias"]
    g = step.errors(step.rows @ weight + bias)
    own["scorer.weight"] = weight - np.float32(lr["scorer.weight"]) * (g @ step.rows)
    own["scorer.bias"] = bias - np.float32(lr["scorer.bias"]) * g.sum()
    return np.multiply.outer(g, weight)


def _layers(step: Step, own: Own, lr: dict[str, float]) -> Floats:
    """Take a step on a user's vector and layers, and return the gradient of the rows; the user's share is one row."""
    user, last = own["user"], (len(own) - 1) // 2 - 1
    weights, biases = ([own[f"scorer.{k}.{part}"] for k in range(last + 1)] for part in ("weight", "bias"))
    of_user, of_item = weights[0][: len(user)], weights[0][len(user) :]
    xs = [step.rows, np.maximum(step.rows @ of_item + (user @ of_user + biases[0]), 0)]
    for k in range(1, last):
        xs.append(np.maximum(xs[k] @ weights[k] + biases[k], 0))
    through = weights[last][:, 0]
    g = step.errors(xs[last] @ through + biases[last])
    slopes = {f"scorer.{last}.weight": (g @ xs[last])[:, None], f"scorer.{last}.bias": g.sum()}
    by_x = np.multiply.outer(g, through)
    for k in range(last - 1, -1, -1):
        by_x *= xs[k + 1] > 0
        slopes |= {f"scorer.{k}.weight": xs[k].T @ by_x, f"scorer.{k}.bias": by_x.sum(0)}
        by_x = by_x @ (weights[k] if k else of_item).T
    first = slopes["scorer.0.bias"]
    slopes["scorer.0.weight"] = np.concatenate([np.multiply.outer(user, first), slopes["scorer.0.weight"]])
    slopes["user"] = of_user @ first
    for name, slope in slopes.items():
        own[name] = own[name] - np.float32(lr[name]) * slope
    return by_x


LOOPS = {**dict.fromkeys(STEPS, closed_form), "fedrecon": fedrecon, "fcf": fcf, "gpfedrec": gpfedrec}
"""The loop of each method that comes to sums of rows."""


def transfr(
    work: LocalWork, shared: dict[str, Any], private: dict[str, Any], clients: npt.NDArray[np.int64]
) -> dict[str, Floats]:
    """Return the sums of TransFR's clients' changes, by tensor; all epochs, Adam, a vector of each client's own.

    The draws of all epochs are made in one vectorised call each. A step's last layer is a product of the vector's.
    """
    sampler, (phase,) = work.sampler, work.phases
    assert isinstance(sampler, Sampler)
    epochs = [sampler.epoch(clients, phase.purpose, work.round, epoch) for epoch in range(phase.epochs)]
    names = [name for name in phase.trains if name != "user"]
    text, ends = work.program.frozen["text"].numpy(), np.cumsum(epochs[0].counts)
    sums = {name: np.zeros(shared[name].shape) for name in names}
    for slot, (start, end) in enumerate(zip(ends - epochs[0].counts, ends, strict=True)):
        own = {name: shared[name].numpy().copy() for name in names} | {"user": private["user"][slot].numpy().copy()}
        moments = {name: (np.zeros_like(value), np.zeros_like(value)) for name, value in own.items()}
        batches = [slice(at, min(at + sampler.batch_size, end)) for at in range(start, end, sampler.batch_size)]
        for number, (drawn, batch) in enumerate(itertools.product(epochs, batches), start=1):
            items, place = np.unique(drawn.items[batch], return_inverse=True)
            weight = np.bincount(place).astype(np.float32) / np.float32(len(place))
            label = np.zeros(len(items), np.float32)
            label[place] = drawn.label[batch]
            slopes = _slopes(own, text[items], weight, label)
            size, small = (np.float32(value) for value in corrections(number, phase.beta_2))
            for name, slope in slopes.items():
                first, second = moments[name]
                first += np.float32(1 - BETA_1) * (slope - first)
                second *= np.float32(phase.beta_2)
                second += np.float32(1 - phase.beta_2) * slope * slope
                own[name] -= np.float32(phase.lr[name]) * size * first / (np.sqrt(second) + small)
        for name in names:
            sums[name] += own[name] - shared[name].numpy()
    return sums


def _slopes(own: Own, x: Floats, weight: Floats, label: Floats) -> Own:
    """Return the gradients of a step: three layers, whose last is linear in the client's vector."""
    layers, user = [(own[f"adapter.{k}.weight"], own[f"adapter.{k}.bias"]) for k in range(3)], own["user"]
    one = np.maximum(x @ layers[0][0] + layers[0][1], 0)
    two = np.maximum(one @ layers[1][0] + layers[1][1], 0)
    through = layers[2][0] @ user
    g = weight / (1 + np.exp(-(two @ through + layers[2][1] @ user))) - weight * label
    of_two, total = g @ two, g.sum()
    by_two = np.multiply.outer(g, through) * (two > 0)
    by_one = (by_two @ layers[1][0].T) * (one > 0)
    found = {"adapter.0.weight": x.T @ by_one, "adapter.0.bias": by_one.sum(0)}
    found |= {"adapter.1.weight": one.T @ by_two, "adapter.1.bias": by_two.sum(0)}
    found |= {"adapter.2.weight": np.multiply.outer(of_two, user), "adapter.2.bias": total * user}
    return found | {"user": of_two @ layers[2][0] + total * layers[2][1]}
