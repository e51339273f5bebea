"""A finished run as its attackers meet it: one more round of it, in which one client uploads.

What an attacker sees is what `Federation.round` lets through: trained, clipped and noised by the run's own code. Under
local trust that is the server's view of an upload; under central trust the view of somebody who knows all the other
uploads, and so takes them off the sum. A replay memory is not rebuilt: the client trains on its own items alone.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch

from edge.learning import ReleaseRecord
from edge.ragged import Ragged
from edge.sampling import Sampler
from edgefr.config import random_streams as purposes
from edgefr.engine.aggregate import released_values
from edgefr.engine.executors.dp_sgd import DPSGD, plan_for
from edgefr.engine.federation import Federation
from edgefr.engine.noise import SimulatedNoise
from edgefr.engine.work import Executor
from edgefr.experiment.experiment import Experiment
from edgefr.simulation.bundles import learning_of
from edgefr.simulation.resolve import Releases
from edgefr.simulation.runs.run import Run
from edgefr.simulation.runs.saved_model import open_model
from edgefr.studies.audits.canaries import PLAIN, PUBLIC, Channel, Floats, Ints, RealSumChannel, SumChannel
from edgefr.studies.audits.channels import MessageChannel, StepChannel, UploadChannel
from export.model import TrainedModel
from export.program import LocalProgram, Phase, read_by
from privacy import keyed
from privacy.example_plan import ExamplePlan
from privacy.noise_tests import Law
from privacy.plan import PrivacyPlan


@dataclass
class AttackTarget:
    """A run's model after its last round, its clients' items, and what the next round would do to an upload.

    `model` has every client's training items, of its last block if there are blocks, and of its tensors those that a
    round uses. `rounds`: in which one client takes part. `p90`: 90th percentile of the update norms (None: not
    measured). `release`: what the run's devices are told of what may leave (None: they cannot learn). `examples`: its
    DP-SGD, if any.
    """

    experiment: Experiment
    model: TrainedModel
    plan: PrivacyPlan
    rounds: int
    p90: float | None
    release: ReleaseRecord | None = None
    examples: ExamplePlan | None = None

    @classmethod
    def open(cls, run: Run) -> AttackTarget:
        """Read a finished run back. Raises `InputError` for one that is not whole."""
        experiment = run.experiment
        model = open_model(run).model
        program, used = model.program, read_by(model.program.phases, "round")
        first = program.init_private(experiment.seed, torch.arange(len(model.names.users)))
        model = replace(
            model,
            shared={n: v for n, v in model.shared.items() if n in program.specs},
            private={n: v for n, v in {**first, **model.private}.items() if n in used},
        )
        assert model.own is not None
        rounds = max(experiment.total_rounds, 1)
        population = int((np.diff(model.own.offsets) > 0).sum())
        # an audit spends nobody's budget, and its rounds have one client
        settings = experiment.privacy.model_copy(update={"budget": None, "at_least": 1})
        values = released_values(program, settings.project)
        releases = replace(Releases.of_run(run, population), values=values)
        # it plays the rounds of one client, and attacks each by itself: noise that later rounds take back stays
        planned = replace(releases.plan(experiment, settings), apart=1, band=1, clip_quantile=None)
        learning = learning_of(experiment, planned)
        norm = run.summary.get("privacy", {}).get("clip", {}).get("p90_norm")
        return cls(
            experiment=experiment,
            model=model,
            plan=planned,
            rounds=settings.releases(rounds),
            p90=norm if isinstance(norm, float) and norm > 0 else None,
            release=None if learning is None else learning.release,
            examples=plan_for(experiment.privacy, program, rounds),
        )

    @property
    def program(self) -> LocalProgram:
        """Return the program that clients run."""
        return self.model.program

    @property
    def own(self) -> Ragged:
        """Return every client's training items."""
        assert isinstance(self.model.own, Ragged)
        return self.model.own

    @property
    def pool(self) -> Ints:
        """Return the items that negatives are drawn from."""
        return self.model.offered

    @property
    def sent(self) -> list[str]:
        """Name the shared tensors that leave a device, in the program's order."""
        trained = {n for phase in self._phases for n in phase.trains}
        return [n for n, spec in self.program.specs.items() if spec.place == "shared" and n in trained]

    @property
    def unasked(self) -> str:
        """Say why attacks on sets of items are not made; nothing where they are."""
        row = self.experiment.row
        return f"it is about sets of items, and {row.name} reads {row.reads}" if row.reads != "items" else ""

    @property
    def promises(self) -> bool:
        """Say whether anything is promised of the run's updates, or of single interactions."""
        return self.plan.guarantees or (self.examples is not None and bool(self.examples.sigma))

    def channels(self, seed: int) -> list[Channel]:
        """Return the channels by which something leaves this run's devices, for its checks.

        None where the noise has a law of somebody's own, which is not written down here a second time.
        """
        if self.plan.noise is not None and Law.of_noise(self.plan.noise) is None:
            return []
        specs = {name: self.program.specs[name] for name in self.sent}
        found: list[Channel] = [SumChannel(self.plan, specs, seed)]
        if self.release is not None and self.plan.noise is not None:
            found.append(RealSumChannel(self.plan, specs, seed))
        if self.release is not None:
            found.append(UploadChannel(self.plan, self.release, specs, seed))
        if self.plan.prototypes is not None and self.plan.prototypes.clip is not None:
            found.append(MessageChannel(replace(self.plan.prototypes, nominal=0.0), seed))
        if self.examples is not None:
            found.append(StepChannel(self.examples, specs, seed))
        return found

    @property
    def table(self) -> str | None:
        """The table whose rows are items and whose changes leave a device; None where a method has none."""
        rows = [n for n in self.sent if self.program.specs[n].kind == "rows"]
        return rows[0] if rows else None

    @cached_property
    def _loud(self) -> Federation:
        return self._federation(self.plan)

    @cached_property
    def _quiet(self) -> Federation:
        return self._federation(replace(self.plan, noise=None, where="nowhere", project=None))

    def _federation(self, plan: PrivacyPlan) -> Federation:
        """Return a server with one client; tensors and seed are put in before each round."""
        executor: Executor | None = None
        if self.examples is not None:
            executor = DPSGD(self.examples.clip, self.examples.sigma if plan is self.plan else 0.0, PUBLIC)
        one: dict[str, Any] = {"clients": 1, "seed": 0, "shard_size": 1, "aggregation": PLAIN}
        return Federation(self.program, **one, plan=plan, device=torch.device("cpu"), executor=executor)

    @property
    def _phases(self) -> list[Phase]:
        return [phase for phase in self.program.phases if phase.when == "round" and phase.epochs > 0]

    def chosen(self, number: int, least: int = 2) -> Ints:
        """`number` clients with at least `least` training items, keyed."""
        able = np.flatnonzero((self.own.counts >= least) & (self.own.counts < len(self.pool)))
        return keyed.choose(keyed.key(self.experiment.seed, purposes.AUDITED), able, number)

    def upload(self, client: int, items: Ints, draw: int, *, noise: bool = True) -> dict[str, Floats]:
        """Return what an attacker sees if `client` trains on `items` [n]: each shared tensor's change, float64.

        `draw` keys the client's draws and the noise: another number is another round as far as chance goes.
        """
        seed = keyed.key(self.experiment.seed, purposes.AUDIT, client, draw)
        federation = self._loud if noise else self._quiet
        federation.seed, federation.shared = seed, dict(self.model.shared)
        federation.noise = SimulatedNoise(PUBLIC, seed)
        one = slice(client, client + 1)
        federation.private = {n: v[one].clone() for n, v in self.model.private.items()}  # a round writes there
        rows = Ragged(np.asarray(items, np.int32), np.array([0, len(items)], np.int64))
        e, ids = self.experiment, np.array([client])
        sampler = Sampler(rows, self.pool, len(self.model.names.items), e.negatives, e.batch_size, seed, ids)
        federation.round(self.rounds + 1, np.zeros(1, np.int64), sampler, rows)
        return {n: (federation.shared[n].double() - self.model.shared[n].double()).numpy() for n in self.sent}
