"""Every cell of every paper's tables is an experiment with a folder of its own; recipes are rules and rows."""

import itertools

import pytest

from edgefr.experiment.continual import STRATEGIES
from edgefr.experiment.experiment import Change
from edgefr.studies.reproductions.cells import Ask, label_parts
from edgefr.studies.reproductions.f3crec import recipes
from edgefr.studies.reproductions.f3crec.recipes import F3CRecCell, recipe
from edgefr.studies.reproductions.f3crec.tables import BACKBONES
from edgefr.studies.reproductions.papers import PAPERS
from edgefr.studies.reproductions.runs import base_of
from privacy.errors import InputError

EXHIBITS = [
    (paper.name, exhibit.name)
    for paper in PAPERS.values()
    for exhibit in paper.listed
    if exhibit.cells(paper.ask("released", [9]), exhibit.data[0])
    and (paper.name, exhibit.name) != ("fedcar", "figure-5")
]
"""Not there: FedCAR's Figure 5, since GPFedRec's rule refuses noise."""
LISTS = {"evaluation.k": [10, 20, 7]}


@pytest.mark.parametrize(("paper", "exhibit"), EXHIBITS)
def test_every_cell_is_a_valid_experiment_that_a_list_over_every_recipe_reaches(paper, exhibit):
    entry = PAPERS[paper]
    for data in entry.exhibits[exhibit].data:
        plain, found = (list(entry.exhibits[exhibit].cells(entry.ask("released", [9], e), data)) for e in ({}, LISTS))
        for cell in set(found):
            made = cell.experiment(9)
            assert (made.data, made.seed, made.evaluation.k) == (data, 9, [10, 20, 7])
            assert "_k=10-20-7" in cell.label
            assert cell.label.isprintable()
            assert not {*"[]{}, '"} & {*cell.label}
        assert len({cell.folder(9) for cell in found}) == len(set(found)) == len(set(plain))
        assert not {cell.folder(9) for cell in found} & {cell.folder(9) for cell in plain}


@pytest.mark.parametrize("paper", PAPERS)
def test_rounds_over_every_recipe_are_read_but_by_central_rows(paper):
    entry = PAPERS[paper]
    exhibit = entry.exhibits[{"transfr": "table-4", "leaderboard": "leaderboard"}.get(paper, "table-2")]
    cells = exhibit.cells(entry.ask("released", [9], {"rounds": 2}), exhibit.data[0])
    others = {cell.row for cell in cells if ("rounds", 2) not in cell.extra}
    assert others == {
        "fedcar": {"mf-bpr", "mf-bce", "neumf", "ease"},
        "leaderboard": {"mf-bpr", "mf-bce", "neumf", "ease"},
        "transfr": {"pmf", "ncf", "cmf", "emcdr-lin", "emcdr-mlp", "feddcsr"},
    }.get(paper, set())
    assert {cell.experiment(9).rounds for cell in cells if cell.row not in others} == {2}


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("rounds=2", "rounds=2"),
        ("model.lr=0.00001", "lr=1e-05"),
        ("model.keep=-0.5", "keep=-0.5"),
        ("model.head=null", "head=None"),
        ("model.adapter=[128, 32]", "adapter=128-32"),
        ("fleet={dropout: 0.0}", "fleet=dropout-0.0"),
    ],
)
def test_what_differs_is_part_of_a_folders_name(text: str, name: str) -> None:
    change = Change.parse(text)
    assert label_parts([(change.field, change.value)]) == [name]


# F3CRec


@pytest.mark.parametrize("data", PAPERS["f3crec"].exhibits["table-2"].data)
def test_every_recipe_of_f3crec_is_a_valid_experiment(data):
    for backbone, strategy, fidelity in itertools.product(BACKBONES, STRATEGIES, ("released", "paper")):
        made = F3CRecCell(data, strategy, backbone, fidelity).experiment(3)
        assert (made.data, made.backbone, made.strategy) == (data, backbone, strategy)
        assert (made.fidelity, made.seed, made.protocol.name) == (fidelity, 3, "blocks")
        assert made.protocol.min_interactions == (5 if data == "lastfm-2k" else 10)
        assert (made.batch_size, made.evaluation.k) == (512, [20])


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


ASK = PAPERS["f3crec"].ask("released", [0])


def fedmf(strategy: str, ask: Ask = ASK, **extra: object) -> F3CRecCell:
    values = {name.replace("__", "."): value for name, value in extra.items()}
    return ask.cell("ml-100k", strategy, values, "fedmf")


def test_a_value_of_the_recipe_is_no_other_cell():
    known, plain = recipe("ml-100k", "fedmf", "f3crec", "released"), fedmf("f3crec")
    assert fedmf("f3crec", continual__kd_weight=known["continual.kd_weight"]) == plain
    other = fedmf("f3crec", continual__kd_weight=1e-5)
    assert other != plain
    assert other.experiment(0).continual.kd_weight == 1e-5
    assert other.folder(0) != plain.folder(0) != plain.folder(1)


def test_another_recipe_is_another_folder(monkeypatch):
    before = fedmf("ft").folder(0)
    monkeypatch.setattr(recipes, "_rules", lambda: ({"set": {"rounds": 99}},))
    after = fedmf("ft").folder(0)
    assert before != after
    assert before.rsplit("_", 2)[0] == after.rsplit("_", 2)[0] == "ml-100k_released_fedmf_ft"


def test_bases_differ_by_what_happens_in_the_base_block():
    def base(strategy: str = "f3crec", **extra: object) -> str:
        return base_of(fedmf(strategy, **extra).experiment(0)).model_dump_json()

    assert {base(strategy) for strategy in STRATEGIES} == {base()}
    same = {"aggregation__beta": 0.5, "continual__kd_weight": 1.0, "evaluation__keep_blocks": False}
    assert all(base(**{name: value}) == base() for name, value in same.items())
    noise = {"privacy__mechanism": "laplace", "privacy__trust": "local", "privacy__scale": 0.1}
    others = {base(rounds=7), base(**noise), base(model__lr=0.123), base(continual__patience=7), base()}
    assert len(others) == 5


def test_an_unknown_name_is_refused():
    with pytest.raises(InputError, match="f3crek"):
        fedmf("f3crek").experiment(0)
