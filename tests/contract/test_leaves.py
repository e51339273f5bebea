"""A changed setting changes what a run comes to, or is refused: a sample of `tests.contract.leaves`, run each time."""

from __future__ import annotations

import pytest

from edgefr.experiment import load_experiment
from tests.contract.leaves import BASES, Asked, leaves, others
from tests.export.worlds import student

READ = {
    "fedmf": ("negatives", "batch_size", "evaluation.curve_users", "engine.executor", "model.item_lr", "fleet.dropout"),
    "f3crec": ("continual.patience", "continual.kd_weight", "evaluation.keep_blocks", "aggregation.beta", "fidelity"),
    "fcucr": ("knowledge.top_k", "model.distill_weight", "model.pooling", "sessions.first_session", "protocol.stream"),
}
"""Settings that are read, by base: each is a run."""


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Asked]:
    """Every base that is asked, run once when it is needed."""
    return {name: Asked(name, student(), tmp_path_factory.mktemp("leaves")) for name in READ}


@pytest.mark.parametrize(("base", "name"), [(base, name) for base, names in READ.items() for name in names])
def test_a_setting_that_is_accepted_changes_what_comes_out(asked: dict[str, Asked], base: str, name: str) -> None:
    place = tuple(name.split("."))
    field, value = next((field, value) for at, field, value in leaves(asked[base].experiment) if at == place)
    found = [asked[base].outcome(place, other) for other in others(place, field, value)]
    assert "changed" in [outcome for outcome, _ in found], found


@pytest.mark.parametrize("base", BASES)
def test_every_setting_has_another_value(base: str) -> None:
    """A sweep that never changes a setting would find no fault with it."""
    method = BASES[base]["method"]
    for place, field, value in leaves(load_experiment(overrides=[f"method={method}"])):
        assert others(place, field, value), place
