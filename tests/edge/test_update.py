"""What leaves a device in a round, made of known changes: no training, no graphs, no bundle."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from edge.learning import Learning
from edge.training import Trained
from edge.update import Change, ClientUpdate, WorkRecord, make, read_update
from edgefr.studies.audits.channels import UploadChannel
from privacy.errors import InputError
from tests.audit.test_checks import VALUES, planned, upload

WORK = Trained({}, {}, 4, 5, None, None)
BUNDLE = "0" * 64


def way(trust: str = "local", **settings: Any) -> UploadChannel:
    """The devices of a run with clip 1 and noise."""
    return upload(planned(trust, **settings))


def changed(learning: Learning, dense: float, row: float, items: list[int]) -> Change:
    """A change whose dense values, and those of some rows, are all alike."""
    change = Change.none(learning)
    rows = {
        name: (np.array(items), np.full((len(items), v.shape[1]), row, np.float32))
        for name, (_, v) in change.rows.items()
    }
    return Change(np.full_like(change.dense, dense), rows)


def made(learning: Learning, change: Change, examples: int = 7) -> tuple[ClientUpdate, WorkRecord]:
    return make(learning, BUNDLE, change, WORK, examples, 3)


def test_without_its_own_noise_an_update_is_the_clipped_change_in_steps() -> None:
    """Under central trust nothing is added, so what leaves is seen as it is: clipped jointly, rounded toward zero."""
    learning = way("central").learning
    step = learning.release.step
    assert step is not None
    for dense, row in ((5.0, 0.0), (0.0, 5.0), (5.0, 5.0), (1e-3, 1e-3)):
        found, record = made(learning, changed(learning, dense, row, [3, 17]))
        values = found.update * step
        whole = changed(learning, dense, row, [3, 17]).whole(learning).astype(float)
        norm = np.linalg.norm(whole)
        expected = whole * min(1.0, 1.0 / norm)
        assert np.linalg.norm(values) <= 1.0
        np.testing.assert_allclose(values, expected, atol=2 * step)
        assert (np.abs(values) <= np.abs(expected)).all(), "rounding is toward zero"
        assert record.clipped == (norm > 1)


@pytest.mark.parametrize("bad", [np.nan, np.inf, 1e7])
@pytest.mark.parametrize("trust", ["central", "local"])
def test_a_diverged_change_leaves_as_none(trust: str, bad: float) -> None:
    learning = way(trust).learning
    found, record = made(learning, changed(learning, bad, 1.0, [3]))
    assert (len(found.update), record.dropped) == (VALUES, True)
    assert found.update.any() == (trust == "local"), "noise and nothing else"


def test_facts_of_a_promised_update_are_its_bundle_and_round() -> None:
    learning = way().learning
    for examples in (0, 6, 60):
        found, _ = made(learning, changed(learning, 1.0, 1.0, [3]), examples)
        assert found.facts() == {"schema": "edgefr.release/2", "bundle": BUNDLE, "round": 3}
        assert list(found.arrays()) == ["update"]
        assert found.update.dtype == np.int32


def test_steps_that_do_not_fit_stop_at_the_ends() -> None:
    """A wrapped value would have the other sign."""
    learning = way("central").learning
    wide = learning.model_copy(update={"release": learning.release.model_copy(update={"clip": 1e6, "step": 2.0**-15})})
    found, _ = made(wide, changed(wide, 9e4, -9e4, [3]))
    ends = np.iinfo(np.int32)
    assert found.update.max() == ends.max
    assert found.update.min() == ends.min


def test_two_updates_of_one_change_differ_in_every_part() -> None:
    learning = way().learning
    one, other = (made(learning, Change.none(learning))[0].update for _ in range(2))
    assert (one != other).mean() > 0.9
    assert (one != 0).mean() > 0.9, "rows that nobody changed are noised too"
    assert len(set(one.tolist())) > len(one) / 2


def test_what_is_promised_is_read_as_whole_steps_and_as_nothing_else() -> None:
    learning = way().learning
    found, _ = made(learning, Change.none(learning))
    assert read_update(found.to_bytes(), learning, BUNDLE).to_bytes() == found.to_bytes()
    for update in (found.update.astype(np.float32), found.update.astype(np.int64), found.update[:-1]):
        with pytest.raises(InputError, match="not a release of this bundle"):
            read_update(ClientUpdate(BUNDLE, 3, update, {}).to_bytes(), learning, BUNDLE)


def test_a_release_whose_header_is_nested_too_deeply_is_refused() -> None:
    """A server reads it only if it has a release's length, which large models' have."""
    deep = b"[" * 90_000 + b"]" * 90_000
    with pytest.raises(InputError, match="not a release of this bundle"):
        read_update(len(deep).to_bytes(8, "little") + deep, way().learning, BUNDLE)
