"""A device is looked at in three channels: the bytes of its upload, the steps of DP-SGD, a prototype."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import cast

import numpy as np
import torch

from cloud.prototypes import KnowledgeBase
from edge.learning import Learning, PhaseRecord, ReleaseRecord, TensorRecord
from edge.ragged import Ragged
from edge.sampling import Sampler
from edge.sessions import SessionSampler
from edge.training import Trained
from edge.update import Change, make, read_update
from edgefr.engine.executors.dp_sgd import DPSGD
from edgefr.engine.transfer import REPLY, Transfer
from edgefr.engine.work import Clients, LocalWork
from edgefr.studies.audits.canaries import PROJECTED, Canary, Channel, Floats, Still
from export.program import TensorSpec
from privacy.example_plan import ExamplePlan
from privacy.noise_tests import Law
from privacy.plan import PrivacyPlan
from privacy.prototypes import Prototypes

BUNDLE = "0" * 64
RECORDS = 4
"""Examples of a planted client under DP-SGD, each of which takes a step."""


class UploadChannel(Channel):
    """These are the bytes of a device's upload: made, written and read back by the device's own code."""

    name = "bytes"

    def __init__(self, plan: PrivacyPlan, release: ReleaseRecord, specs: Mapping[str, TensorSpec], seed: int = 0):
        self.specs, self.seed, self.norm, self.clip, self.projects = specs, seed, plan.norm, plan.clip, plan.project
        self.promised = plan.guarantees
        self.law = Law.of_noise(plan.noise if plan.where == "each upload" else None)
        silent = release.model_copy(update={"noise": None, "scale": 0.0, "step": None, "noised": "nowhere"})
        self.learning, self.silent = (_learning(specs, r, seed) for r in (release, silent))

    def content(self, known: Canary, number: int, *, who: int = 0, steps: int = 1, noise: bool = True) -> bytes:
        """Return what leaves the device of client `who` in round `number`, after `steps` steps of training."""
        zeros = {name: np.zeros(spec.shape, np.float32) for name, spec in self.specs.items()}
        dense = {n: known.whole(n, s.shape).astype(np.float32) for n, s in self.specs.items() if s.kind == "dense"}
        rows = {}
        for name, spec in self.specs.items():
            if spec.kind == "rows":
                items, values = known.rows.get(name, (np.zeros(0, np.int64), np.zeros((0, spec.shape[1]))))
                rows[name] = (items, values.astype(np.float32))
        trained = Trained(dense, rows, steps, steps, None, None)
        learning = self.learning if noise else self.silent
        change = Change.of(learning, zeros, zeros, trained)
        return make(learning, BUNDLE, change, trained, 3 * steps, number)[0].to_bytes()

    def seen(self, clients: Sequence[Canary], number: int, *, who: int = 0, noise: bool = True) -> dict[str, Floats]:
        (known,) = clients
        learning = self.learning if noise else self.silent
        found = read_update(self.content(known, number, who=who, noise=noise), learning, BUNDLE)
        values = found.update.astype(np.float64) * ((found.whole and learning.release.step) or 1.0)
        if self.projects is not None:
            return {PROJECTED: values}
        out, at = {}, 0
        for name, spec in self.specs.items():
            if found.whole or spec.kind == "dense":
                out[name] = values[at : at + spec.size].reshape(spec.shape)
                at += spec.size
            else:
                out[name] = np.zeros(spec.shape)
                out[name][found.rows[name][0]] = found.rows[name][1]
        return out


def _learning(specs: Mapping[str, TensorSpec], release: ReleaseRecord, seed: int) -> Learning:
    """Return the part of a bundle that decides what leaves: tensors, the phase that trains them, the release."""
    tensors = [TensorRecord(name=n, shape=list(s.shape), place="shared", kind=s.kind) for n, s in specs.items()]
    phase = PhaseRecord(
        name="planted",
        graph="onnx/step.0.onnx",
        purpose="planted",
        when="round",
        epochs=1,
        optimiser="sgd",
        dense=[name for name, spec in specs.items() if spec.kind == "dense"],
        tables=[name for name, spec in specs.items() if spec.kind == "rows"],
        lr=dict.fromkeys(specs, 1.0),
    )
    return Learning(
        tensors=tensors,
        phases=[phase],
        score="onnx/score.onnx",
        negatives=0,
        batch_size=1,
        seed=seed,
        round=0,
        release=release,
        replay=None,
    )


class StepChannel(Channel):
    """These are the steps of DP-SGD: a client takes one for each record, and the change of its tensors is seen.

    What leaves is clipped record by record, so `clip` bounds all of them together.
    """

    name = "steps"

    def __init__(self, plan: ExamplePlan, specs: Mapping[str, TensorSpec], seed: int = 0, records: int = RECORDS):
        self.plan, self.specs, self.seed, self.records, self.norm = plan, specs, seed, records, "l2"
        self.clip = records * plan.clip
        std = plan.sigma * plan.clip * math.sqrt(records)
        self.law = Law("gaussian", std) if std else None

    def tight(self) -> Channel:
        return StepChannel(self.plan, self.specs, self.seed, records=1)

    def seen(self, clients: Sequence[Canary], number: int, *, who: int = 0, noise: bool = True) -> dict[str, Floats]:
        (known,) = clients
        program = Still(self.specs, known, self.records)
        touched = sorted({item for items, _ in known.rows.values() for item in items.tolist()})
        items = [*touched, *(n for n in range(len(touched) + self.records) if n not in touched)][: self.records]
        train = Ragged.from_lists([[]] * who + [items])
        sampler = Sampler(train, np.arange(max(items) + 1), max(items) + 1, 0, 1, self.seed)
        work = LocalWork(program, program.phases, sampler, train, number, torch.device("cpu"))
        shared = program.init_shared(0)
        executor = DPSGD(self.plan.clip, self.plan.sigma if noise else 0.0, self.key)
        found = executor(work, shared, {}, np.array([who]))
        out = {name: value[0].double().numpy() for name, value in found.dense.items()}
        for name, rows in found.rows.items():
            out[name] = np.zeros(self.specs[name].shape)
            out[name][rows.rows.numpy()] = rows.values.double().numpy()
        return {name: out[name] for name in self.specs}


class Heard:
    """This stands where the server keeps prototypes, and keeps what reaches it."""

    def __init__(self, values: int) -> None:
        self.settings, self.sent = self, torch.zeros(0, values)

    def transfers(self, number: int) -> bool:
        """Say that prototypes are sent in every round."""
        return True

    def add(self, number: int, clients: Clients, sent: torch.Tensor, sessions: Clients) -> None:
        """Keep what was sent."""
        self.sent = sent

    def answer(self, clients: Clients, sent: torch.Tensor) -> torch.Tensor:
        """Answer nothing."""
        return torch.zeros_like(sent)


class MessageChannel(Channel):
    """This is the prototype of a client's session, as it reaches the server's knowledge base."""

    name = "prototype"

    def __init__(self, terms: Prototypes, seed: int = 0):
        self.terms, self.seed, self.clip, self.norm = terms, seed, terms.clip, terms.norm
        self.specs = {"prototype": TensorSpec((terms.values,), "shared")}
        self.law = Law.of_noise(terms.noise)

    def seen(self, clients: Sequence[Canary], number: int, *, who: int = 0, noise: bool = True) -> dict[str, Floats]:
        (known,) = clients
        heard = Heard(self.terms.values)
        terms = self.terms if noise else replace(self.terms, noise=None)
        transfer = Transfer(cast(KnowledgeBase, heard), "trained", terms, self.seed, self.key)
        value = known.whole("prototype", (self.terms.values,)).astype(np.float32)
        transfer.take(np.array([who]), torch.from_numpy(value[None]))
        sampler = cast(SessionSampler, SimpleNamespace(current=np.zeros(who + 1, np.int64)))
        transfer.after(number, {REPLY: torch.zeros(who + 1, self.terms.values)}, sampler)
        return {"prototype": heard.sent[0].double().numpy()}
