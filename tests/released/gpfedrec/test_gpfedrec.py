"""`fidelity: released` of GPFedRec is its public code to the digit: golden numbers of rounds, tables and scores."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from cloud.rules.graph import GraphSettings
from edge.ragged import Ragged
from edgefr.engine.executors import debug, inline
from edgefr.engine.federation import Federation
from edgefr.engine.scoring import ModelScorer
from edgefr.engine.tables import check_laid
from edgefr.engine.work import Executor
from edgefr.experiment.experiment import load_experiment
from edgefr.experiment.method import METHODS
from edgefr.methods.gpfedrec.program import WithLayers
from export.batches import Batch
from export.given import Given as Catalogue
from export.program import LocalProgram, Phase, Tensors
from privacy.errors import InputError
from tests.released.given import DIM, ITEMS, USERS, Arrays, federation, furthest, played, whole

CASES = ("mild", "hot")
"""The last layer is as it is, or 100 times that: then sigmoids are rounded to 1, and gradients to nothing."""
HIDDEN = [8, 4]
PUBLIC = {
    "user": "embedding_user.weight",
    "scorer.0.weight": "fc_layers.0.weight",
    "scorer.0.bias": "fc_layers.0.bias",
    "scorer.1.weight": "fc_layers.1.weight",
    "scorer.1.bias": "fc_layers.1.bias",
    "scorer.2.weight": "affine_output.weight",
    "scorer.2.bias": "affine_output.bias",
}
"""What the public code calls a client's tensors."""


@cache
def golden() -> Arrays:
    return dict(np.load(Path(__file__).with_name("golden.npz")))


def released() -> object:
    """What `fidelity: released` makes of an experiment over leave-one-out, on the golden widths."""
    overrides = ["method=gpfedrec", "fidelity=released", "data=ml-100k", f"model.dim={DIM}", f"model.hidden={HIDDEN}"]
    return load_experiment(overrides=overrides)


def program(**changes: object) -> LocalProgram:
    settings = released().settings.model_copy(update=changes)  # type: ignore[attr-defined]
    return METHODS["gpfedrec"].program(settings, Catalogue(ITEMS, 1))


def begun(case: str) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """The public layers are [out, in], ours [in, out]."""
    private = {}
    for ours, theirs in PUBLIC.items():
        value = torch.from_numpy(golden()[f"{case}.first.{theirs}"])
        value = value[0] if ours == "user" else value.T.contiguous() if value.ndim == 2 else value
        private[ours] = value.expand(USERS, *value.shape).clone()
    return {"item": torch.from_numpy(golden()[f"{case}.first.embedding_item.weight"])}, private


def rounds(
    case: str, wide: bool, local: LocalProgram | None = None, executor: Executor | None = None, **graph: object
) -> dict[int, Arrays]:
    """Return what the public code's numbers are called, after each of its rounds."""
    settings = GraphSettings.model_validate(released().aggregation.model_dump() | graph)  # type: ignore[attr-defined]
    run = executor or (debug.run if wide else inline.run)
    made = federation(local or program(), begun(case), run, wide, **settings.model_dump())
    return played(made, golden(), seen)


def seen(made: Federation) -> dict[str, np.ndarray]:
    tensors = made.program, made.shared, made.private, Ragged.empty(USERS)
    tables = {**made.tables, **made.own}
    score = ModelScorer(*tensors, np.arange(ITEMS), ITEMS, made.device, tables=tables)
    scores = torch.from_numpy(np.asarray(score(np.arange(USERS), None)))
    out = {
        "item": made.shared["item"].numpy(),
        "made": whole(made.tables["received.item"], USERS, ITEMS),
        "own.embedding_item.weight": whole(made.own["item"], USERS, ITEMS),
        "probability": scores.sigmoid().numpy(),
    }
    for ours, theirs in PUBLIC.items():
        value = made.private[ours].clone()
        value = value.unsqueeze(1) if ours == "user" else value.mT if value.ndim == 3 else value
        out[f"own.{theirs}"] = value.numpy()
    return out


class Flipped(WithLayers):
    """The program with one sign of its maths turned."""

    def __init__(self, wrong: str):
        local = program()
        assert isinstance(local, WithLayers)
        self.wrong = wrong
        super().__init__(local.settings, ITEMS, 1)
        if wrong == "idle rows":
            (phase,) = self.phases
            (pull,) = phase.pulls.values()
            self.phases = (type(phase)(**{**vars(phase), "pulls": {"item": type(pull)(pull.to, -pull.rate)}}),)

    def scores(self, tensors: Tensors, batch: Batch, rows: Tensor, user: Tensor) -> Tensor:
        found = super().scores(tensors, batch, rows * self._sign("items"), user * self._sign("user"))
        return found * self._sign("scores")

    def loss(self, tensors: Tensors, batch: Batch, phase: Phase) -> Tensor:
        if self.wrong != "pull":
            return super().loss(tensors, batch, phase) * self._sign("gradient")
        rows, made = batch.rows(tensors["item"]), batch.rows(tensors["received.item"])
        pulled = batch.over_items((rows - made).square().mean(-1)) / self.items
        return super().loss(tensors, batch, phase) - 2 * self.settings.pull * pulled

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
    """To 1e-6 as promised."""
    assert furthest(golden(), rounds(case, wide=True), f"{case}.f64") < 1e-11


@pytest.mark.parametrize(("case", "most"), [("mild", 2e-6), ("hot", 2e-5)])
def test_the_vectorised_path_in_float32_is_the_public_code_as_it_runs(case: str, most: float) -> None:
    """Relative to an array's largest value: rounding alone, which steps a thousand times larger amplify."""
    assert furthest(golden(), rounds(case, wide=False), f"{case}.f32") < most


def test_where_sigmoids_are_rounded_float32_is_another_method_and_ours_is_the_public_codes() -> None:
    """A negative of probability 1 has no gradient: the public code in float64 comes to other tables."""
    assert furthest(golden(), rounds("hot", wide=False), "hot.f64") > 0.1
    assert furthest(golden(), rounds("hot", wide=False, local=program(bce_of="scores")), "hot.f32") > 0.1


@pytest.mark.parametrize(
    "change", [{"pulls": "batch"}, {"pull": 0.5}, {"user_lr": 0.1}, {"item_lr": 320.0}, {"lr": 0.2}]
)
def test_each_value_of_released_is_needed(change: dict[str, object]) -> None:
    assert furthest(golden(), rounds("mild", wide=False, local=program(**change)), "mild.f32") > 1e-4


@pytest.mark.parametrize("graph", [{"similarity": "cosine"}, {"threshold": 1.1}, {"neighbours": 3}])
def test_the_graph_is_that_of_distances(graph: dict[str, object]) -> None:
    assert furthest(golden(), rounds("mild", wide=False, **graph), "mild.f32") > 1e-3


@pytest.mark.parametrize("wrong", ["scores", "items", "user", "gradient", "pull", "idle rows"])
def test_a_sign_that_is_flipped_anywhere_is_seen(wrong: str) -> None:
    assert furthest(golden(), rounds("mild", wide=False, local=Flipped(wrong)), "mild.f32") > 1e-3


def test_what_does_not_go_with_released_is_refused_in_a_line() -> None:
    asked = ["method=gpfedrec", "fidelity=released", "data=ml-100k"]
    with pytest.raises(InputError, match=r"model\.recommends: clients recommend from their own tables"):
        load_experiment(overrides=[*asked, "model.recommends=graph"])
    with pytest.raises(InputError, match=r"model\.pulls: a clip is of the rows that a client's examples read"):
        load_experiment(overrides=[*asked, "privacy.clip=1.0"])
    local = METHODS["gpfedrec"].program(released().settings, Catalogue(2_000_000, 1))  # type: ignore[attr-defined]
    with pytest.raises(InputError, match=r"at most 4 GiB \(here 536\.4\); set model\.pulls=batch"):
        check_laid(local, 9_000, clipped=False, personal=True)
