"""FedDCSR is a reference whose clients are domains, each with the sequences of all its users (Zhang et al., SDM 2024).

    items in order ┬→ shared encoder    → mu, sigma → z_s ┬→ next item, by rows that are the domain's own
                   └→ exclusive encoder → mu, sigma → z_e ┘

The server averages the shared encoders, and gives every user's shared representation, its mean over domains, back. It
protects nobody within a domain, whose machine holds everybody's sequences. Its public code (orion-orion/FedDCSR) was
read for facts; what is left out of it is in docs/papers.md.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, embedding, layer_norm, normalize, pad, relu

from cloud import random_streams as purposes
from cloud.references.pooling import Ints, Pooled
from cloud.references.reference import AdamSteps, Reference, first
from privacy import keyed

SHARED, EXCLUSIVE = "shared", "exclusive"
SQUARES = ("query", "key", "value", "inner", "outer")


@dataclass(frozen=True)
class Sequences:
    """These are what a domain's users have, int64 [users, L] each, of whom some have nothing there.

    `inputs` are items before others, `number` the places of those others among `pooled`'s interactions, which are by
    user and in order; both -1 where there are none. `newest` are a user's newest items, by which it is represented.
    """

    pooled: Pooled
    inputs: Ints
    number: Ints
    newest: Ints

    def local(self, items: Ints) -> Tensor:
        """Return items by their places in the domain's pool; padding is 0."""
        return torch.from_numpy(np.searchsorted(self.pooled.pool, np.maximum(items, self.pooled.pool[0])))


@dataclass(frozen=True)
class How:
    """This is how domains learn; see `FedDCSRSettings`. `size`: sequences of a batch; `negatives` of a position."""

    dim: int
    scale: float
    lr: float
    size: int
    negatives: int
    apart: float
    exclusive: float
    contrast: float
    margin: float
    temperature: float
    annealing: int


class Domain:
    """This is a client: a domain's tensors, its Adam, and its steps."""

    def __init__(self, name: str, own: Sequences, how: How):
        self.name, self.own, self.how, self.steps = name, own, how, 0
        seed, d, length = own.pooled.seed, how.dim, own.inputs.shape[1]
        items, init = len(own.pooled.pool), {}
        for side in (SHARED, EXCLUSIVE):
            init[f"{side}.item"] = ((items, d), how.scale)
            init[f"{side}.place"] = ((length, d), how.scale)
            init |= {f"{side}.{of}.{part}": ((d, d), d**-0.5) for of in ("mean", "spread") for part in SQUARES}
        init |= {"item": ((items, d), how.scale), "told.inner": ((2 * d, d), d**-0.5), "told.outer": ((d, 1), d**-0.5)}
        same = {name: "" if name.startswith((f"{SHARED}.mean", f"{SHARED}.spread")) else self.name for name in init}
        self.tensors = {n: first(seed, f"{same[n]} {n}", *of).requires_grad_() for n, of in init.items()}
        self.tensors["bias"] = torch.zeros(items, 1, requires_grad=True)
        self.adam = AdamSteps(list(self.tensors.values()), how.lr, fused=True)
        self.known: Tensor | None = None  # what the server gave back: [users, d], and who has it
        self.learning = np.flatnonzero((own.number >= 0).any(axis=1))

    @property
    def sent(self) -> dict[str, Tensor]:
        """Return the shared encoder."""
        return {n: v for n, v in self.tensors.items() if n.startswith((f"{SHARED}.mean", f"{SHARED}.spread"))}

    def encoded(self, side: str, items: Tensor, real: Tensor, newest: bool = False) -> tuple[Tensor, Tensor]:
        """Return mean and log-variance of every position, [b, L, d] each, or of the newest one, [b, 1, d]."""
        x = self._read(side, items, real)
        mean, spread = (self._attended(f"{side}.{of}", x, real, newest) for of in ("mean", "spread"))
        return mean, spread

    def _read(self, side: str, items: Tensor, real: Tensor) -> Tensor:
        t = self.tensors
        x = embedding(items, t[f"{side}.item"], sparse=True) * self.how.dim**0.5 + t[f"{side}.place"]
        return layer_norm(x, x.shape[-1:]) * real.unsqueeze(-1)

    def _attended(self, part: str, x: Tensor, real: Tensor, newest: bool) -> Tensor:
        """Return a block of attention, to what came before, and of two layers: [b, L, d], of the newest [b, 1, d]."""
        query, key, value, inner, outer = (self.tensors[f"{part}.{name}"] for name in SQUARES)
        asking = slice(x.shape[1] - 1, None) if newest else slice(None)
        length = x.shape[1]
        seen = torch.ones(length, length).tril().bool()[asking] & (real > 0).unsqueeze(1)
        seen = seen | torch.eye(length, dtype=torch.bool)[asking]
        normed = layer_norm(x, x.shape[-1:])
        scores = (normed[:, asking] @ query) @ (normed @ key).transpose(-1, -2) * x.shape[-1] ** -0.5
        x = normed[:, asking] + torch.softmax(scores.masked_fill(~seen, -1e9), -1) @ (normed @ value)
        x = layer_norm(x, x.shape[-1:])
        return layer_norm(x + relu(x @ inner) @ outer, x.shape[-1:]) * real[:, asking].unsqueeze(-1)

    def epoch(self, number: int) -> None:
        """Take a step on every batch of sequences, in an order of the epoch's own."""
        key = keyed.key(self.own.pooled.seed, f"{purposes.REFERENCE_ORDER} {self.name}", number)
        order = self.learning[np.argsort(keyed.fold(key, self.learning))]
        negatives = self.own.pooled.negatives(number, self.how.negatives)
        draws = keyed.generator(self.own.pooled.seed, f"{purposes.VARIATIONS} {self.name} {number}")
        for at in range(0, len(order), self.how.size):
            self.step(order[at : at + self.how.size], negatives, draws)

    def step(self, users: Ints, negatives: Ints, draws: np.random.Generator) -> None:
        """Take a step of Adam on the sequences of some users."""
        self.steps += 1
        self.adam.take(self.loss(users, negatives, draws))

    def loss(self, users: Ints, negatives: Ints, draws: np.random.Generator) -> Tensor:
        """Return what a batch costs (FedDCSR's overall loss)."""
        how, own = self.how, self.own
        number, inputs = own.number[users], own.inputs[users]
        there = number >= 0
        real, items = torch.from_numpy(there.astype(np.float32)), own.local(inputs)
        said = [self.encoded(side, items, real) for side in (SHARED, EXCLUSIVE)]
        shared, exclusive = (self.drawn(*posterior, draws) for posterior in said)
        asked = number[there]
        among = own.local(np.concatenate([own.pooled.item[asked][:, None], negatives[asked]], axis=1))
        kl = torch.stack([divergence(*posterior, real) for posterior in said]).sum()
        loss = self.predicted((shared + exclusive)[real > 0], among) + min(1.0, self.steps / how.annealing) * kl
        loss = loss + how.exclusive * self.predicted(exclusive[real > 0], among)
        other = own.local(shuffled(inputs, there, draws))
        again = self.drawn(*self.encoded(EXCLUSIVE, other, real, newest=True), draws)
        loss = loss + how.contrast * contrast(exclusive[:, -1], again[:, -1], how.temperature)
        if self.known is not None:
            given = self.known[torch.from_numpy(users)]
            near, far = (self.told(z[:, -1], given) for z in (shared, exclusive))
            loss = loss + how.apart * relu(how.margin - near + far).mean()
        return loss

    def drawn(self, mean: Tensor, spread: Tensor, draws: np.random.Generator) -> Tensor:
        """Draw from the posterior of these positions, [b, L or 1, d]; draws are made for all of them in any case."""
        shape = (len(mean), self.own.inputs.shape[1], mean.shape[-1])
        noise = torch.from_numpy(draws.standard_normal(shape, dtype=np.float32))[:, -mean.shape[1] :]
        return mean + (0.5 * spread).exp() * noise

    def predicted(self, z: Tensor, among: Tensor) -> Tensor:
        """Return the cross-entropy of targets, which come first of `among` [p, 1 + n], by vectors z [p, d]."""
        rows, bias = (embedding(among, self.tensors[name], sparse=True) for name in ("item", "bias"))
        scores = (rows @ z.unsqueeze(-1)).squeeze(-1) + bias.squeeze(-1)
        return cross_entropy(scores, torch.zeros(len(among), dtype=torch.int64))

    def told(self, z: Tensor, given: Tensor) -> Tensor:
        """Return how likely z is what the server knows of the same user, [b]."""
        inner = relu(torch.cat([z, given], -1) @ self.tensors["told.inner"])
        return torch.sigmoid(inner @ self.tensors["told.outer"]).squeeze(-1)

    def represented(self, sides: Sequence[str]) -> Tensor:
        """Return the sum of the means of these representations at everybody's newest item, [users, d]."""
        found, users = [], len(self.own.newest)
        with torch.no_grad():
            for at in range(0, users, 2048):
                some = self.own.newest[at : at + 2048]
                real, items = torch.from_numpy((some >= 0).astype(np.float32)), self.own.local(some)
                means = (self._attended(f"{side}.mean", self._read(side, items, real), real, True) for side in sides)
                found.append(sum(mean[:, 0] for mean in means))
        return torch.cat([part for part in found if isinstance(part, Tensor)])


def shuffled(items: Ints, there: npt.NDArray[np.bool_], draws: np.random.Generator) -> Ints:
    """Return each row's items in another order, padding where it was.

    >>> one = shuffled(np.array([[-1, 3, 5]]), np.array([[False, True, True]]), np.random.default_rng(0))
    >>> sorted(one[0].tolist()), one[0, 0].item()
    ([-1, 3, 5], -1)
    """
    order = np.argsort(np.where(there, draws.random(items.shape), -1.0), axis=1)
    return np.take_along_axis(items, order, axis=1)


def divergence(mean: Tensor, spread: Tensor, real: Tensor) -> Tensor:
    """Return how far posteriors [b, L, d] are from the prior, a mean over positions that are real [b, L]."""
    apart = -0.5 * (1 + spread - mean.square() - spread.exp()).sum(-1)
    return (apart * real).sum() / real.sum().clamp_min(1)


def contrast(one: Tensor, other: Tensor, temperature: float) -> Tensor:
    """Return how badly each of [b, d] is told by cosine to be its partner, among all others of both: InfoNCE."""
    both, half = normalize(torch.cat([one, other]), dim=-1), len(one)
    near = both @ both.T / temperature
    near = near.masked_fill(torch.eye(2 * half, dtype=torch.bool), -1e9)
    return cross_entropy(near, torch.cat([torch.arange(half, 2 * half), torch.arange(half)]))


class FedDCSR(Reference):
    """This has, for each fold, two domains that learn in rounds; `fold` [users] says whose models score a user.

    `pairs`: the source's and the target's sequences, as each fold may know them. A user whose sequence of the target is
    not known is scored there by the shared representation of what it has in the source. A fold's part of a user's
    vector is [source, 1, target, 1] and of an item's the row and bias of its domain, zeros elsewhere; both end in zeros
    up to `width`. `limits`: epochs and patience.
    """

    def __init__(
        self,
        pairs: Sequence[tuple[Sequences, Sequences]],
        fold: Ints,
        width: int,
        how: How,
        limits: tuple[int, int],
    ):
        self.width = width
        self.domains = [(Domain("source", one, how), Domain("target", other, how)) for one, other in pairs]
        self.fold, (self.epochs, self.patience) = torch.from_numpy(fold), limits

    def epoch(self, number: int) -> None:
        for pair in self.domains:
            for domain in pair:
                domain.epoch(number)
            self.served(pair)

    def served(self, pair: tuple[Domain, Domain]) -> None:
        """Do what the server does: average shared encoders by sequences, and users' shared representations."""
        weights = torch.tensor([float(len(domain.learning)) for domain in pair])
        shares = (weights / weights.sum()).tolist()
        there = [torch.from_numpy((domain.own.newest >= 0).any(axis=1)).float().unsqueeze(-1) for domain in pair]
        seen = [domain.represented((SHARED,)) * one for domain, one in zip(pair, there, strict=True)]
        mean = (seen[0] + seen[1]) / (there[0] + there[1]).clamp_min(1)
        with torch.no_grad():
            for name in pair[0].sent:
                value = sum(share * domain.sent[name] for share, domain in zip(shares, pair, strict=True))
                for domain in pair:
                    domain.tensors[name].copy_(value)
        for domain in pair:
            domain.known = mean

    def tensors(self) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        items, users = [], []
        for number, pair in enumerate(self.domains):
            mine = (self.fold == number).float().unsqueeze(-1)
            items += [part for domain in pair for part in self._rows(domain)]
            users += [part * mine for part in self._vectors(pair)]
        item, user = (torch.cat(parts, 1) for parts in (items, users))
        return {"item": pad(item, (0, self.width - item.shape[1]))}, {
            "user": pad(user, (0, self.width - user.shape[1]))
        }

    def _rows(self, domain: Domain) -> Iterator[Tensor]:
        pool = torch.from_numpy(domain.own.pooled.pool)
        for name in ("item", "bias"):
            value = domain.tensors[name].detach()
            yield torch.zeros(domain.own.pooled.items, value.shape[1]).index_copy(0, pool, value)

    def _vectors(self, pair: tuple[Domain, Domain]) -> Iterator[Tensor]:
        source, target = pair
        there = torch.from_numpy((target.own.newest >= 0).any(axis=1)).unsqueeze(-1)
        known, cold = target.represented((SHARED, EXCLUSIVE)), source.represented((SHARED,))
        for value in (source.represented((SHARED, EXCLUSIVE)), torch.where(there, known, cold)):
            yield value
            yield torch.ones(len(value), 1)
