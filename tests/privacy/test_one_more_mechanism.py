"""A mechanism is one file: this one adds its own, runs it, and takes it away; without an entry a name runs nothing."""

import json
import math
from typing import ClassVar, Literal

import numpy as np
import pytest
from pydantic import Field, ValidationError

import edgefr
from edge.learning import ReleaseRecord
from edgefr import load_experiment
from privacy.errors import InputError
from privacy.guarantee import Event
from privacy.ledger import Ledger
from privacy.mechanism import MECHANISMS, ORDERS, Additive, Noise, Simulated, law_of
from privacy.settings import NoiseSettings, PrivacySettings
from tests.noises import noise_per_client

NOISE = {"mechanism": "staircase", "trust": "local", "clip": 1.0, "norm": "l1", "sigma": 2.0}


class StaircaseSettings(NoiseSettings):
    """Noise of two values, as far as this test goes."""

    mechanism: Literal["staircase"] = "staircase"
    gamma: float = Field(0.5, gt=0, lt=1, description="width of a stair")


class Staircase(Additive):
    name, settings, citation = "staircase", StaircaseSettings, "Geng & Viswanath 2014"
    trusts, guarantees, unknown = ("local",), True, "all but its pure epsilon"
    on_device, symbol, without_clip = False, "s", "unclipped"
    samplers: ClassVar = {
        "float": Simulated(lambda noise, counts, draw: noise.scale * counts * draw.choice([-1, 1], counts.shape), None)
    }

    def std(self, noise: Noise) -> float:
        return noise.scale

    def scale_of(self, std: float) -> float:
        return std

    def curve(self, event: Event) -> np.ndarray:
        return np.full(len(ORDERS), 1.0 / event.multiplier)

    def pure(self, event: Event) -> float:
        return 1.0 / event.multiplier


@pytest.fixture
def staircase():
    with MECHANISMS.having(Staircase()) as entry:
        yield entry


def test_a_run_with_a_mechanism_of_ones_own(staircase, tmp_path):

    values = ["method=fedmf", "data_options={users: 50, items: 160}", "rounds=2", "evaluation.full_ranking_users=0"]
    changes = [*values, *(f"privacy.{key}={value}" for key, value in NOISE.items()), "privacy.gamma=0.25"]
    experiment = load_experiment(overrides=changes)
    again = load_experiment(overrides=[f"privacy={json.dumps(experiment.privacy.model_dump())}"])
    assert again.privacy == experiment.privacy
    run = edgefr.simulate(experiment, out=tmp_path / "run", bundles=False, page=False)
    report = run.summary["privacy"]
    assert [report["noise"][part] for part in ("mechanism", "std", "where")] == ["staircase", 2.0, "each upload"]
    assert report["eps_guaranteed"] == pytest.approx(2 * 1.0)
    ledger = run.read_ledger(report)
    assert {event.mechanism for event in ledger.events} == {"staircase"}


def test_it_runs_where_it_may(staircase):
    with pytest.raises(ValidationError, match="staircase cannot run under trust central: set trust to local"):
        PrivacySettings(**{**NOISE, "trust": "central"})
    with pytest.raises(ValidationError, match="sampler grid draws no staircase noise: set sampler to float"):
        PrivacySettings(**NOISE, sampler="grid", grid_exponent=-4)
    with pytest.raises(InputError, match="no keyed draws of single clients"):
        noise_per_client("staircase", 1.0, [1], 2)
    with pytest.raises(ValidationError, match="staircase noise is not drawn on a device"):
        ReleaseRecord(clip=1.0, norm="l1", noise="staircase", scale=1.0, weights="uniform")
    with pytest.raises(ValidationError, match="gamma belongs to staircase, and mechanism is laplace"):
        PrivacySettings(**{**NOISE, "mechanism": "laplace", "gamma": 0.1})


@pytest.mark.parametrize("part", ["samplers", "on_device", "symbol", "without_clip", "citation", "trusts", "unknown"])
def test_a_mechanism_that_says_too_little_is_not_registered(part):
    said = {name: value for name, value in vars(Staircase).items() if name != part and not name.startswith("_")}
    entry = type("Silent", (Additive,), said)()
    with pytest.raises(TypeError, match=f"a mechanism says its {part}, and Silent does not"):
        MECHANISMS.register(entry)
    assert "staircase" not in MECHANISMS


def test_a_name_alone_runs_nothing():
    """The fault this table was made for: a name in a list drew Laplace noise and called it so."""

    class Listed(NoiseSettings):
        mechanism: Literal["staircase"] = "staircase"

    for make in (
        lambda: PrivacySettings(**NOISE),
        lambda: Listed(trust="local", clip=1.0, sigma=2.0),
        lambda: Noise("staircase", 1.0),
        lambda: Event("staircase", multiplier=1.0),
        lambda: law_of("staircase"),
        lambda: load_experiment(overrides=["privacy.mechanism=staircase", "privacy.clip=1", "privacy.sigma=1"]),
        lambda: ReleaseRecord(clip=1.0, norm="l1", noise="staircase", scale=1.0, weights="uniform"),
    ):
        with pytest.raises((InputError, ValidationError), match="unknown mechanism 'staircase'"):
            make()
    with pytest.raises(ValidationError, match="unknown mechanism 'unclipped'"):
        PrivacySettings(mechanism="unclipped")


def test_a_ledger_of_a_mechanism_nobody_knows_is_not_read():
    ledger = Ledger(2, delta=1e-5, adjacency="zero-out")
    with MECHANISMS.having(Staircase()):
        ledger.spend([0], Event("staircase", "l1", 4.0))
        state = ledger.state_dict()
        assert math.isfinite(ledger.worst()[0].epsilon)
    with pytest.raises(InputError, match="unknown mechanism 'staircase'"):
        Ledger(2, delta=1e-5, adjacency="zero-out").load_state_dict(state)
