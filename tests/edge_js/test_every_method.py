"""Every method that ships is put to the device in TypeScript: those of the kit, and the others by bundles made here."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from edgefr.experiment.method import METHODS
from edgefr.serving.conformance import check
from edgefr.simulation.bundle_checks import unshippable_method
from tests.conformance import make
from tests.edge_js.conftest import CHROMIUM
from tests.edge_js.test_edge_js import RUNNERS

OVER_SESSIONS = ("model.length=5", "protocol.gap_minutes=40000")
CALM = ("model.init_scale=0.5", "model.lr=0.01")
"""At their own rate rounding grows within 50 steps."""
OTHERS: dict[str, tuple[str, ...]] = {
    "fedlightgcn": ("model.dim=4",),
    **dict.fromkeys(("sasrec", "gru4rec", "tisasrec"), ("model.dim=4", *OVER_SESSIONS, *CALM)),
    **dict.fromkeys(("miasrec", "dmi-gnn", "hearint"), ("model.dim=8", "model.lr=0.003", *OVER_SESSIONS)),
}
"""Methods whose bundles are made here, since the kit is to stay small, and their settings."""
pytestmark = pytest.mark.xdist_group("edge_js")


def test_no_method_that_ships_is_missing() -> None:
    shipping = {name for name, row in METHODS.items() if row.central is None and unshippable_method(row) is None}
    settings = [setting for case in make.CASES.values() for setting in case]
    kit = {one.removeprefix("method=") for one in settings if one.startswith("method=")}
    assert shipping == kit | set(OTHERS)
    assert not kit & set(OTHERS)


@pytest.mark.slow
def test_the_others_answer_as_python_does(built: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kit = tmp_path / "kit"
    (kit / "updates").mkdir(parents=True)
    monkeypatch.setattr(make, "KIT", kit)
    monkeypatch.setattr(make, "CASES", {name: (f"method={name}", *values) for name, values in OTHERS.items()})
    monkeypatch.setattr(sys, "argv", ["make"])
    make.main()
    for where in ("Node", *(["Chromium"] if CHROMIUM is not None else [])):
        found = check(f"node {built}/{RUNNERS[where]}", kit)
        faults = [(where, one.question.case, one.question.what, one.fault) for one in found if one.fault is not None]
        assert faults == [], faults
        assert {one.question.case for one in found} >= set(OTHERS)
