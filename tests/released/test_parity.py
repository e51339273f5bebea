"""The table of distances to public codes is made of what the tests compare."""

from __future__ import annotations

import torch

from tests.released import parity


def test_a_line_is_as_near_as_its_test_promises() -> None:
    before = torch.get_default_dtype()
    exact = parity.of_f3crec("fedmf ft", torch.float64, "debug")
    single = parity.of_f3crec("fedmf ft", torch.float32, "inline")
    assert 0 < exact < 1e-12 < single < 1e-5, "float32 is told from float64"
    assert torch.get_default_dtype() is before
