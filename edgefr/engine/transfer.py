"""Clients exchange messages through the server: sent beside updates, answered from others' messages.

Messages are clipped and noised on devices by the run's terms, since the server sees them singly; it stores, fuses,
relays and answers only those. FCUCR's are prototypes, answered by a knowledge base, in two orders (§4.2). `received`: a
client sends the prototype of its session by the received encoder, and trains with the answer (FCUCR Alg. 1). `trained`:
it sends its trained encoder's, and the answer serves the next round (as released, where it also answers a message on
the client's next session). FedCAR's are relayed to one other client (Eq. 17).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Literal, cast, get_args

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from cloud.prototypes import KnowledgeBase
from edge.random_streams import RECEIVED_NOISE
from edge.sampling import Sampler
from edge.sessions import SessionSampler, Windows
from edge.update import LARGEST
from edgefr.config import random_streams as purposes
from edgefr.engine.executors import sessions as sequences
from edgefr.engine.noise import SimulatedNoise
from edgefr.engine.work import Clients, LocalWork
from export.program import LocalProgram, SessionProgram, Tensors
from privacy import keyed
from privacy.mechanism import Noise
from privacy.noise_key import NoiseKey
from privacy.prototypes import Prototypes

Private = dict[str, Tensor]
Draws = Sampler | SessionSampler
Order = Literal["received", "trained"]
"""Whose prototype is sent, the received encoder's before training or the trained one's after it."""

REPLY = "prototype"
"""The private tensor that holds a client's last answer."""


class Exchange(ABC):
    """This is the server's side of messages, and writes answers to clients' private tensors.

    `terms`: clip and noise of messages, and noise that a device adds to what it receives (as released); `noise` keys
    noise on leaving (None: a secret key).
    """

    purpose: str
    """What keys the noise on leaving."""
    order: Order = "trained"

    def __init__(self, terms: Prototypes, seed: int, noise: NoiseKey | None = None):
        self.terms, self.seed = terms, seed
        self.noise = SimulatedNoise(NoiseKey.new() if noise is None else noise, seed)
        self._sent: list[tuple[Clients, Tensor]] = []

    @abstractmethod
    def sends(self, number: int) -> bool:
        """Say whether clients send a message in round `number`."""

    def before(  # noqa: B027 - messages of trained models go after training alone
        self, work: LocalWork, shared: Tensors, private: Private, clients: Clients
    ) -> None:
        """Exchange messages of the received model before clients train in round `number`, if that is the order."""

    def take(self, shard: Clients, messages: Tensor) -> None:
        """Hold what a shard's clients sent along with their updates."""
        self._sent.append((shard, messages))

    def after(self, number: int, private: Private, sampler: Draws) -> None:
        sent, self._sent = self._sent, []
        if self.order == "trained" and sent and self.sends(number):
            clients = np.concatenate([shard for shard, _ in sent])
            self.exchange(number, private, clients, torch.cat([messages for _, messages in sent]), sampler)

    def ended(self, number: int, private: Private) -> None:  # noqa: B027 - most answer each group by itself
        """Exchange what waits until all groups of aggregation `number` are there."""

    @abstractmethod
    def exchange(self, number: int, private: Private, clients: Clients, messages: Tensor, sampler: Draws) -> None:
        """Answer the messages [C, P] of `clients`, given as they are before they leave the devices."""

    def leaving(self, number: int, clients: Clients, messages: Tensor) -> Tensor:
        """Return what leaves the devices of `clients` of their messages [C, P]: each clipped, with its own noise."""
        if self.terms.clip is None and not self.terms.nominal:
            return messages
        left = self.terms.leaving(messages.cpu().numpy(), self.noise.of_clients(self.purpose, number), clients)
        if self.terms.nominal:
            own = self.noise.of_clients(purposes.NOMINAL_NOISE, number)
            left = left + Noise("laplace", self.terms.nominal).of_clients(own, clients, left.shape[1])
        return torch.from_numpy(left.astype(np.float32))

    def state(self) -> dict[str, Any]:
        return {}

    def restore(self, state: dict[str, Any]) -> None:  # noqa: B027 - most keep nothing
        ...


class Relay(Exchange):
    """This hands every client of a round another client's message, in the private tensor `place`.

    The server's draw of pairs is keyed by the secret `noise`, since clients know the seed.
    """

    purpose = purposes.MESSAGE_NOISE

    def __init__(self, place: str, terms: Prototypes, seed: int, noise: NoiseKey | None = None):
        super().__init__(terms, seed, noise)
        self.place = place
        self._left: list[tuple[Clients, Tensor]] = []

    def sends(self, number: int) -> bool:
        return True

    def exchange(self, number: int, private: Private, clients: Clients, messages: Tensor, sampler: Draws) -> None:
        sent = self.leaving(number, clients, messages)
        sound = _sound(sent)
        self._left.append((clients[sound], sent[torch.from_numpy(sound)].cpu()))

    def ended(self, number: int, private: Private) -> None:
        left, self._left = self._left, []
        if not left:
            return
        clients, sent = np.concatenate([some for some, _ in left]), torch.cat([messages for _, messages in left])
        whose = senders(self.noise.of_clients(purposes.RELAY, number).words(clients, 1)[:, 0, 0])
        if len(whose):
            private[self.place][torch.from_numpy(clients)] = sent[torch.from_numpy(whose)]


def senders(draws: npt.NDArray[np.uint64]) -> Clients:
    """Return whose message each client of a round gets, as places [C]; nobody's where there is only one client.

    Clients sit in a circle in the order of `draws` [C], secret random numbers, and each gets the message of who sits
    before it: nobody gets the own one, and every message goes to one client alone. Of two each knows whose it has.

    >>> senders(np.array([30, 10, 20], np.uint64)).tolist(), senders(np.array([7], np.uint64)).tolist()
    ([2, 0, 1], [])
    """
    if len(draws) < 2:
        return np.empty(0, np.int64)
    circle = np.argsort(draws, kind="stable")
    out = np.empty(len(draws), np.int64)
    out[circle] = np.roll(circle, 1)
    return out


class Transfer(Exchange):
    """This answers prototypes by the server's knowledge base.

    In rounds without a transfer (FCUCR Table 5) clients send nothing and keep their answer.
    """

    purpose = purposes.PROTOTYPE_NOISE

    def __init__(self, base: KnowledgeBase, order: Order, terms: Prototypes, seed: int, noise: NoiseKey | None = None):
        if order not in get_args(Order):
            raise ValueError(f"prototypes are sent as {' or '.join(get_args(Order))}, not as {order}")
        super().__init__(terms, seed, noise)
        self.base, self.order = base, order

    def sends(self, number: int) -> bool:
        return self.base.settings.transfers(number)

    def before(self, work: LocalWork, shared: Tensors, private: Private, clients: Clients) -> None:
        if self.order == "received" and self.sends(work.round):
            some, seen = cast(SessionProgram, work.program), cast(SessionSampler, work.sampler)
            kept = sequences.dropped(some, self.seed, work.round, sequences.SENT, clients, work.device)
            messages = sequences.published(some, shared, seen.window(clients), work.device, kept)
            self.exchange(work.round, private, clients, messages, seen)

    def asked(
        self,
        program: LocalProgram,
        number: int,
        shared: Tensors,
        clients: Clients,
        windows: Windows,
        device: torch.device,
    ) -> Tensor:
        """Return the answers [C, P] to clients that ask before a recommendation; the base learns nothing.

        `number`: of the next round, which keys device noise as `edge.exchange.reply_of`. These prototypes are not
        accounted, so they leave as they are; `ValueError` where prototypes are clipped.
        """
        if self.terms.clip is not None:
            raise ValueError("prototypes that are asked with leave unclipped beside clipped ones")
        some = cast(SessionProgram, program)
        kept = sequences.dropped(some, self.seed, number, sequences.HELD, clients, device)
        messages = sequences.published(some, shared, windows, device, kept)
        return self._received(number, clients, messages)

    def exchange(self, number: int, private: Private, clients: Clients, messages: Tensor, sampler: Draws) -> None:
        """Store prototypes [C, P], and answer them, or the queries that came behind them in messages of [C, 2 P]."""
        messages = messages.cpu()
        kept, queries = messages[:, : self.terms.values], messages[:, -self.terms.values :]
        sent = self.leaving(number, clients, kept)
        asked = sent if self.terms.clip is not None else queries
        sound = np.intersect1d(_sound(sent), _sound(asked))
        some, which = clients[sound], torch.from_numpy(sound)
        self.base.add(number, some, sent[which], cast(SessionSampler, sampler).current[some])
        private[REPLY][torch.from_numpy(some)] = self._received(number, some, asked[which])

    def _received(self, number: int, clients: Clients, sent: Tensor) -> Tensor:
        """Return what the devices of `clients` make of the base's answers to what they sent: [C, P], on the host."""
        answers = self.base.answer(clients, sent).cpu()
        if self.terms.received_noise:
            keys = keyed.fold(keyed.key(self.seed, RECEIVED_NOISE, number), clients)
            draws = keyed.normal(keys[:, None], np.arange(answers.shape[1]))
            answers += torch.from_numpy((self.terms.received_noise * draws).astype(np.float32))
        return answers

    def state(self) -> dict[str, Any]:
        return {"base": self.base.state()}

    def restore(self, state: dict[str, Any]) -> None:
        self.base.restore(state["base"])


def _sound(messages: Tensor) -> Clients:
    """Return the places of messages [C, P] that a device could take: numbers, none longer than a sound update."""
    return np.flatnonzero((torch.linalg.vector_norm(messages.double(), dim=1) <= LARGEST).cpu().numpy())
