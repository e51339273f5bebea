"""An entry added to a small table from here is reached by its name, and a name that has no entry is an error."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from pydantic import BaseModel, ValidationError

import edgefr
from cloud.distillation import STARTS, TERMS, DistillSettings, Lesson, Start, Term
from cloud.fusion import KnowledgeSettings
from cloud.index import INDEXES, Index
from cloud.pooling import POOLINGS, Pooling
from cloud.prototypes import KnowledgeBase
from cloud.rule import AggregationSettings
from cloud.settings import EncodeSettings
from edge.learning import ReplayRecord
from edge.replay import PICKS, Picks, ReplayRule
from edgefr.data.splits.session_order import NEGATIVES, STREAMS, SessionNegatives, SessionStream
from edgefr.data.splits.sessions import SessionsProtocol
from edgefr.engine.optimisers import RULES as OPTIMISERS
from edgefr.engine.optimisers import OptimiserRule as OptimiserRule
from edgefr.engine.transfer import Transfer
from edgefr.experiment.continual import STRATEGIES, Strategy
from edgefr.experiment.method import METHODS, Method
from edgefr.fleet.policies import POLICIES, Policy
from edgefr.fleet.spec import CostModel, Rounds
from edgefr.methods.f3crec.block_strategy import Keeping
from edgefr.methods.fcucr.parts import (
    DISTILL_WEIGHTS,
    ENCODERS,
    PROTOTYPE_FORMS,
    TEACHERS,
    Backbone,
    DistillWeight,
    PrototypeForm,
    Teacher,
)
from edgefr.methods.fcucr.settings import FCUCRSettings
from edgefr.methods.gpfedrec.program import GPFedRec
from edgefr.methods.gpfedrec.settings import GPFedRecSettings
from edgefr.methods.transfr.parts import ADAPTER_INITS, CLIENTS, HEADS, AdapterInit, Client, Head
from edgefr.methods.transfr.program import TransFR, build
from edgefr.methods.transfr.settings import TransFRSettings
from edgefr.simulation.bundles import learning_of
from edgefr.simulation.resolve import Releases
from export.candidates import stored
from export.given import Given
from export.program import LocalProgram, Phase
from export.weights import stored_as
from privacy.clip import joint_norms
from privacy.errors import InputError
from privacy.mechanism import MECHANISMS, SAMPLERS, Sampler, Simulated
from privacy.mechanisms.gaussian import Gaussian
from privacy.plan import plan
from privacy.settings import PrivacySettings
from privacy.trust import TRUSTS, Trust
from tests.noises import KEY

SMALL = ["rounds=2", "local_epochs=1", "protocol.negatives=20", "evaluation.k=[5]"]
SIZE = ["data_options={users: 30, items: 100, interactions: 14}"]
SESSIONS = [*SMALL, "data_options={users: 40, items: 110, interactions: 14}", "protocol.gap_minutes=40000"]
BLOCKS = ["method=fedmf", "protocol.name=blocks", "protocol.min_interactions=2", "protocol.increments=1", *SIZE]
FCUCR = ["method=fcucr", "model.dim=4", "model.length=4", "model.hidden=5", "model.init_scale=0.1", *SESSIONS]


def ran(folder: Path, *overrides: str) -> dict[str, Any]:
    made = edgefr.load_experiment(overrides=list(overrides))
    return dict(edgefr.simulate(made, out=folder, bundles=False, page=False).summary)


def test_a_stream_of_ones_own_says_which_session_is_met(tmp_path: Path) -> None:
    backwards = SessionStream("backwards", "the newest first", lambda number, counts: counts - number, False)
    over = ["method=fedmf", "model.dim=4", "protocol.name=sessions", *SESSIONS]
    with STREAMS.having(backwards):
        found = ran(tmp_path / "run", *over, "protocol.stream=backwards")
    assert found["protocol"].endswith("stream backwards: the newest first")
    assert found["sessions"]["stream"] == "backwards"
    assert found["metrics"] != ran(tmp_path / "usual", *over)["metrics"]


def test_negatives_of_ones_own_are_what_targets_are_ranked_against(tmp_path: Path) -> None:
    over = ["method=fedmf", "model.dim=4", "protocol.name=sessions", *SESSIONS]
    all_own = SessionNegatives("all-own", lambda n: f"as {n} of the user's own as there are", True, lambda n: n)
    with NEGATIVES.having(all_own):
        found = ran(tmp_path / "run", *over, "protocol.candidates=all-own")
    assert "as 20 of the user's own as there are" in found["protocol"]
    assert found["references"] != ran(tmp_path / "usual", *over)["references"]


def test_an_optimiser_of_ones_own_trains_and_no_device_is_asked_for_it(tmp_path: Path) -> None:
    def sign(parameter: torch.Tensor, gradient: torch.Tensor, lr: Any) -> None:
        parameter.sub_(gradient.sign() * lr)

    class BySigns(Method):
        def program(self, settings: BaseModel, given: Given) -> LocalProgram:
            program = super().program(settings, given)
            program.phases = tuple(replace(phase, optimiser="sign") for phase in program.phases)
            return program

    mine = BySigns(**(vars(METHODS["fedmf"]) | {"name": "signs"}))
    over = ["model.dim=4", "model.item_lr=0.1", "model.lr=0.1", *SMALL, *SIZE]
    with OPTIMISERS.having(OptimiserRule("sign", sign, moments=False)), METHODS.having(mine):
        found = ran(tmp_path / "run", "method=signs", *over)["metrics"]
        with pytest.raises(InputError, match="unknown optimiser of devices 'sign'"):
            Phase("round", (), (), 1, "sign", {}).moments  # noqa: B018
    assert found != ran(tmp_path / "usual", "method=fedmf", *over)["metrics"]
    with pytest.raises(InputError, match="unknown optimiser 'sign'"):
        OPTIMISERS["sign"]


def test_a_policy_that_does_not_wait_meets_no_sessions(tmp_path: Path) -> None:
    whenever = Policy("whenever", "each when it likes", waits=False, enough=lambda wanted: None)
    with POLICIES.having(whenever), pytest.raises(InputError, match=r"another fleet.rounds.policy than whenever"):
        ran(tmp_path / "run", *FCUCR, "fleet.rounds.policy=whenever", "aggregation.weights=uniform")


def test_picks_of_ones_own_are_replayed(tmp_path: Path) -> None:
    everything = Picks("everything", lambda rule, lists, now, keys: lists >= 0, on_device=False)
    mine = Strategy("mine", "the whole list, drawn", remembers="best", replays="everything")
    with PICKS.having(everything), STRATEGIES.having(mine):
        found = ran(tmp_path / "run", *BLOCKS, *SMALL[:2], "model.dim=4", "strategy=mine", "continual.list_size=3")
        with pytest.raises(ValidationError, match="everything needs what no bundle carries"):
            ReplayRecord(picks="everything", list_size=3, shift_scale=0.0, weight=1.0, reduction="mean")
    kd = ran(tmp_path / "kd", *BLOCKS, *SMALL[:2], "model.dim=4", "strategy=kd", "continual.list_size=3")
    assert found["metrics"] == kd["metrics"]


def test_a_strategy_with_a_keeping_of_ones_own_is_not_shipped_as_another() -> None:
    class Mine(Keeping):
        """Something that no bundle carries."""

    class Own(Strategy):
        def keeping(self) -> type[Keeping]:
            return Mine

    def learns(experiment: edgefr.Experiment) -> object:
        return learning_of(experiment, Releases.of(experiment, Rounds.model_validate({}), 10).plan(experiment))

    over = ["method=fedmf", "protocol.name=blocks"]
    with STRATEGIES.having(Own("mine", "keeps what it likes")):
        assert learns(edgefr.load_experiment(overrides=[*over, "strategy=mine"])) is None
    assert learns(edgefr.load_experiment(overrides=[*over, "strategy=ft"])) is not None


def test_teachers_weights_and_prototypes_of_ones_own_train(tmp_path: Path) -> None:
    received = Teacher("mine", lambda program, tensors, batch: program.features(tensors, batch))
    double = DistillWeight("double", lambda own, apart, most: 2 * most)
    last = PrototypeForm("last", lambda d, n: d, lambda h, real: h[..., -1, :], lambda reply, n: reply.unsqueeze(-2))
    asked = ["model.teacher=mine", "model.distill=double", "model.pooling=last", "model.distill_weight=3"]
    same = ["model.teacher=received_global", "model.distill_weight=6", "model.pooling=last"]
    with TEACHERS.having(received), DISTILL_WEIGHTS.having(double), PROTOTYPE_FORMS.having(last):
        found = ran(tmp_path / "run", *FCUCR, *asked)["metrics"]
        assert found == ran(tmp_path / "same", *FCUCR, *same)["metrics"]
    assert found != ran(tmp_path / "mean", *FCUCR, *same[:2])["metrics"]


def test_an_encoder_of_ones_own_reads_windows(tmp_path: Path) -> None:
    class Plain:
        """Features are the items' own rows."""

        def specs(self) -> dict[str, tuple[int, ...]]:
            return {}

        def init(self, seed: int) -> dict[str, torch.Tensor]:
            return {}

        def encode(self, tensors: Any, x: torch.Tensor, real: torch.Tensor, times: torch.Tensor) -> torch.Tensor:
            return x

    defaults = {**METHODS["sasrec"].defaults, "model": {**METHODS["sasrec"].defaults["model"], "encoder": "plain"}}
    row = replace(METHODS["sasrec"], name="plain", defaults=defaults)
    with ENCODERS.having(Backbone("plain", lambda settings: Plain())), METHODS.having(row):
        found = ran(tmp_path / "run", "method=plain", "model.dim=4", "model.length=4", *SESSIONS)
        with pytest.raises(InputError, match=r"does not say where it drops values: set model.dropout=0"):
            ran(tmp_path / "dropped", "method=plain", "model.dim=4", "model.dropout=0.1", *SESSIONS)
    assert found["method"] == "plain"
    with pytest.raises(InputError, match="unknown method 'plain'"):
        ran(tmp_path / "gone", "method=plain")


def test_parts_of_transfr_of_ones_own_make_its_program() -> None:
    def ones(adapter: dict[str, torch.Tensor], text: torch.Tensor, widths: Any, settings: TransFRSettings) -> None:
        for value in adapter.values():
            value.fill_(1.0)

    half = Head("half", lambda vectors, out: vectors + out / 2, zero=True)
    made: Client = Client("mine", lambda settings, given: TransFR(settings, torch.ones(5, 16), 3), reads=False)
    asked = {"client": "mine", "adapter_init": "ones", "head_form": "half"}
    with ADAPTER_INITS.having(AdapterInit("ones", ones)), HEADS.having(half), CLIENTS.having(made):
        program = build(TransFRSettings.model_validate(asked), None)  # type: ignore[arg-type]
        assert all((value == 1).all() for value in program.init_shared(0).values())
        private = program.init_private(0, torch.arange(2))
        last = max(name for name in private if name.startswith("head") and name.endswith("weight"))
        assert not private[last].any()
        assert program.form.apply(torch.ones(1), torch.ones(1)) == 1.5


def test_a_pooling_of_ones_own_encodes_and_is_traced(tmp_path: Path) -> None:
    from cloud.encode import encode
    from export.encoders import TextEncoders, encoder_of, stage_encoders
    from export.staged_files import Staging
    from tests.export import worlds

    largest = Pooling("largest", lambda states, mask: (states - 1e4 * (1 - mask.unsqueeze(-1).to(states))).amax(-2))
    texts = worlds.titles()
    with POOLINGS.having(largest):
        vectors = encode(worlds.student(), texts, EncodeSettings(pooling="largest", max_tokens=16))
        stage = Staging(tmp_path)
        form = stage_encoders(stage, TextEncoders(worlds.student(), POOLINGS["largest"], 16), texts)["f32"]
    assert form.record.pooling == "largest"
    np.testing.assert_allclose(encoder_of(stage, form.record).encode(texts), vectors, atol=1e-4)
    assert not np.allclose(vectors, encode(worlds.student(), texts, EncodeSettings(max_tokens=16)), atol=0.1)


def test_a_term_and_a_start_of_ones_own_distil() -> None:
    from cloud.batches import tokenise
    from cloud.distill import _lessons, _start, _terms
    from cloud.model_folder import open_config, open_model, open_tokenizer
    from cloud.student import student_config
    from tests.export import worlds

    def length(student: Any, lesson: Lesson, project: Callable[[torch.Tensor], torch.Tensor]) -> list[torch.Tensor]:
        return [project(student.last_hidden_state).square().mean()]

    def halves(settings: DistillSettings, student: Any, teacher: Any, layers: list[int], tokens: Any) -> torch.Tensor:
        return torch.full((student.config.hidden_size, teacher.config.hidden_size), 0.5)

    folder = worlds.student()
    model, config = open_model(folder, "cpu", attention="eager"), open_config(folder)
    tokens, layers = tokenise(open_tokenizer(folder), worlds.titles(), 16), [0, 1]
    sizes = {"layers": 1, "layer_map": [1], "hidden": config.num_attention_heads * 2, "max_tokens": 16}
    with TERMS.having(Term("length", length, projects=True)), STARTS.having(Start("halves", halves)):
        settings = DistillSettings.model_validate({**sizes, "init": "halves", "terms": {"length": 2.0}})
        student, projections = _start(student_config(settings, config), settings, model, layers, tokens)
        assert (projections["length"] == 0.5).all()
        lesson = _lessons(model, tokens, [np.arange(4)], layers, "cpu")(0)
        with torch.no_grad():
            whole, named = _terms(student.eval(), projections, settings, "cpu")(lesson)
            less, _ = _terms(student.eval(), projections, settings.model_copy(update={"terms": {}}), "cpu")(lesson)
        assert float(whole - less) == pytest.approx(2 * float(named["length"]), rel=1e-4)
    with pytest.raises(ValidationError, match="embedding has a setting of its own"):
        DistillSettings(terms={"embedding": 1.0})


def test_an_index_of_ones_own_is_searched() -> None:
    first = Index("first", lambda base, clients, queries, count: [torch.zeros(len(queries), 1, dtype=torch.int64)])
    with INDEXES.having(first):
        base = KnowledgeBase(2, KnowledgeSettings(index="first", top_k=1, fusion="mean"))
        base.add(1, np.array([0, 1]), torch.tensor([[1.0, 0.0], [0.0, 1.0]]))
        assert base.retrieve(np.array([7]), torch.tensor([[0.0, 1.0]])).clients.tolist() == [[0]]


def test_a_trust_of_ones_own_decides_what_is_compared() -> None:
    class Neighbourly(Gaussian):
        trusts = ("central", "neighbours")

    neighbours = Trust("neighbours", False, "replace-one", 2.0, "whoever sees the sum", "a neighbour")
    asked = {"mechanism": "gaussian", "clip": 1.5, "sigma": 1.0}
    with TRUSTS.having(neighbours):
        with pytest.raises(ValidationError, match="gaussian cannot run under trust neighbours"):
            PrivacySettings.model_validate({**asked, "trust": "neighbours"})
        MECHANISMS.unregister("gaussian")
        try:
            with MECHANISMS.having(Neighbourly()):
                found = plan(PrivacySettings.model_validate({**asked, "trust": "neighbours"}), 3, 5, 20)
        finally:
            MECHANISMS.register(Gaussian())
    assert (found.where, found.adjacency, found.sensitivity) == ("the sum", "replace-one", 3.0)


def test_a_sampler_of_ones_own_is_refused_and_no_other_takes_its_place() -> None:
    class Threes(Gaussian):
        samplers: ClassVar = {
            **Gaussian.samplers,
            "threes": Simulated(lambda noise, counts, generator: 3.0 * counts, None),
        }

    asked = {"mechanism": "gaussian", "clip": 1.0, "sigma": 1.0, "sampler": "threes"}
    MECHANISMS.unregister("gaussian")
    try:
        with MECHANISMS.having(Threes()):
            with pytest.raises(ValidationError, match="unknown sampler 'threes'"):
                PrivacySettings.model_validate(asked)
            for on_grid in (False, True):
                with (
                    SAMPLERS.having(Sampler("threes", "not at all", on_grid=on_grid)),
                    pytest.raises(ValidationError, match="sampler threes draws noise of no mechanism here"),
                ):
                    PrivacySettings.model_validate(asked)
    finally:
        MECHANISMS.register(Gaussian())


def test_a_laws_own_way_of_drawing_is_the_one_that_is_used() -> None:
    class Threes(Gaussian):
        samplers: ClassVar = {"float": Simulated(lambda noise, counts, generator: 3.0 * counts, None)}

    MECHANISMS.unregister("gaussian")
    try:
        with MECHANISMS.having(Threes()):
            asked = {"mechanism": "gaussian", "clip": 1.0, "sigma": 1.0, "sampler": "float"}
            noise = PrivacySettings.model_validate(asked).noise(1.0)
            assert noise is not None
            assert noise.of_sum(2, (2,), KEY.stream(0, "test")).tolist() == [6.0, 6.0]
            with pytest.raises(InputError, match="gaussian noise has no keyed draws of single clients"):
                noise.of_clients(KEY.base(0, "test"), [1], 2)
    finally:
        MECHANISMS.register(Gaussian())


NAMED: list[tuple[type[BaseModel], str, str]] = [
    (SessionsProtocol, "stream", "stream"),
    (SessionsProtocol, "candidates", "negatives"),
    (FCUCRSettings, "teacher", "teacher"),
    (FCUCRSettings, "distill", "distill"),
    (FCUCRSettings, "pooling", "pooling"),
    (FCUCRSettings, "encoder", "encoder"),
    (FCUCRSettings, "loss", "loss"),
    (TransFRSettings, "client", "client"),
    (TransFRSettings, "adapter_init", "adapter_init"),
    (TransFRSettings, "head_form", "head_form"),
    (EncodeSettings, "pooling", "pooling"),
    (DistillSettings, "init", "init"),
    (KnowledgeSettings, "index", "index"),
    (PrivacySettings, "trust", "trust"),
]


@pytest.mark.parametrize(("settings", "field", "what"), NAMED)
def test_a_planted_name_is_refused(settings: type[BaseModel], field: str, what: str) -> None:
    with pytest.raises(ValidationError, match=rf"unknown {what} 'planted'.* \(known: "):
        settings.model_validate({field: "planted"})


RULE = ReplayRule("all", 3, 0.0, 1.0, "mean", 0)
LISTS, CLIENT = np.array([[1, 2]], np.int32), np.array([0])


@pytest.mark.parametrize(
    "reach",
    [
        lambda: AggregationSettings().model_copy(update={"weights": "planted"}).by_size,
        lambda: CostModel().model_copy(update={"mode": "planted"}).measured,
        lambda: joint_norms([np.ones((1, 2))], "planted"),  # type: ignore[arg-type]
        lambda: PrivacySettings().model_copy(update={"trust": "planted", "clip": 1.0}).sensitivity,
        lambda: replace(RULE, reduction="planted").replay(LISTS, np.ones((1, 2), np.float32), LISTS > 0),
        lambda: replace(RULE, picks="planted").chosen(LISTS, None, CLIENT, 1),
        lambda: replace(RULE, picks="adaptive").chosen(LISTS, None, CLIENT, 1),
        lambda: stored(np.ones((2, 2), np.float32), "planted"),  # type: ignore[arg-type]
        lambda: Transfer(None, "planted", None, 0),  # type: ignore[arg-type]
        lambda: TransFR(TransFRSettings().model_copy(update={"user_encoder": "planted"}), torch.zeros(5, 16), 1),
        lambda: TransFR(TransFRSettings().model_copy(update={"local_trains": "planted"}), torch.zeros(5, 16), 1),
        lambda: plan(PrivacySettings(), 1, 1, 1, weights="planted"),  # type: ignore[arg-type]
    ],
)
def test_a_name_planted_behind_the_settings_reaches_nothing(reach: Callable[[], object]) -> None:
    with pytest.raises((InputError, KeyError, ValueError), match=r"planted|ranks"):
        reach()


def test_planted_weights_and_tables_reach_nothing(tmp_path: Path) -> None:
    from onnx import helper

    graph = helper.make_model(helper.make_graph([], "empty", [], []))
    with pytest.raises(ValueError, match="not as planted"):
        stored_as("planted", graph, tmp_path)  # type: ignore[arg-type]
    program = GPFedRec(GPFedRecSettings(dim=2).model_copy(update={"recommends": "planted"}), 3, 1)
    with pytest.raises(KeyError, match="planted"):
        program.score({}, None, None, None)  # type: ignore[arg-type]
