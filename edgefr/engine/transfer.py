"""Clients exchange prototypes through the server: sent beside updates, answered by its knowledge base (FCUCR §4.2).

What leaves a device is clipped and noised there, by the run's terms: the server sees single prototypes, so each brings
its own noise along, and what is stored, retrieved, fused and answered is made of that alone.

Two orders. `received`: a client sends the prototype of its session by the encoder it was handed, and trains with the
answer (FCUCR Alg. 1). `trained`: it sends what its trained encoder makes of the session, and the answer serves the next
round (as released). Owns: when prototypes are sent and where answers go. Does not own: the knowledge base (`cloud`),
clip and noise (`privacy.prototypes`).
"""

from __future__ import annotations

from typing import Any, Literal, cast, get_args

import numpy as np
import torch
from torch import Tensor

from cloud.prototypes import KnowledgeBase
from edge.purposes import RECEIVED_NOISE
from edge.sessions import SessionSampler, Windows
from edgefr import purposes
from edgefr.engine import sequences
from edgefr.engine.noise import SimulatedNoise
from edgefr.engine.work import Clients
from export.program import LocalProgram, SessionProgram, Tensors
from privacy import keyed
from privacy.noise_key import NoiseKey
from privacy.prototypes import Prototypes

Order = Literal["received", "trained"]
"""Whose prototype is sent, the received encoder's before training or the trained one's after it."""

REPLY = "prototype"
"""The private tensor that holds a client's last answer."""


class Transfer:
    """This is the server's side of prototypes, with what reaches the clients' private tensors.

    `terms`: what prototypes are when they leave a device, and the noise that a device adds to what it receives (as
    released); `noise` keys what is added on leaving (None: a key that nobody keeps). In rounds without a transfer
    (FCUCR Table 5) clients send nothing and keep their answer.
    """

    def __init__(self, base: KnowledgeBase, order: Order, terms: Prototypes, seed: int, noise: NoiseKey | None = None):
        if order not in get_args(Order):
            raise ValueError(f"prototypes are sent as {' or '.join(get_args(Order))}, not as {order}")
        self.base, self.order, self.terms, self.seed = base, order, terms, seed
        self.noise = SimulatedNoise(NoiseKey.new() if noise is None else noise, seed)
        self._sent: list[tuple[Clients, Tensor]] = []

    def sends(self, number: int) -> bool:
        """Say whether clients send a prototype in round `number`."""
        return self.base.settings.transfers(number)

    def before(
        self,
        program: LocalProgram,
        number: int,
        shared: Tensors,
        private: dict[str, Tensor],
        clients: Clients,
        sampler: SessionSampler,
        device: torch.device,
    ) -> None:
        """Before clients train in round `number`: order `received`."""
        if self.order == "received" and self.sends(number):
            some = cast(SessionProgram, program)
            messages = sequences.published(some, shared, sampler.window(clients), device)
            self._exchange(number, private, clients, messages, sampler.current[clients])

    def take(self, shard: Clients, messages: Tensor) -> None:
        """Hold what a shard's clients sent along with their updates."""
        self._sent.append((shard, messages))

    def after(self, number: int, private: dict[str, Tensor], sampler: SessionSampler) -> None:
        """After clients have trained in round `number`: order `trained`."""
        sent, self._sent = self._sent, []
        if self.order == "trained" and sent and self.sends(number):
            clients = np.concatenate([shard for shard, _ in sent])
            messages = torch.cat([messages for _, messages in sent])
            self._exchange(number, private, clients, messages, sampler.current[clients])

    def asked(
        self,
        program: LocalProgram,
        number: int,
        shared: Tensors,
        clients: Clients,
        windows: Windows,
        device: torch.device,
    ) -> Tensor:
        """Return what clients [C, P] have of the answer when they ask before they are recommended something.

        Nothing is added to the base. `number`: of the round that comes next, which keys the noise of a device here as
        in `edge.streams.reply_of`. Nobody counts these prototypes, so they leave as they are; `ValueError` where
        prototypes are clipped.
        """
        if self.terms.clip is not None:
            raise ValueError("prototypes that are asked with leave unclipped beside clipped ones")
        messages = sequences.published(cast(SessionProgram, program), shared, windows, device)
        return self._received(number, clients, messages)

    def _exchange(
        self, number: int, private: dict[str, Tensor], clients: Clients, messages: Tensor, sessions: Clients
    ) -> None:
        sent = self._leaving(number, clients, messages)
        self.base.add(number, clients, sent, sessions)
        private[REPLY][torch.from_numpy(clients)] = self._received(number, clients, sent)

    def _received(self, number: int, clients: Clients, sent: Tensor) -> Tensor:
        """Return what the devices of `clients` make of the base's answers to what they sent: [C, P], on the host."""
        answers = self.base.answer(clients, sent).cpu()
        if self.terms.received_noise:
            keys = keyed.fold(keyed.key(self.seed, RECEIVED_NOISE, number), clients)
            draws = keyed.normal(keys[:, None], np.arange(answers.shape[1]))
            answers += torch.from_numpy((self.terms.received_noise * draws).astype(np.float32))
        return answers

    def _leaving(self, number: int, clients: Clients, messages: Tensor) -> Tensor:
        """Return what leaves the devices of `clients` of their prototypes [C, P]: each clipped, with its own noise."""
        if self.terms.clip is None:
            return messages
        left = self.terms.leaving(
            messages.cpu().numpy(), self.noise.of_clients(purposes.PROTOTYPE_NOISE, number), clients
        )
        return torch.from_numpy(left.astype(np.float32))

    def state(self) -> dict[str, Any]:
        """Return what a checkpoint needs."""
        return {"base": self.base.state()}

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from `state()`."""
        self.base.restore(state["base"])
