"""What a round asks of a device, against counts by hand."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from edge.ragged import Ragged
from edge.sampling import Sampler
from edgefr.engine.footprint import default_shard_size, round_work
from edgefr.methods.fedmf.program import FedMF
from edgefr.methods.fedmf.settings import FedMFSettings
from edgefr.methods.transfr.program import TransFR
from edgefr.methods.transfr.settings import TransFRSettings

ITEMS = 50
TRAIN = Ragged.from_lists([range(3), range(10), range(1)])


def sampler(batch_size: int = 8) -> Sampler:
    return Sampler(TRAIN, np.arange(ITEMS), ITEMS, negatives=4, batch_size=batch_size, seed=0)


def transfr(epochs: int = 2) -> TransFR:
    """Text of 10, adapter 10-6-4, head 4-4."""
    return TransFR(TransFRSettings(adapter=[6, 4], head=[4]), torch.zeros(ITEMS, 10), epochs)


ADAPTER = 10 * 6 + 6 + 6 * 4 + 4
HEAD = 4 * 4 + 4
USER = 4


def work(program, cohort: list[int], newcomers: list[bool], batch_size: int = 8):
    phases = [phase for phase in program.phases if phase.when == "round"]
    return round_work(program, phases, sampler(batch_size), np.array(cohort), np.array(newcomers))


def test_transfr_by_hand() -> None:
    found = work(transfr(), [1, 0], [True, False])
    # 10 and 3 positives with 4 negatives each: 50 and 15 examples, 7 and 2 steps of 8 per epoch, 2 epochs.
    assert found.steps.tolist() == [14, 4]
    assert found.examples_per_step.tolist() == pytest.approx([2 * 50 / 14, 2 * 15 / 4])
    assert found.flops_per_example == 2 * (ADAPTER + USER)  # the head is not used in a round
    assert found.trained_parameters.tolist() == [ADAPTER + USER] * 2
    assert found.resident_parameters == ADAPTER + HEAD + USER + ITEMS * 10 / 2  # texts as float16
    assert found.bytes_down.tolist() == [4 * ADAPTER + 2 * ITEMS * 10, 4 * ADAPTER]
    assert found.bytes_up == 4 * ADAPTER
    assert found.optimiser == "adam"


def test_fedmf_by_hand() -> None:
    program = FedMF(FedMFSettings(dim=4), ITEMS, local_epochs=3)
    found = work(program, [0, 1, 2], [True] * 3, batch_size=100)
    assert found.steps.tolist() == [3, 3, 3]
    assert found.examples_per_step.tolist() == [15, 50, 5]
    assert found.flops_per_example == 2 * (4 + 4)
    # rows: at most one per example and no more than there are items; and the user's vector
    assert found.trained_parameters.tolist() == [15 * 4 + 4, 50 * 4 + 4, 5 * 4 + 4]
    assert found.resident_parameters == ITEMS * 4 + 4
    assert np.asarray(found.bytes_down).tolist() == [4 * ITEMS * 4] * 3  # the whole table: rows would tell the items
    assert found.bytes_up == 4 * ITEMS * 4
    assert found.optimiser == "sgd"


def test_the_default_shard_fills_the_memory_it_is_given() -> None:
    program = TransFR(TransFRSettings(), torch.zeros(ITEMS, 312), 1)
    small, large = (default_shard_size(program, 256, memory_mb) for memory_mb in (64, 128))
    assert 1 <= small < large <= 1024
    assert large == pytest.approx(2 * small, abs=2)
    assert default_shard_size(program, 10**6, 16) == 1
    assert default_shard_size(FedMF(FedMFSettings(dim=1), 10, 1), 1, 10_000) == 1024
