"""A run of a sweep that was interrupted goes on from its checkpoint, to the same result."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from edgefr.engine.federation import Federation
from edgefr.studies.sweeps.grid import Axis
from edgefr.studies.sweeps.plan import SweepPlan
from edgefr.studies.sweeps.run import RunOptions, Sweep, SweepJob, make
from tests.durable.runs import differences, result
from tests.noises import KEY

SETTINGS = (
    "method=fedmf",
    "clients_per_round=0.5",
    "data_options={users: 40, items: 160, interactions: 12}",
    "model={dim: 4}",
    "evaluation.full_ranking_users=0",
    "privacy={mechanism: gaussian, clip: 0.5, sigma: 4, budget: 1.8}",
)
EVERY = RunOptions(checkpoint_every=1, noise_key=KEY)


@pytest.fixture
def rounds(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The rounds that are done; a number that is put in as negative is one in which Ctrl-C comes, once."""
    done: list[int] = []
    real = Federation.round

    def watched(self: Federation, number: int, *given: object) -> None:
        if -number in done:
            done.remove(-number)
            raise KeyboardInterrupt
        done.append(number)
        real(self, number, *given)  # type: ignore[arg-type]

    monkeypatch.setattr(Federation, "round", watched)
    return done


def job(folder: Path) -> SweepJob:
    plan = SweepPlan([Axis("rounds", (4, 5))], changes=SETTINGS)
    return Sweep(plan, folder, EVERY)._job(plan.points[0], 0)


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What a run comes to that nobody stops."""
    whole = job(tmp_path_factory.mktemp("whole"))
    make(whole, EVERY)
    return result(whole.out)


@pytest.mark.parametrize(
    ("options", "sigma", "again"),
    [(EVERY, "4.0", [3, 4]), (RunOptions(noise_key=KEY), "4.0", [1, 2, 3, 4]), (EVERY, "5.0", [1, 2, 3, 4])],
    ids=["from its checkpoint", "without one", "from one that does not fit"],
)
def test_a_stopped_run_comes_to_the_same_result(
    options: RunOptions, sigma: str, again: list[int], expected: dict[str, Any], tmp_path: Path, rounds: list[int]
) -> None:
    stopped = job(tmp_path)
    rounds.append(-3)
    with pytest.raises(KeyboardInterrupt):
        make(stopped, options)
    assert rounds == [1, 2]
    rounds.clear()
    file = stopped.out / "experiment.yaml"
    file.write_text(file.read_text().replace("sigma: 4.0", f"sigma: {sigma}"))
    make(stopped, options)
    assert rounds == again
    assert differences(stopped.out, expected) == []
    assert not (stopped.out / "figures").exists()
