"""A plug-in as somebody else would write it: a method, a metric, a server rule and a mechanism of their own."""

import math
from typing import ClassVar, Literal

import numpy as np
import torch

import edgefr
from cloud.rule import AggregationSettings, Robust
from cloud.uploads import weighted
from edgefr.experiment.method import Method
from edgefr.methods.fedmf.program import FedMF
from edgefr.methods.fedmf.settings import FedMFSettings
from edgefr.metrics.cutoffs import Metric
from privacy.mechanism import ORDERS, Additive, Simulated
from privacy.settings import NoiseSettings


class Half(FedMF):
    """FedMF whose scores are halved."""

    name = "somebodys-mf"

    def score(self, tensors, batch, vectors, user):
        return super().score(tensors, batch, vectors, user) / 2


def build(settings, given):
    return Half(settings, given.items, given.local_epochs)


class HalfMeanSettings(AggregationSettings):
    rule: Literal["somebodys-mean"] = "somebodys-mean"


class HalfMean(Robust):
    name, settings, citation = "somebodys-mean", HalfMeanSettings, "nobody"

    def combine(self, settings, uploads, shared):
        share = torch.full((uploads.clients,), 0.5 / uploads.clients, dtype=torch.float64)
        return weighted(uploads, shared, share)


class CoinSettings(NoiseSettings):
    mechanism: Literal["somebodys-coin"] = "somebodys-coin"


class Coin(Additive):
    name, settings, citation = "somebodys-coin", CoinSettings, "nobody"
    trusts, guarantees, unknown = ("local",), True, "all but its pure epsilon"
    on_device, symbol, without_clip = False, "c", "unclipped"
    samplers: ClassVar = {
        "float": Simulated(lambda noise, counts, draw: noise.scale * counts * draw.choice([-1, 1], counts.shape), None)
    }

    def std(self, noise):
        return noise.scale

    def scale_of(self, std):
        return std

    def curve(self, event):
        return np.full(len(ORDERS), 1.0 / event.multiplier)

    def pure(self, event):
        return 1.0 / event.multiplier


edgefr.register(Method(name="somebodys-mf", paper="nobody", settings=FedMFSettings, build=build))
edgefr.register(Metric("SomebodysRank", lambda found: found.dcg / math.log2(3)))
edgefr.register(HalfMean())
edgefr.register(Coin())
