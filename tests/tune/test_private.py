"""`tune --private`: what is searched at one epsilon, and a literal oracle of what the search would have cost."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import yaml
from scipy.optimize import brentq
from scipy.stats import norm

from edgefr.experiment.experiment import Change, load_experiment
from edgefr.studies.sweeps.grid import Range
from edgefr.studies.tuning.private import FIRST, at_epsilon, level_of, price, private_space, section_of
from edgefr.studies.tuning.rules import Rules
from edgefr.studies.tuning.space import CLIP, RATE, STEP, Base, Space
from edgefr.studies.tuning.trial import ALL, NO_BETTER
from edgefr.studies.tuning.tune import tune
from privacy.errors import InputError
from tests.tune.test_tune import SPACES, here, kept, tuned, write_spaces

__all__ = ["here"]  # trials are made in this process

DELTA = 1e-5
FLOAT = {"mechanism": "gaussian", "clip": 1.0, "epsilon": 8.0, "sampler": "float"}
SPACE = Space("fedmf", {"method": "fedmf", "model.dim": 4, "model.lr": 0.1}, (Range("model.lr", "log", 0.1, 10.0),))


def base(*changes: str) -> Base:
    return Base(None, ("data=demo", *changes), Rules().laid)


def epsilon(mu: float) -> float:
    """Solve delta(epsilon) of mu-GDP, written down here a second time."""

    def missing(eps: float) -> float:
        return norm.cdf(mu / 2 - eps / mu) - math.exp(eps) * norm.cdf(-mu / 2 - eps / mu) - DELTA

    return brentq(missing, 0.0, 200.0, xtol=1e-10)


def record(rounds: int, *ran: tuple[int, str]) -> dict[str, Any]:
    runs = [{"curve": [[1, 0.1], [last, 0.2]], "ended": ended} for last, ended in ran]
    return {"values": {"rounds": rounds, CLIP: 2.0, STEP: 16.0}, "runs": runs}


@pytest.mark.parametrize(
    ("section", "level"),
    [(FLOAT, "user level"), ({"examples": {"clip": 1.0, "epsilon": 8.0}, "delta": DELTA}, "interaction level")],
)
def test_the_price_is_that_of_all_trials_and_the_run_together(section, level):
    """Noise is for epsilon 8 over each one's rounds, so each whole one has the same mu, and a half one half of mu^2."""
    mu = brentq(lambda value: epsilon(value) - 8.0, 0.1, 5.0)
    assert level_of(section) == level
    space = Space("fedmf", {"method": "fedmf", "privacy": section}, ())
    records = [record(20, (20, ALL)), record(40, (20, NO_BETTER)), record(10)]
    for one in records:
        one["values"] = {"rounds": one["values"]["rounds"]}
    chosen = base().of(space, records[0]["values"], 0)
    paid = price(base(), space, records, (1000,), chosen)
    assert paid is not None
    assert paid.trials == 3
    assert paid.whole == pytest.approx(epsilon(mu * math.sqrt(1 + 1 + 0.5 + 1)), rel=1e-4)
    assert paid.whole == pytest.approx(17.5233, abs=1e-3)
    assert paid.more == pytest.approx(paid.whole - 8.0, rel=1e-4)
    assert "would have cost epsilon 9.52 more (3 trials" in str(paid)
    assert str(paid).endswith("on public or generated data nothing")


def test_what_promises_nothing_has_no_price():
    for section in ({}, {**FLOAT, "epsilon": "inf"}):
        space = Space("fedmf", {"method": "fedmf", "privacy": section}, ())
        chosen = base().of(space, {"rounds": 5}, 0)
        assert price(base(), space, [record(5, (5, ALL))], (1000,), chosen) is None


def test_clip_and_rate_are_searched_by_their_product():
    found = private_space(base(), SPACE, at_epsilon({"epsilon": 8}))
    assert [r.field for r in found.ranges] == [CLIP, STEP, "rounds", "model.dim", "model.init_scale"]
    assert "model.dim" not in found.fixed, "what is searched is not fixed"
    experiment = base().of(found, {CLIP: 2.0, STEP: 16.0, "rounds": 7, "model.dim": 3}, 0)
    assert (experiment.aggregation.server_lr, experiment.privacy.clip, experiment.rounds) == (8.0, 2.0, 7)
    assert (experiment.model["dim"], experiment.model["lr"]) == (3, 0.1)
    plain = load_experiment(overrides=["method=fedmf"])
    own = {"rounds": plain.rounds, **{f"model.{name}": plain.model[name] for name in ("dim", "init_scale")}}
    assert found.first[0] == {r.field: own.get(r.field, 1.0) for r in found.ranges}
    assert found.first[1] == {r.field: FIRST[0][r.field] for r in found.ranges}


def test_what_is_set_by_hand_is_held():
    found = private_space(base("rounds=9", "privacy.clip=2"), SPACE, at_epsilon({"epsilon": 8, "clip": 2}))
    assert [r.field for r in found.ranges] == [RATE, "model.dim", "model.init_scale"]
    by_hand = [f"{field}=1" for field in ("rounds", CLIP, RATE, "model.dim", "model.init_scale")]
    with pytest.raises(InputError, match="set by hand; omit some of it"):
        private_space(base(*by_hand), SPACE, at_epsilon({"epsilon": 8}))


def test_ranges_of_the_server_are_kept_and_unread_ones_left_out():
    server = Range("aggregation.optimiser_lr", "log", 0.01, 1.0)
    adam = Space("fedmf", {"method": "fedmf", "aggregation.optimiser": "adam"}, (*SPACE.ranges, server))
    found = private_space(base(), adam, at_epsilon({"epsilon": 8}))
    assert [r.field for r in found.ranges][-1] == server.field
    assert "model.lr" not in [r.field for r in found.ranges]
    plain = private_space(base(), SPACE, {})
    assert [r.field for r in plain.ranges] == [RATE, "rounds", "model.dim", "model.init_scale"]
    assert base().of(plain, {}, 0).privacy.clip is None
    transfr = Space("transfr", {"method": "transfr"}, ())
    assert "model.init_scale" not in [
        r.field for r in private_space(base(), transfr, at_epsilon({"epsilon": 1})).ranges
    ]


def test_interactions_have_ranges_of_their_own():
    section = at_epsilon({"examples": {"clip": 0.5, "sigma": 2.0}}, 4.0)
    assert section == {"examples": {"clip": 0.5, "epsilon": 4.0}}
    found = private_space(base(), SPACE, section)
    assert [r.field for r in found.ranges][:2] == ["privacy.examples.clip", RATE]


def test_the_section_is_what_file_and_changes_ask_for(tmp_path: Path):
    file = tmp_path / "one.yaml"
    file.write_text("privacy: {mechanism: laplace, clip: 1.0, scale: 2.0}\n")
    found = section_of(file, [Change.parse("privacy.delta=0.000001"), Change.parse("rounds=3")])
    assert found == {"mechanism": "laplace", "clip": 1.0, "scale": 2.0, "delta": 1e-6}
    assert at_epsilon(found, math.inf) == {"mechanism": "laplace", "clip": 1.0, "delta": 1e-6, "epsilon": "inf"}


def test_without_an_epsilon_nothing_is_searched(tmp_path: Path):
    spaces = write_spaces(tmp_path / "spaces", SPACES)
    with pytest.raises(InputError, match=r"add --set privacy\.epsilon=8"):
        tuned(spaces, tmp_path / "out", private=True)
    assert not (tmp_path / "out").exists()


def test_screen_page_and_recipe_say_what_it_would_have_cost(tmp_path: Path):
    spaces = write_spaces(tmp_path / "spaces", SPACES)
    out, rules = tmp_path / "out", Rules(trials=3, patience=5)
    small = ["rounds=2", "privacy.epsilon=8", "data_options={users: 60, items: 160, interactions: 12}"]
    found = tune(["fedmf"], spaces=spaces, rules=rules, overrides=small, out=out, private=True)
    said = [
        note for note in found.pages[0].notes if "tuning on these people's own data would have cost epsilon" in note
    ]
    assert len(said) == 1
    assert "(3 trials and one run together" in said[0]
    recipe = (out / "recipes" / "fedmf.yaml").read_text()
    assert "# Tuning on these people's own data would have cost epsilon" in recipe
    values, best = yaml.safe_load(recipe), max(kept(out).values(), key=lambda one: one["value"])["values"]
    assert values["aggregation"]["server_lr"] == pytest.approx(best[STEP] / best[CLIP])
    assert (values["privacy"]["epsilon"], values["rounds"]) == (8, 2)
    assert [one["values"][STEP] for one in kept(out).values()] == [1.0, 16.0, 16.0]
