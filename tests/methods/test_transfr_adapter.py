"""The first adapter: an MLP that computes the projection on the texts' main directions."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from edgefr.methods.transfr.program import TransFR
from edgefr.methods.transfr.settings import TransFRSettings
from export.batches import One
from privacy.errors import InputError


def texts(items: int = 40, width: int = 12) -> torch.Tensor:
    rng = np.random.default_rng(0)
    spread = np.linspace(3, 0.1, width)
    return torch.from_numpy((rng.standard_normal((items, width)) * spread + 2.0).astype(np.float32))


def vectors(program: TransFR, tensors: dict[str, torch.Tensor]) -> np.ndarray:
    every = torch.arange(len(program.frozen["text"]))
    return program.vectors(tensors, One(every, every, every, every)).numpy()


@pytest.mark.parametrize("adapter", [[4], [8, 4], [20, 9, 4]])
def test_untrained_vectors_are_the_scaled_principal_components(adapter: list[int]) -> None:
    text = texts()
    program = TransFR(TransFRSettings(adapter=adapter, head=[6, 4], adapter_norm=3.0), text, local_epochs=1)
    found = vectors(program, program.init_shared(7))
    centred = text.double().numpy() - text.double().numpy().mean(0)
    left, values, _ = np.linalg.svd(centred, full_matrices=False)
    expected = (left * values)[:, :4]
    expected *= 3.0 / np.sqrt((expected**2).sum(1).mean())
    signs = np.sign((found * expected).sum(0))
    np.testing.assert_allclose(found, expected * signs, atol=1e-4)


def test_spare_units_can_learn_but_have_no_say_yet() -> None:
    program = TransFR(TransFRSettings(adapter=[20, 4], head=[6, 4]), texts(), local_epochs=1)
    shared = program.init_shared(7)
    assert (shared["adapter.0.weight"][:, 8:] != 0).any()
    assert (shared["adapter.1.weight"][8:] == 0).all()


def test_items_without_text_do_not_bend_the_directions() -> None:
    text = texts()
    with_blank = torch.cat([text, torch.zeros(15, text.shape[1])])
    settings = TransFRSettings(adapter=[8, 4], head=[6, 4])
    plain, blank = (TransFR(settings, table, local_epochs=1).init_shared(1) for table in (text, with_blank))
    torch.testing.assert_close(plain["adapter.0.weight"], blank["adapter.0.weight"])


@pytest.mark.parametrize(
    ("settings", "text", "says"),
    [
        ({"adapter": [7, 4], "head": [4]}, texts(), r"hidden widths of model.adapter must be at least 8, got \[7, 4\]"),
        ({"adapter": [16], "head": [16]}, texts(), "carries 16 directions of 12"),
        ({"adapter": [8, 4], "head": [4]}, torch.zeros(9, 12), "needs items with text"),
        ({"adapter": [8, 4], "head": [5]}, texts(), "model.head ends in 5 but model.adapter in 4"),
    ],
)
def test_what_cannot_be_is_said(settings: dict, text: torch.Tensor, says: str) -> None:
    with pytest.raises(InputError, match=says):
        TransFR(TransFRSettings(**settings), text, local_epochs=1).init_shared(0)
