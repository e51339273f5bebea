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


@pytest.mark.parametrize("width", [12, 300])
def test_an_adapter_as_wide_as_the_text_begins_with_all_that_centred_texts_say(width: int) -> None:
    text = texts(items=400, width=width)
    program = TransFR(TransFRSettings(adapter=None, head=None), text, local_epochs=1)
    dim = min(width, 256)
    assert program.adapter_widths == [width, dim]
    assert program.head_widths == [dim, 64, dim]
    found, centred = vectors(program, program.init_shared(7)), (text - text.mean(0)).numpy()
    scale = np.sqrt(np.square(found).sum() / np.square(centred).sum())
    off = np.abs(found @ found.T / scale**2 - centred @ centred.T).max() / np.square(centred).sum(1).max()
    assert off < (1e-4 if dim == width else 0.1), "inner products of vectors are those of texts"


def test_before_any_round_a_wide_adapter_ranks_as_well_as_the_mean_of_texts_and_a_narrow_one_does_not() -> None:
    """Users like items of one kind out of 40 of equal weight, of which eight directions tell few apart."""
    kinds = np.repeat(np.arange(40), 5)
    text = torch.eye(40)[kinds]
    hits = {}
    for name, adapter in (("wide", None), ("narrow", [8])):
        program = TransFR(TransFRSettings(adapter=adapter, head=None), text, local_epochs=1)
        found = vectors(program, program.init_shared(7))
        scores = np.stack([found[5 * kind : 5 * kind + 3].mean(0) @ found.T for kind in range(40)])
        scores[np.arange(40)[:, None], 5 * np.arange(40)[:, None] + np.arange(3)] = -np.inf  # what they had
        first = np.argsort(-scores, axis=1)[:, :2]
        hits[name] = (kinds[first] == np.arange(40)[:, None]).mean()
    assert hits["wide"] == 1.0, "as the mean of texts, which is right for everybody"
    assert hits["narrow"] < 0.5


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
