"""What is promised of each client's data stands in a bundle's signed manifest, on its card and in `bundle inspect`."""

import math
from pathlib import Path

import pytest

from edge.bundle import open_bundle
from edge.device import Device
from edge.manifest import Promise
from edgefr.report.bundles import promise_of as in_one_line
from edgefr.report.bundles import sheets
from edgefr.simulation.bundles import export_run, promise_of
from export.bundle import Provenance, Targets, export_bundles
from export.model import Names, TrainedModel
from privacy.accounting import composed
from privacy.guarantee import Event
from privacy.plan import plan
from privacy.settings import PrivacySettings
from tests.export import worlds
from tests.remote import worlds as remote


def promise(**settings: object) -> Promise | None:
    chosen = PrivacySettings.model_validate({"mechanism": "gaussian", "clip": 1.5, "epsilon": 8.0} | settings)
    return promise_of(plan(chosen, rounds=40, cohort=9, clients=12), chosen)


def bundle(folder: Path, promised: Promise | None) -> Path:
    made = worlds.arguments("fedmf", folder)
    names = Names(made["users"], made["item_ids"], made["titles"])
    model = TrainedModel(made["program"], made["shared"], made["private"], names, made["seen"])
    targets = Targets({"laptop": worlds.CLASSES["laptop"]}, {})
    export_bundles(folder, model, targets, Provenance(worlds.CREATED, promise=promised))
    return folder / "laptop"


@pytest.mark.parametrize(("trust", "adjacency", "cohort"), [("local", "replace-one", 1), ("central", "zero-out", 7)])
def test_a_promise_says_what_its_plan_does(trust: str, adjacency: str, cohort: int) -> None:
    promised = promise(trust=trust, at_least=1 if trust == "local" else 7)
    assert promised is not None
    assert (promised.trust, promised.adjacency, promised.cohort) == (trust, adjacency, cohort)
    assert (promised.clip, promised.norm, promised.delta, promised.rounds) == (1.5, "l2", 1e-5, 40)
    event = Event(promised.mechanism, promised.norm, promised.multiplier, promised.steps)
    assert composed([(event, promised.rounds)], promised.delta).epsilon == pytest.approx(promised.epsilon, rel=1e-12)
    assert promised.epsilon == pytest.approx(8.0, rel=1e-4)


@pytest.mark.parametrize(
    "settings",
    [
        {"mechanism": "none"},
        {"mechanism": "none", "clip": 1.0},
        {"mechanism": "gaussian", "clip": 1.0, "epsilon": math.inf},
        {"mechanism": "paper-laplace", "trust": "local", "scale": 0.1},
    ],
)
def test_nothing_is_promised_where_nothing_is_guaranteed(settings: dict[str, object]) -> None:
    chosen = PrivacySettings.model_validate(settings)
    assert promise_of(plan(chosen, 40, 9, 12), chosen) is None


@pytest.mark.parametrize("trust", ["local", "central"])
def test_card_and_inspection_say_what_the_manifest_promises(trust: str, tmp_path: Path) -> None:
    promised = promise(trust=trust)
    assert promised is not None
    folder = bundle(tmp_path, promised)
    opened = open_bundle(folder)
    assert opened.manifest.privacy == promised
    card = (folder / "MODEL_CARD.md").read_text()
    figures = (f"({promised.epsilon:.6g}, 1e-05)", "all 40 rounds", "1.5 long (L2", promised.adjacency, trust)
    figures += (f"{promised.multiplier:.6g}",)
    assert [said for said in figures if said not in card] == []
    assert {"field": "privacy", "value": in_one_line(promised)} in sheets(opened)[0].rows
    assert all(said in in_one_line(promised) for said in ("epsilon 8", "1e-05", "40 rounds", trust, promised.adjacency))


def test_a_card_says_that_nothing_is_promised(tmp_path: Path) -> None:
    folder = bundle(tmp_path, None)
    assert open_bundle(folder).manifest.privacy is None
    assert "There is no guarantee for a client's data" in (folder / "MODEL_CARD.md").read_text()


@pytest.mark.parametrize(
    "change",
    [{"epsilon": math.inf}, {"epsilon": math.nan}, {"multiplier": 0.0}, {"clip": -1.0}, {"delta": 1.0}, {"rounds": 0}],
)
def test_no_promise_has_impossible_figures(change: dict[str, float]) -> None:
    promised = promise()
    assert promised is not None
    with pytest.raises(ValueError, match="Input should be"):
        Promise.model_validate(promised.model_dump() | change)


def test_a_strict_device_takes_what_a_run_promises_and_counts_no_more(tmp_path: Path) -> None:
    """From the settings of a run to its signed bundle, and by the defaults of a new device's policy."""
    settings = {**remote.FEDMF, "privacy.mechanism": "laplace", "privacy.epsilon": 4.0}
    run = remote.simulate(settings, 0, tmp_path / "run")
    promised = open_bundle(run.path / "bundles" / remote.CLASS, trusted=[run.path / "publisher.pem"]).manifest.privacy
    assert promised is not None
    assert (promised.trust, promised.norm, promised.clip, promised.rounds) == ("local", "l1", 1.0, 1)
    assert promised.epsilon == pytest.approx(4.0, rel=1e-3)
    (row,) = export_run(run, with_users=True)
    assert row["policy_needs"] == []
    card = (run.path / "bundles" / remote.CLASS / "MODEL_CARD.md").read_text()
    assert f"({promised.epsilon:.6g}, 1e-05)" in card
    assert "seed" not in card
    device = Device(run.path / "bundles" / remote.CLASS, tmp_path / "state")
    device.learn(device.catalogue.ids[:3])
    assert device.status()["epsilon"] <= promised.epsilon * (1 + 1e-9)
