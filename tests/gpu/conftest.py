"""Tests here run on a GPU where there is one (mark `gpu`), and on a pretended one everywhere."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from tests.gpu.pretended import GPU, Pretended

CUDA = torch.cuda.is_available()


@pytest.fixture(params=["pretended", *([pytest.param("cuda", marks=pytest.mark.gpu)] if CUDA else [])])
def gpu(request: pytest.FixtureRequest) -> Iterator[torch.device]:
    if request.param == "cuda":
        yield torch.device("cuda")
    else:
        with Pretended():
            yield GPU
