"""Simulated and real noise of a round's sums: as many draws as there are uploads, new for every tensor and round."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from edgefr.engine.noise import RealNoise, SimulatedNoise
from privacy.mechanism import Noise
from tests.noises import KEY

NOISE = Noise("discrete-gaussian", 256 * 2.0**-10, 2.0**-10)
SHAPE = (200, 50)


@pytest.mark.parametrize("source", [RealNoise(), SimulatedNoise(KEY, 3)], ids=["real", "simulated"])
def test_noise_of_a_sum_has_a_draw_for_every_upload(source: RealNoise | SimulatedNoise) -> None:
    one, nine = source.sums(NOISE, "item", 1, SHAPE, [1, 9])
    assert one.std() == pytest.approx(NOISE.std, rel=0.05)
    assert nine.std() == pytest.approx(3 * NOISE.std, rel=0.05)
    assert abs(np.corrcoef(one.ravel(), nine.ravel())[0, 1]) < 0.06
    assert NOISE.step is not None
    for drawn in (one, nine):
        assert drawn.shape == SHAPE
        assert not (drawn % NOISE.step).any()


def test_real_noise_is_new_whenever_it_is_drawn() -> None:
    first, again = (next(RealNoise().sums(NOISE, "item", 1, SHAPE, [1])) for _ in range(2))
    assert abs(np.corrcoef(first.ravel(), again.ravel())[0, 1]) < 0.06


def test_simulated_noise_repeats_with_its_key_and_is_new_in_every_round_and_tensor() -> None:
    source = SimulatedNoise(KEY, 3)
    first = next(source.sums(NOISE, "item", 1, SHAPE, [1]))
    np.testing.assert_array_equal(first, next(source.sums(NOISE, "item", 1, SHAPE, [1])))
    for tensor, number in (("item", 2), ("bias", 1)):
        other = next(source.sums(NOISE, tensor, number, SHAPE, [1]))
        assert abs(np.corrcoef(first.ravel(), other.ravel())[0, 1]) < 0.06


def test_nothing_but_a_teacher_is_drawn_by_torch() -> None:
    """A torch generator on the host keeps 32 bits of its seed: none is in the rooms where noise is drawn."""
    rooms = (Path(__file__).parents[2] / room for room in ("edgefr", "export", "edge", "privacy"))
    files = [path for room in rooms for path in room.rglob("*.py")]
    assert len(files) > 300
    torches = re.compile(r"torch\.Generator|manual_seed|\.(normal|uniform)_\(|torch\.(randn?|normal)\b")
    assert [str(path) for path in files if torches.search(path.read_text(encoding="utf-8"))] == []


def test_a_clients_key_is_of_its_round() -> None:
    source = SimulatedNoise(KEY, 3)
    assert source.of_clients("prototypes", 1).key != source.of_clients("prototypes", 2).key
