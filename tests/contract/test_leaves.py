"""A changed setting changes what a run comes to, or is refused; what is refused since nothing reads it is not read.

Here some bases are swept whole, but for what bundles are made of.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from edgefr.experiment.experiment import Change, load_experiment
from edgefr.experiment.method import METHODS
from privacy.errors import InputError
from tests.contract.bases import BASES, CHOICES
from tests.contract.leaves import Sweep, unguarded

SWEPT = ("fedmf", "f3crec", "fcucr", "mf", *CHOICES)
"""Bases whose settings are all changed here: a method over each protocol, a central reference, and the choices."""

SLOW = ("two domains", "smaller students", "distilled", "the history as user", "worker processes")
"""Choices that take too long."""


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in SWEPT if name not in SLOW])
def test_a_setting_that_is_accepted_changes_what_comes_out_and_a_refused_one_is_not_read(
    name: str, tmp_path: Path
) -> None:
    sweep = Sweep(name, tmp_path)
    sweep.leaves = [leaf for leaf in sweep.leaves if not leaf.within(("export",))]  # each makes a bundle
    found = {leaf.name: (leaf, sweep.outcome(leaf)) for leaf in sweep.leaves}
    assert not [outcome.why for _, outcome in found.values() if outcome.kind == "nothing"]
    refused = [change for leaf, one in found.values() if one.kind == "unread" and leaf.own for change in one.asked]
    assert sweep.read_after_all(refused) == []
    assert "changed" in {outcome.kind for _, outcome in found.values()}


def test_every_method_of_the_table_is_a_base() -> None:
    assert {base.values["method"] for base in BASES.values()} == set(METHODS)


def test_every_setting_is_accepted_somewhere_with_another_value(tmp_path: Path) -> None:
    """A sweep that never changes a setting, or is always refused, would find no fault with it."""
    waiting: set[str] = set()
    accepted: set[str] = set()
    for number, name in enumerate(BASES | CHOICES):
        (tmp_path / str(number)).mkdir()
        sweep = Sweep(name, tmp_path / str(number))
        assert not [leaf.name for leaf in sweep.leaves if not leaf.others]
        waiting |= {leaf.name for leaf in sweep.leaves}
        accepted |= {leaf.name for leaf in sweep.leaves if leaf.name not in accepted and sweep.accepts(leaf)}
    # method and backbone say it; plug-ins have them; Ray is asked in tests/engine/test_on_ray.py
    beyond = {"model.encoder", "encoder.distill.terms", "engine.ray_address"}
    assert waiting - accepted == beyond


def test_a_refusal_of_what_is_read_is_found_out(tmp_path: Path) -> None:
    """Were `local_epochs` refused as unread, the sweep would say that it is read."""
    sweep = Sweep("fedmf", tmp_path)
    unread, read = Change("continual.patience", 3, "the change"), Change("local_epochs", 2, "the change")
    (line, *_) = sweep.read_after_all([unread, read])
    assert "local_epochs" in line
    assert sweep.read_after_all([unread]) == []
    with pytest.raises(InputError, match="belongs to protocol"):
        load_experiment(overrides=["method=fedmf", "continual.patience=3"])
    with unguarded():
        assert load_experiment(overrides=["method=fedmf", "continual.patience=3"]).continual.patience == 3


def test_a_setting_without_effect_is_found_out(tmp_path: Path) -> None:
    """A value that says the same in other words counts as nothing."""
    sweep = Sweep("fedmf", tmp_path)
    (leaf,) = (leaf for leaf in sweep.leaves if leaf.name == "fleet.rounds.deadline_s")
    assert sweep.outcome(leaf).kind == "changed"
    assert sweep.outcome(leaf.to([599.0])).kind == "nothing"
