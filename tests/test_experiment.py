"""The experiment: where values come from, and that it survives a file."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import settings as limits
from hypothesis import strategies as st

from edgefr.data.splits.leave_one_out import CrossDomain, LeaveOneOut
from edgefr.experiment.experiment import Change, Experiment, load_experiment
from edgefr.experiment.method import METHODS
from edgefr.experiment.unread_settings import unread
from edgefr.simulation.runs.run import Run
from edgefr.simulation.simulate import fleet_overrides
from privacy.errors import InputError

ROOT = Path(__file__).resolve().parents[1]


def test_another_method_starts_from_its_own_settings_and_keeps_the_rest() -> None:
    first = load_experiment(overrides=["method=fedmf", "model.dim=4", "rounds=3"])
    other = load_experiment(first, ["method=pfedrec"])
    assert (other.rounds, other.model) == (3, load_experiment(overrides=["method=pfedrec"]).model)
    assert load_experiment(first, ["method=pfedrec", "model.dim=5"]).model["dim"] == 5
    assert load_experiment(first, method="fedncf").model == load_experiment(overrides=["method=fedncf"]).model
    assert load_experiment(first, ["method=fedmf", "rounds=4"]).model["dim"] == 4, "it is the same method"


def test_strongest_last_defaults_method_file_set_options(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text("method: fedmf\nrounds: 7\nseed: 3\nbatch_size: 9\n")
    made = load_experiment(file, ["rounds=8", "seed=4"], seed=5, data=None)
    assert (made.batch_size, made.rounds, made.seed, made.data) == (9, 8, 5, "demo")
    assert made.clients_per_round == METHODS["fedmf"].defaults["clients_per_round"]
    assert load_experiment().rounds == METHODS["transfr"].ours["rounds"]
    assert load_experiment(fidelity="paper").rounds == METHODS["transfr"].defaults["rounds"]
    assert load_experiment(overrides=["rounds=8", "rounds=9"]).rounds == 9


def test_set_changes_one_field_of_a_section_and_leaves_its_defaults() -> None:
    plain, changed = load_experiment(), load_experiment(overrides=["encoder.distill.steps=2", "protocol.negatives=9"])
    assert changed.encoder.distill is not None
    assert changed.encoder.distill.steps == 2
    assert changed.encoder.distill.model_copy(update={"steps": 150}) == plain.encoder.distill
    assert changed.protocol == LeaveOneOut(negatives=9)
    assert load_experiment(overrides=["privacy.clip=0.5"]).privacy.clip == 0.5


def test_set_builds_on_what_the_file_says(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text("protocol: {name: cross-domain, source: books, target: films}\nencoder: {encode: {pooling: cls}}\n")
    made = load_experiment(file, ["protocol.negatives=9", "encoder.distill.steps=2"])
    assert made.protocol == CrossDomain(source="books", target="films", negatives=9)
    assert made.encoder.encode.pooling == "cls"
    assert made.encoder.distill is not None
    assert made.encoder.distill.hidden == load_experiment().encoder.distill.hidden
    assert load_experiment(file, ["encoder.distill=null"]).encoder.distill is None


@pytest.mark.parametrize("file", sorted((ROOT / "experiments").glob("*.yaml")), ids=lambda p: p.name)
def test_the_recipes_are_valid_and_complete(file: Path) -> None:
    made = load_experiment(file)
    assert made.name == file.stem
    assert Experiment.model_validate(made.model_dump()) == made


@given(
    st.fixed_dictionaries(
        {
            "rounds": st.integers(0, 50),
            "clients_per_round": st.floats(0.01, 1.0) | st.integers(2, 500).map(float),
            "seed": st.integers(0, 2**31 - 1),
            "evaluation": st.fixed_dictionaries({"k": st.lists(st.integers(1, 50), min_size=1, max_size=3)}),
            "protocol": st.sampled_from(
                [{"name": "leave-one-out"}, {"name": "cross-domain", "source": "a", "target": "b"}]
            ),
            "privacy": st.sampled_from(
                [
                    {},
                    {"mechanism": "gaussian", "clip": 0.1, "epsilon": float("inf")},
                    {"mechanism": "laplace", "scale": 0.3},
                ]
            ),
            "model": st.sampled_from([{}, {"user_encoder": "mean"}, {"lr": 1e-30}]),
            "data_options": st.dictionaries(
                st.text("abc", min_size=1), st.integers() | st.text(max_size=5), max_size=2
            ),
        }
    )
)
@limits(max_examples=40, deadline=None)
def test_a_written_experiment_reads_back_the_same(tmp_path_factory: pytest.TempPathFactory, values: dict) -> None:
    made = Experiment.model_validate(values)
    run = Run(tmp_path_factory.mktemp("run"))
    run.write_experiment(made)
    assert run.experiment == made
    text = (run.path / "experiment.yaml").read_text()
    written, unused = yaml.safe_load(text), {path[0] for path in unread(made) if len(path) == 1}
    assert set(written) == set(Experiment.model_fields) - unused, "every value that is read is written out"
    run.write_experiment(run.experiment)
    assert (run.path / "experiment.yaml").read_text() == text


@given(st.floats(0.001, 1.0) | st.integers(2, 10**6).map(float), st.integers(1, 10**5))
@limits(max_examples=100, deadline=None)
def test_a_cohort_is_somebody_and_at_most_everybody(asked: float, clients: int) -> None:
    size = Experiment.model_validate({"clients_per_round": asked}).cohort_size(clients)
    assert 1 <= size <= clients
    if asked <= 1:
        assert size == max(1, round(asked * clients))
    else:
        assert size == min(clients, int(asked))


def test_every_field_says_what_it_is() -> None:
    def check(model: type, at: str) -> None:
        for name, field in model.model_fields.items():
            assert field.description or name == "name", f"{at}{name}"
            if hasattr(field.annotation, "model_fields"):
                check(field.annotation, f"{at}{name}.")

    check(Experiment, "")


def test_fleet_values_go_to_their_sections() -> None:
    made = load_experiment(overrides=["fleet.dropout=0.2", "fleet.rounds.policy=first_k"])
    assert fleet_overrides(made) == {"fleet": {"dropout": 0.2}, "rounds": {"policy": "first_k"}}
    assert fleet_overrides(load_experiment()) == {}


def test_an_unknown_method_in_a_file_has_its_line(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text("rounds: 3\nmethod: fedfm\n")
    with pytest.raises(InputError, match=r"mine.yaml:2: unknown method 'fedfm'; did you mean 'fedmf'"):
        load_experiment(file)


def test_a_new_strategy_brings_its_own_server_rule(tmp_path: Path) -> None:
    """Every run's file writes `aggregation` in full; another strategy may not inherit it."""
    written = tmp_path / "run.yaml"
    values = load_experiment(overrides=["method=f3crec"]).model_dump()
    written.write_text(yaml.safe_dump(values))
    rule = lambda *overrides: load_experiment(written, overrides).aggregation  # noqa: E731
    assert rule().rule == "temporal-mean"
    assert rule("strategy=ft").rule == "mean"
    assert rule("strategy=f3crec-no-itemwise").itemwise is False
    assert rule("strategy=ft", "aggregation.rule=median").rule == "median"
    written.write_text(yaml.safe_dump(values | {"aggregation": {"rule": "krum"}}))
    assert rule("strategy=ft").rule == "krum"


@pytest.mark.parametrize(
    ("overrides", "problem"),
    [
        (["method=f3crec", "evaluation.every=40"], "only every 40th round is measured"),
        (["method=f3crec", "evaluation.full_ranking_users=0"], "full ranking"),
        (["method=fedmf", "aggregation.rule=temporal-mean"], "protocol.name=blocks"),
    ],
)
def test_what_blocks_cannot_do_is_said(overrides: list[str], problem: str) -> None:
    with pytest.raises(InputError, match=problem):
        load_experiment(overrides=overrides)


def test_blocks_are_measured_alike_whatever_the_method() -> None:
    assert load_experiment(overrides=["method=fedmf", "protocol.name=blocks"]).evaluation.k == [20]


def test_a_null_that_was_given_is_an_answer(tmp_path: Path) -> None:
    """What a method starts from takes the place of what is left out, not of a null, which a run may have written."""
    file = tmp_path / "mine.yaml"
    file.write_text("model: {head_lr: null}\nevaluation:\n")
    made = load_experiment(file)
    assert made.model["head_lr"] is None
    assert made.evaluation.every == METHODS["transfr"].ours["evaluation"]["every"]
    assert load_experiment().model["head_lr"] == METHODS["transfr"].ours["model"]["head_lr"]


def test_what_a_method_starts_from_gives_way_to_what_is_asked() -> None:
    """TransFR starts from an Adam on the server and a softmax at a temperature, which other choices do not read."""
    assert load_experiment(overrides=["aggregation.rule=median"]).aggregation.rule == "median"
    assert load_experiment(overrides=["aggregation.optimiser=sgd"]).aggregation.optimiser == "sgd"
    assert load_experiment(overrides=["model.loss=bpr"]).model["temperature"] == 1.0
    with pytest.raises(InputError, match="optimiser_lr"):
        load_experiment(overrides=["aggregation.optimiser=sgd", "aggregation.optimiser_lr=0.5"])
    lora = load_experiment(overrides=["model.client=lora"])
    assert (lora.aggregation.optimiser, lora.model["head_lr"], lora.model["loss"]) == ("sgd", None, "softmax")


@pytest.mark.parametrize(
    ("told", "value"),
    [
        *((f"data_options.separator={sign}", sign) for sign in ("|", ":", ";", ",", "\t", " ", "-")),
        ("data_options.time=%d/%m/%Y", "%d/%m/%Y"),
        ("data_options.columns.rating=-", "-"),
        ("data_options.columns.user=1", "1"),
        ("data_options.columns.user=Customer: no", "Customer: no"),
        ("data_options.columns.user=null", None),
        ('data_options.separator="|"', "|"),
        ("data_options.columns.time='Bought at'", "Bought at"),
        ("data_options.header=[user,item]", ["user", "item"]),
        ("data_options.positive=4", 4),
        ("name=2024", "2024"),
        ("privacy.clip=1.0", 1.0),
        ("engine.workers=null", None),
    ],
)
def test_a_text_is_taken_as_it_stands(told: str, value: object) -> None:
    """Most signs that stand between columns, patterns of dates and "-" are no YAML, or mean something else there."""
    found = Change.parse(told).value
    assert found == value
    assert type(found) is type(value)
