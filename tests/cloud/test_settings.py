import subprocess
import sys

import pytest
from pydantic import BaseModel, ValidationError

from cloud.distillation import DistillSettings
from cloud.fusion import KnowledgeSettings
from cloud.rule import AggregationSettings
from cloud.settings import EncodeSettings, PretrainSettings


@pytest.mark.parametrize(
    "model", [AggregationSettings, DistillSettings, EncodeSettings, KnowledgeSettings, PretrainSettings]
)
def test_every_field_is_described(model: type[BaseModel]) -> None:
    assert all(field.description for field in model.model_fields.values())


def test_heads_must_divide_the_width() -> None:
    with pytest.raises(ValidationError, match="312 is not a multiple of 10"):
        PretrainSettings(heads=10)


def test_importing_the_settings_is_light() -> None:
    loaded = "{'torch', 'transformers'} & set(sys.modules)"
    code = f"import sys, cloud, cloud.settings, cloud.model_folder; print(sorted({loaded}))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == "[]"


@pytest.mark.parametrize("rule", ["median", "trimmed-mean", "norm-bounded", "krum"])
def test_a_robust_rule_does_not_believe_sizes(rule: str) -> None:
    with pytest.raises(ValidationError, match=f"cannot go with rule={rule}: a hostile client could claim any size"):
        AggregationSettings(rule=rule, weights="size")  # type: ignore[arg-type]
    assert AggregationSettings(rule="temporal-mean", weights="size").is_sum


def test_every_round_transfers_and_with_an_interval_the_first_does() -> None:
    assert all(KnowledgeSettings().transfers(number) for number in range(1, 10))
    assert [number for number in range(1, 12) if KnowledgeSettings(interval=5).transfers(number)] == [1, 6, 11]


WRONG = {
    DistillSettings: [
        {"layers": 0},
        {"hiden": 312},
        {"lr": float("nan")},
        {"lr": 0},
        {"steps": 0},
        {"init": "pretrained"},
        {"layers": 2, "layer_weights": [1, 1]},
        {"layers": 1, "layer_weights": [1, -1]},
    ],
    AggregationSettings: [
        {"rule": "average"},
        {"rule": "temporal-mean", "beta": 0},
        {"rule": "temporal-mean", "beta": 1},
        {"rule": "trimmed-mean", "trim": 0.5},
        {"rule": "krum", "byzantine": 0.5},
        {"rule": "norm-bounded", "norm_bound": 0},
        {"rule": "krum", "keep": 0},
        {"optimiser_lr": 0.1},
        {"optimiser": "adam", "server_lr": 0.5},
        {"rule": "graph", "neighbours": 3, "threshold": 0.5},
        {"rule": "graph", "similarity": "cosines"},
    ],
    KnowledgeSettings: [
        {"top_k": 0},
        {"window": 0},
        {"interval": 0},
        {"fusion": "median"},
        {"index": "annoy"},
        {"temperature": 0},
        {"least_clients": 0},
        {"least_clients": 3, "top_k": 2},
    ],
}


@pytest.mark.parametrize(("model", "fields"), [(model, fields) for model, wrong in WRONG.items() for fields in wrong])
def test_what_nothing_could_mend_is_refused(model: type[BaseModel], fields: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        model(**fields)
