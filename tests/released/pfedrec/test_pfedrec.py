"""`fidelity: released` of PFedRec is its public code to the digit: golden numbers of rounds, tables and scores."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from edge.ragged import Ragged
from edgefr.engine.executors import debug, inline
from edgefr.engine.federation import Federation
from edgefr.engine.scoring import ModelScorer
from edgefr.experiment.experiment import load_experiment
from edgefr.experiment.method import METHODS
from edgefr.methods.pfedrec.program import PFedRec
from export.batches import Batch
from export.given import Given as Catalogue
from export.program import LocalProgram, Phase, Tensors
from tests.released.given import DIM, ITEMS, USERS, Arrays, federation, furthest, played, whole

CASES = ("mild", "hot")
"""The first scorer is as torch has it, or 40 times that: then sigmoids are rounded to 1, and gradients to nothing."""


@cache
def golden() -> Arrays:
    return dict(np.load(Path(__file__).with_name("golden.npz")))


def program(**changes: object) -> LocalProgram:
    """What `fidelity: released` makes over leave-one-out, on the golden catalogue."""
    overrides = ["method=pfedrec", "fidelity=released", "data=ml-100k", f"model.dim={DIM}"]
    settings = load_experiment(overrides=overrides).settings.model_copy(update=changes)
    return METHODS["pfedrec"].program(settings, Catalogue(ITEMS, 1))


def begun(case: str) -> tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]]:
    table, weight, bias = (
        torch.from_numpy(golden()[f"{case}.first.{name}"])
        for name in ("embedding_item.weight", "affine_output.weight", "affine_output.bias")
    )
    private = {"scorer.weight": weight[0].repeat(USERS, 1), "scorer.bias": bias.repeat(USERS, 1)}
    return {"item": table}, private


def rounds(case: str, wide: bool, local: LocalProgram | None = None) -> dict[int, Arrays]:
    """Return what the public code's numbers are called, after each of its rounds."""
    executor = debug.run if wide else inline.run
    made = federation(local or program(), begun(case), executor, wide)
    return played(made, golden(), seen)


def seen(made: Federation) -> dict[str, np.ndarray]:
    tensors = made.program, made.shared, made.private, Ragged.empty(USERS)
    score = ModelScorer(*tensors, np.arange(ITEMS), ITEMS, made.device, tables=made.own)
    scores = torch.from_numpy(np.asarray(score(np.arange(USERS), None)))
    return {
        "item": made.shared["item"].numpy(),
        "own.embedding_item.weight": whole(made.own["item"], USERS, ITEMS),
        "own.affine_output.weight": made.private["scorer.weight"].unsqueeze(1).clone().numpy(),
        "own.affine_output.bias": made.private["scorer.bias"].clone().numpy(),
        "probability": scores.sigmoid().numpy(),
    }


class Flipped(PFedRec):
    """The program with one sign of its maths turned."""

    def __init__(self, wrong: str):
        local = program()
        assert isinstance(local, PFedRec)
        super().__init__(local.settings, ITEMS, 1)
        self.wrong = wrong

    def vectors(self, tensors: Tensors, batch: Batch) -> Tensor:
        return super().vectors(tensors, batch) * self._sign("items")

    def score(self, tensors: Tensors, batch: Batch, vectors: Tensor, user: Tensor) -> Tensor:
        tensors = {**tensors, "scorer.bias": tensors["scorer.bias"] * self._sign("bias")}
        return super().score(tensors, batch, vectors, user) * self._sign("scores")

    def loss(self, tensors: Tensors, batch: Batch, phase: Phase) -> Tensor:
        return super().loss(tensors, batch, phase) * self._sign("gradient")

    def _sign(self, of: str) -> float:
        return -1.0 if self.wrong == of else 1.0


@pytest.fixture
def in_float64():
    """Weights of examples are made in the default type, and 1/12 is no float32."""
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


@pytest.mark.usefixtures("in_float64")
@pytest.mark.parametrize("case", CASES)
def test_the_plain_loop_in_float64_is_the_public_code(case: str) -> None:
    """To 1e-6 as promised; it is 1e-13 here."""
    assert furthest(golden(), rounds(case, wide=True), f"{case}.f64") < 1e-11


@pytest.mark.parametrize("case", CASES)
def test_the_vectorised_path_in_float32_is_the_public_code_as_it_runs(case: str) -> None:
    """To 2e-6 of the largest value of an array: rounding alone, since SGD amplifies nothing. 4e-7 here."""
    assert furthest(golden(), rounds(case, wide=False), f"{case}.f32") < 2e-6


def test_where_sigmoids_are_rounded_float32_is_another_method_and_ours_is_the_public_codes() -> None:
    """A negative of probability 1 has no gradient: the public code in float64 comes to other tables."""
    assert furthest(golden(), rounds("hot", wide=False), "hot.f64") > 0.1
    assert furthest(golden(), rounds("mild", wide=False), "mild.f64") < 2e-6
    assert furthest(golden(), rounds("hot", wide=False, local=program(bce_of="scores")), "hot.f32") > 0.1


@pytest.mark.parametrize("change", [{"turns": "phases"}, {"item_times": 170.0}, {"lr": 0.2}, {"item_lr": 1.0}])
def test_each_value_of_released_is_needed(change: dict[str, object]) -> None:
    assert furthest(golden(), rounds("mild", wide=False, local=program(**change)), "mild.f32") > 1e-3


@pytest.mark.parametrize("wrong", ["scores", "items", "bias", "gradient"])
def test_a_sign_that_is_flipped_anywhere_is_seen(wrong: str) -> None:
    assert furthest(golden(), rounds("mild", wide=False, local=Flipped(wrong)), "mild.f32") > 1e-3
