"""Where both ways to make step times are known, the fleet's table says how far apart they are."""

from edgefr.experiment.experiment import load_experiment
from edgefr.report.fleet import fleet_table
from edgefr.simulation.simulate import fleet_overrides

PART = {"clients": 1, "invited": 1, "contributed": 1, "failures": {}}
FLEET = {"classes": {}, "policy": "deadline", "rounds": 1, "virtual_hours": 1.0, **PART}


def test_the_caption_tells_mode_and_disagreement():
    steps = {"a": {"ratio": 0.25}, "b": {"ratio": 1.5}}
    told = fleet_table(FLEET | {"cost": {"mode": "host-ratio", "host": None, "steps": steps}}).caption
    assert told.endswith(
        "step times: host-ratio; a measured host, scaled, says 0.25 to 1.5 times the analytic model's step"
    )
    same = {"a": {"ratio": 0.3281}, "b": {"ratio": 0.3279}}
    told = fleet_table(FLEET | {"cost": {"mode": "analytic", "host": None, "steps": same}}).caption
    assert told.endswith("step times: analytic; a measured host, scaled, says 0.33 times the analytic model's step")


def test_nothing_is_said_where_only_one_is_known():
    for cost in ({}, {"cost": {"mode": "analytic", "host": None, "steps": {}}}):
        assert "step times" not in fleet_table(FLEET | cost).caption


def test_an_experiment_reaches_the_sections_beside_the_fleet():
    asked = ["fleet.cost.mode=host-ratio", "fleet.cost.calibration=c.json", "fleet.rounds.policy=async"]
    found = fleet_overrides(load_experiment(overrides=[*asked, "fleet.dropout=0.0"]))
    assert found == {
        "fleet": {"dropout": 0.0},
        "rounds": {"policy": "async"},
        "cost": {"mode": "host-ratio", "calibration": "c.json"},
    }
