"""What the clip did is told with noise, a clip follows the updates, and a server's rate goes with the clip."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import edgefr
from cloud.rule import STEP, AggregationSettings
from edgefr.engine.cohort import PACE, ClipTold
from edgefr.simulation.runs.saved_model import open_model
from privacy.errors import InputError
from privacy.mechanism import Noise
from tests.cli.commands import ROOT

SMALL = ("method=fedmf", "model.dim=4", "rounds=8", "clients_per_round=1.0", "evaluation.every=100")
DATA = ("data_options.users=200", "data_options.items=160", "data_options.interactions=12")
CALM = (
    "fleet={dropout: 0, availability: null, battery: null, share: {laptop_x86: 1.0}, rounds: {over_select: 1.0}}",
    "privacy.mechanism=gaussian",
)
NORMS = np.array([0.5, 2.0, 4.0])


def run(folder: Path, *more: str) -> edgefr.Run:
    experiment = edgefr.load_experiment(overrides=[*SMALL, *DATA, *CALM, *more])
    return edgefr.simulate(experiment, ROOT / "devices.yaml", out=folder, bundles=False)


def test_a_round_tells_how_many_were_shortened_and_what_was_kept() -> None:
    told = ClipTold()
    told.see(NORMS, 0, None, 1.0)
    told.tell(1.0, [], None)
    assert told.told == pytest.approx([2.0, 1.0 + 0.5 + 0.25])
    facts = told.facts(None, 1.0)
    assert facts is not None
    assert facts[:4] == pytest.approx((2 / 3, 1.75 / 3, 0.0, 1.0))


def test_on_a_grid_each_client_tells_whole_steps_and_no_more_than_a_twentieth_of_the_clip() -> None:
    told, noise = ClipTold(), Noise("discrete-gaussian", 1.0, 1 / 64)
    told.see(NORMS, 0, noise, 1.0)
    assert (told.open * 64).tolist() == [3 + 3, 3 + 1 + 0]  # of 64 / 20 = 3.2 steps
    told.tell(1.0, [np.array([2 / 64, -1 / 64])], None)
    assert told.told == pytest.approx([8 / 3.2, 3 / 3.2])
    facts = told.facts(noise, 1.0)
    assert facts is not None
    assert facts.std == pytest.approx(20 / 3)


def test_shares_are_of_all_who_took_part_so_that_nobody_is_told_who_failed() -> None:
    found = []
    for norms, failed in ((NORMS, 0), (NORMS[:2], 1)):
        told = ClipTold()
        told.see(norms, failed, None, 1.0)
        told.tell(1.0, [], 0.5)
        found.append(told)
    assert [told.uploads for told in found] == [3, 3]
    assert found[1].told == pytest.approx([1.0, 1.5])


def test_a_server_that_sees_no_norms_is_told_nothing() -> None:
    told = ClipTold()
    told.tell(1.0, [np.array([5.0, 5.0])], 0.5)
    assert (told.facts(None, 1.0), told.scale) == (None, 1.0)


def test_the_clip_goes_toward_the_quantile_and_never_above_the_largest() -> None:
    told = ClipTold()
    told.see(NORMS, 0, None, 1.0)  # one in three is whole, so it should be longer, and may not be
    told.tell(1.0, [], 0.5)
    assert told.scale == 1.0
    told.see(NORMS / 10, 0, None, 1.0)  # all are whole
    told.tell(1.0, [], 0.5)
    assert told.scale == pytest.approx(math.exp(-PACE * 0.5))
    told.see(NORMS / 10, 0, None, 1.0)
    told.tell(1.0, [np.array([1e6, 0.0])], 0.5)  # noise that says that nobody is
    assert told.scale == pytest.approx(1.0)


def test_without_noise_a_run_tells_exactly_what_the_clip_did(tmp_path: Path) -> None:
    told = run(tmp_path / "told", "privacy.clip=0.3", "privacy.epsilon=inf").summary["privacy"]["clip"]
    exact = run(tmp_path / "exact", "privacy.clip=0.3", "privacy.mechanism=none").summary["privacy"]["clip"]
    assert 0.2 < told["clipped_share"] == exact["clipped_share"] < 1.0
    assert told["kept_length"] == pytest.approx(exact["kept_length"])
    assert told["std"] == 0.0


def test_a_clip_that_follows_comes_down_to_the_updates(tmp_path: Path) -> None:
    found = run(tmp_path / "run", "privacy.clip=10", "privacy.clip_quantile=0.5", "privacy.epsilon=inf", "rounds=12")
    clip = found.summary["privacy"]["clip"]
    assert 0.3 * clip["p90_norm"] < clip["last"] < 1.2 * clip["p90_norm"] < 2.0


def test_noise_does_not_make_a_clip_longer(tmp_path: Path) -> None:
    found = run(tmp_path / "run", "privacy.clip=0.02", "privacy.clip_quantile=0.9", "privacy.sigma=200")
    assert found.summary["privacy"]["clip"]["last"] <= 0.02


def moved(found: edgefr.Run) -> Any:
    return open_model(found).model.shared["item"]


def test_with_a_rate_that_goes_with_the_clip_a_model_is_the_same_under_any_clip_that_shortens_all(
    tmp_path: Path,
) -> None:
    """A power of two between the clips leaves every product as it was."""
    found = [
        moved(run(tmp_path / str(clip), f"privacy.clip={clip}", "privacy.epsilon=inf", "aggregation.server_lr=auto"))
        for clip in (2**-9, 2**-10)
    ]
    np.testing.assert_allclose(found[0], found[1], rtol=1e-5, atol=1e-6)
    assert AggregationSettings(server_lr="auto").under(0.25).rate == STEP / 0.25


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (("aggregation.server_lr=auto", "privacy.mechanism=none"), "set privacy.clip, or a number"),
        (("privacy.clip=1", "privacy.sigma=1", "privacy.trust=local", "privacy.clip_quantile=0.5"), "trust to central"),
        (("privacy.sigma=1", "privacy.clip_quantile=0.5"), "set clip"),
        (
            (
                "privacy.clip=1",
                "privacy.sigma=1",
                "privacy.apart=2",
                "privacy.correlated=true",
                "privacy.clip_quantile=0.5",
            ),
            "drop clip_quantile",
        ),
    ],
)
def test_what_cannot_go_together_is_refused(more: tuple[str, ...], message: str) -> None:
    with pytest.raises(InputError, match=message):
        edgefr.load_experiment(overrides=[*SMALL, *CALM, *more])


def test_a_run_that_shows_its_clip_alone_says_so_first_and_on_its_page(tmp_path: Path) -> None:
    found = run(tmp_path / "run", "privacy.clip=0.001", "privacy.epsilon=50")
    said = "this run shows clipping, not privacy"
    page = (found.path / "report.html").read_text(encoding="utf-8")
    assert said.capitalize() in page
    loud = run(tmp_path / "loud", "privacy.clip=0.001", "privacy.epsilon=50", "aggregation.server_lr=auto")
    assert said.capitalize() not in (loud.path / "report.html").read_text(encoding="utf-8")
