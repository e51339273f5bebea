import itertools

import pytest

from edgefr.experiment.continual import STRATEGIES
from edgefr.studies.reproductions.f3crec import published, recipes
from edgefr.studies.reproductions.f3crec.exhibits import EXHIBITS
from edgefr.studies.reproductions.f3crec.recipes import Ask, cell, experiment_of, recipe
from edgefr.studies.reproductions.runs import base_of
from privacy.errors import InputError

FIDELITIES = ("released", "paper")


@pytest.mark.parametrize(("data", "backbone"), itertools.product(published.DATA, published.BACKBONES))
def test_every_recipe_is_a_valid_experiment(data, backbone):
    for strategy, fidelity in itertools.product(STRATEGIES, FIDELITIES):
        made = experiment_of(data, backbone, strategy, fidelity, 3)
        assert (made.data, made.backbone, made.strategy, made.fidelity, made.seed) == (
            data,
            backbone,
            strategy,
            fidelity,
            3,
        )
        assert made.protocol.name == "blocks"
        assert made.protocol.min_interactions == (5 if data == "lastfm-2k" else 10)
        assert made.batch_size == 512
        assert made.evaluation.k == [20]


@pytest.mark.parametrize("exhibit", EXHIBITS)
def test_every_cell_is_a_valid_experiment(exhibit):
    ask = Ask("released", [0], {"rounds": 2})
    for data in EXHIBITS[exhibit].data:
        cells = EXHIBITS[exhibit].cells(ask, data)
        assert {c.experiment(0).rounds for c in cells} == {2}
        assert len({c.folder(0) for c in cells}) == len(set(cells))


def test_later_rules_win_and_f3crec_speaks_for_its_ablations(monkeypatch):
    rules = (
        {"set": {"rounds": 1, "batch_size": 7}},
        {"for": {"data": "ml-100k"}, "set": {"rounds": 2}},
        {"for": {"backbone": ["fedmf"], "strategy": "f3crec"}, "set": {"rounds": 3}},
        {"for": {"strategy": "f3crec-no-client"}, "set": {"rounds": 4}},
        {"for": {"fidelity": "paper"}, "set": {"batch_size": 8}},
    )
    monkeypatch.setattr(recipes, "_rules", lambda: rules)
    assert recipe("lastfm-2k", "fedncf", "ft", "released") == {"rounds": 1, "batch_size": 7}
    assert recipe("ml-100k", "fedncf", "f3crec", "paper") == {"rounds": 2, "batch_size": 8}
    assert recipe("ml-100k", "fedmf", "f3crec-no-server", "released")["rounds"] == 3
    assert recipe("ml-100k", "fedmf", "f3crec-no-client", "released")["rounds"] == 4
    assert recipe("ml-100k", "fedmf", "ft", "released")["rounds"] == 2


def test_a_value_of_the_recipe_is_no_other_cell():
    known = recipe("ml-100k", "fedmf", "f3crec", "released")
    plain = cell("ml-100k", "fedmf", "f3crec", "released")
    assert (
        cell("ml-100k", "fedmf", "f3crec", "released", {"continual.kd_weight": known["continual.kd_weight"]}) == plain
    )
    other = cell("ml-100k", "fedmf", "f3crec", "released", {"continual.kd_weight": 1e-5})
    assert other != plain
    assert other.experiment(0).continual.kd_weight == 1e-5
    assert other.folder(0) != plain.folder(0) != plain.folder(1)


def test_another_recipe_is_another_folder(monkeypatch):
    before = cell("ml-100k", "fedmf", "ft", "released").folder(0)
    monkeypatch.setattr(recipes, "_rules", lambda: ({"set": {"rounds": 99}},))
    after = cell("ml-100k", "fedmf", "ft", "released").folder(0)
    assert before != after
    assert before.rsplit("_", 2)[0] == after.rsplit("_", 2)[0] == "ml-100k_released_fedmf_ft"


def test_strategies_of_a_backbone_share_their_base_block():
    ask = Ask("released", [0])
    bases = {
        base_of(c.experiment(0)).model_dump_json() for c in ask.cells("ml-100k", "fedmf", tuple(STRATEGIES)).values()
    }
    assert len(bases) == 1


def test_an_unknown_name_is_refused():
    with pytest.raises(InputError, match="f3crek"):
        experiment_of("ml-100k", "fedmf", "f3crek", "released", 0)
