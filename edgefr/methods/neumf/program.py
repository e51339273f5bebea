"""NeuMF learns from everybody's interactions in one place, in mini-batches."""

from __future__ import annotations

from torch import Tensor

from cloud.references.neumf import NeuMF, forward, layers
from edgefr.experiment import Experiment
from edgefr.methods.central import CentralProgram, batches, pooled
from edgefr.methods.given import Given
from edgefr.methods.neumf.settings import NeuMFSettings
from edgefr.prepare import Prepared
from export.batches import Batch
from export.program import Tensors, TensorSpec


class NeuMFScores(CentralProgram):
    """This scores as NeuMF does: vectors of GMF and of the MLP lie side by side."""

    pointwise = False

    def __init__(self, settings: NeuMFSettings, items: int):
        super().__init__("neumf", items, settings.dim + settings.tower[0] // 2)
        self.dim = settings.dim
        self.dense = layers(settings.tower, settings.dim)
        self.specs = {**self.specs, **{name: TensorSpec(shape, "shared") for name, shape in self.dense.items()}}

    def score(self, tensors: Tensors, batch: Batch, vectors: Tensor, user: Tensor) -> Tensor:
        return forward({name: tensors[name] for name in self.dense}, user, vectors, self.dim)


def neumf_program(settings: NeuMFSettings, given: Given) -> NeuMFScores:
    """Return what scores."""
    return NeuMFScores(settings, given.items)


def neumf_learner(settings: NeuMFSettings, experiment: Experiment, prepared: Prepared) -> NeuMF:
    """Return what learns from the experiment's training interactions."""
    s, data = settings, pooled(experiment, prepared)
    return NeuMF(data, s.dim, s.tower, s.init_scale, batches(s, experiment))
