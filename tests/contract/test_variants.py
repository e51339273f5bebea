"""Every method in every shape keeps the contract: in bulk, alone, padded, in a bundle, and on a device."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from edgefr.engine.executors import inline
from edgefr.experiment.method import METHODS
from edgefr.methods.testing.battery import check_method
from tests.contract import bundles, programs, session_bundles, sessions
from tests.mostly_slow import mostly_slow

VARIANTS = [*programs.VARIANTS, *sessions.VARIANTS]
SHIPPED = {*bundles.SHIPPED, *session_bundles.SHIPPED}
QUICK = ["fedmf", "fcf", "transfr mean by softmax", "fcucr", "anchored fedmf", "gpfedrec"]


def test_every_method_of_the_table_has_a_variant() -> None:
    named = [name for name, _ in (*programs.VARIANTS.values(), *sessions.VARIANTS.values())]
    assert {METHODS[name].build for name in named} == {row.build for row in METHODS.values() if row.central is None}
    reading = {name for name, row in METHODS.items() if row.reads != "items"}
    assert {name for name, _ in sessions.VARIANTS.values()} == reading


@pytest.mark.parametrize("variant", mostly_slow(VARIANTS, QUICK))
def test_every_program_keeps_the_contract(variant: str) -> None:
    """`tests/engine/test_processes.py` holds workers to it."""
    local: Any = (sessions if variant in sessions.VARIANTS else programs).program(variant)
    beyond = () if variant in SHIPPED else ("bundle", "device")
    results = check_method(local, skip=["workers", *beyond])
    assert all(result.passed for result in results if result.name in ("bundle", "device") and not beyond)


@pytest.mark.parametrize("variant", sessions.VARIANTS)
def test_every_weight_of_a_sequence_encoder_learns(variant: str) -> None:
    local, everyone = sessions.program(variant), np.arange(sessions.CLIENTS)
    private = sessions.private_of(local, everyone)
    updates = inline.run(sessions.work(local), local.init_shared(3), private, everyone)
    learned: dict[str, torch.Tensor] = {**updates.dense, **{name: rows.values for name, rows in updates.rows.items()}}
    moved = {name for name, value in learned.items() if value.abs().max() > 1e-4}
    assert {"item", *(n for n in local.specs if n.endswith("weight") and n.startswith("enc"))} <= moved
