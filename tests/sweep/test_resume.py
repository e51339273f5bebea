"""A run of a sweep that was interrupted goes on from its checkpoint, to the same result."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgefr.engine.federation import Federation
from edgefr.studies.sweeps.grid import Axis
from edgefr.studies.sweeps.plan import Ask, Plan
from edgefr.studies.sweeps.run import Job, Options, Sweep, make
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
EVERY = Options(checkpoint_every=1, noise_key=KEY)


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


def job(folder: Path, seed: int = 0) -> Job:
    plan = Plan(Ask((Axis("rounds", (4, 5)),), changes=SETTINGS))
    return Sweep(plan, folder, EVERY)._job(plan.points[0], seed)


def interrupted(folder: Path, rounds: list[int], options: Options) -> Job:
    """A job of four rounds that was stopped in its third."""
    rounds.append(-3)
    stopped = job(folder)
    with pytest.raises(KeyboardInterrupt):
        make(stopped, options)
    assert rounds == [1, 2]
    rounds.clear()
    return stopped


def test_from_its_checkpoint_to_the_same_result(tmp_path: Path, rounds: list[int]) -> None:
    make(job(tmp_path / "whole"), EVERY)
    rounds.clear()
    stopped = interrupted(tmp_path / "stopped", rounds, EVERY)
    make(stopped, EVERY)
    assert rounds == [3, 4]
    assert differences(stopped.out, result(job(tmp_path / "whole").out)) == []
    assert not (stopped.out / "figures").exists()


def test_without_a_checkpoint_or_one_that_does_not_fit_it_begins_anew(tmp_path: Path, rounds: list[int]) -> None:
    make(job(tmp_path / "whole"), EVERY)
    expected = result(job(tmp_path / "whole").out)
    rounds.clear()
    stopped = interrupted(tmp_path / "none", rounds, Options(noise_key=KEY))
    make(stopped, EVERY)
    assert rounds == [1, 2, 3, 4]
    assert differences(stopped.out, expected) == []
    rounds.clear()
    stopped = interrupted(tmp_path / "other", rounds, EVERY)
    file = stopped.out / "experiment.yaml"
    file.write_text(file.read_text().replace("sigma: 4.0", "sigma: 5.0"))
    make(stopped, EVERY)
    assert rounds == [1, 2, 3, 4]
    assert differences(stopped.out, expected) == []
