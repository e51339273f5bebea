"""Whose settings are: what nothing reads is refused, what is refused is not read, and no run writes it down."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from edgefr.experiment.experiment import load_experiment
from edgefr.experiment.method import METHODS
from edgefr.experiment.unread_settings import read_values, unread
from edgefr.simulation.runs.run import Run
from privacy.errors import InputError
from tests.contract.bases import TWO_DOMAINS

ACROSS = ("protocol={name: cross-domain, source: books, target: films}",)
REFUSED = {
    "method=f3crec strategy=ft continual.kd_weight=0.5": "strategy kd or rlp2 or .*, and strategy is ft",
    "method=f3crec strategy=kd continual.shift_scale=0.5": "strategy f3crec or .*, and strategy is kd",
    "method=f3crec strategy=kd continual.reg_weight=0.5": "strategy reg, and strategy is kd",
    "method=f3crec strategy=f3crec continual.proxy_rate=0.5": "strategy spp, and strategy is f3crec",
    "method=fedmf continual.kd_weight=0.5": "protocol blocks, and protocol is leave-one-out",
    "method=fedmf continual.patience=3": "protocol blocks, and protocol is leave-one-out",
    "method=sasrec continual.carry=last": "protocol blocks, and protocol is sessions",
    "method=fedmf evaluation.keep_blocks=true": "protocol blocks, and protocol is leave-one-out",
    "method=fedmf sessions.first_session=true": "protocol sessions, and protocol is leave-one-out",
    "method=f3crec sessions.patience=3": "protocol sessions, and protocol is blocks",
    "method=fedmf knowledge.top_k=3": "none are sent",
    "method=sasrec knowledge.top_k=3": "none are sent",
    "method=fcucr model.prototypes=none knowledge.top_k=3": "none are sent",
    "method=fcucr knowledge.fusion=mean knowledge.temperature=3": "belongs to softmax, and fusion is mean",
    "method=fedmf encoder.teacher=/nope": "methods that read text, and method is fedmf",
    "method=transfr encoder.teacher=/nope": "distill null, and distill is set",
    "method=fedmf encoder.distill.steps=3": "methods that read text, and method is fedmf",
    "method=fcucr encoder.encode.pooling=cls": "methods that read text, and backbone is sasrec",
    "method=transfr encoder.kind=hash encoder.distill=null": "belongs to kind student, and kind is hash",
    "method=transfr encoder.kind=tfidf encoder.teacher=/nope": "belongs to kind student or .*, and kind is tfidf",
    "method=transfr encoder.width=64": "belongs to kind hash or tfidf or .*, and kind is student",
    "method=transfr encoder.pairs=true": "belongs to kind hash or tfidf or .*, and kind is student",
    "method=transfr encoder.kind=hash encoder.words=64": "belongs to kind tfidf or static or .*, and kind is hash",
    "method=transfr encoder.kind=static encoder.distill=null": "belongs to kind student, and kind is static",
    "method=transfr encoder.kind=static model.client=lora": "encoder.kind=static has none; set encoder.kind=student",
    "method=transfr encoder.kind=static export.vocabulary=100": "language models, and encoder.kind is static",
    "method=transfr encoder.kind=tfidf encoder.fit=source": "protocol cross-domain or holdout, and protocol is",
    "method=transfr model.adapter_fit=source": "protocol cross-domain or holdout, and protocol is leave-one-out",
    "method=transfr model.adapter_init=random protocol.name=cross-domain protocol.source=a protocol.target=b "
    "model.adapter_fit=source": "adapter_init pca, and adapter_init is random",
    "method=transfr encoder.kind=hash export.vocabulary=100": "language models, and encoder.kind is hash",
    "method=transfr encoder.kind=hash model.client=lora": "encoder.kind=hash has none; set encoder.kind=student",
    "method=fedmf encoder.kind=hash": "methods that read text, and method is fedmf",
    "method=fedmf export.vocabulary=100": "methods that read text, and method is fedmf",
    "method=fedrap export.min_overlap=0.1": "methods that have bundles, and method is fedrap",
    "method=transfr model.lora_rank=4": "client lora, and client is mlp",
    "method=transfr model.lora_lr=0.5": "client lora, and client is mlp",
    "method=transfr model.adapter_init=random model.adapter_norm=3": "adapter_init pca, and adapter_init is random",
    "method=transfr model.user_encoder=mean model.user_lr=0.5": "user_encoder vector, and user_encoder is mean",
    "method=transfr model.local_training_epochs=0 model.head_lr=0.5": "local_training_epochs is 0",
    "method=sasrec batch_size=9": "methods that learn from sets of items, and method is sasrec",
    "method=gru4rec model.masked=false": "encoder sasrec, and encoder is gru4rec",
    "method=tisasrec model.masked=false": "encoder sasrec, and encoder is tisasrec",
    "method=gru4rec model.heads=2": "encoder sasrec or tisasrec, and encoder is gru4rec",
    "method=sasrec model.spans=3": "encoder tisasrec, and encoder is sasrec",
    "method=sasrec model.distill=clamped": "teacher is none",
    "method=sasrec model.distill_weight=2": "teacher is none",
    "method=sasrec model.hidden=8": "personal true, and personal is false",
    "method=sasrec model.pooling=map": "prototypes is none",
    "method=sasrec model.receiver_noise=1": "prototypes is none",
    "method=fedcar model.negative=none model.margin=2": "negative is none",
    "method=fedcar model.context=0 model.negative=none model.feed_forward=8": "context is 0",
    "method=fedmf fidelity=released": "methods whose released code differs, and method is fedmf",
    "method=fedmf engine.workers=4": "executor processes or ray, and executor is inline",
    "method=fedmf engine.shard_size=8 engine.memory_mb=32": "shard_size null, and shard_size is 8",
}


@pytest.mark.parametrize("asked", REFUSED)
def test_a_setting_that_nothing_reads_is_refused_with_its_owner(asked: str) -> None:
    overrides = asked.split()
    load_experiment(overrides=overrides[:-1])  # all but the last is well
    with pytest.raises(InputError, match=REFUSED[asked]) as caught:
        load_experiment(overrides=overrides)
    name = overrides[-1].partition("=")[0]
    assert str(caught.value).startswith(f"--set {overrides[-1]}: {name}: ")


@pytest.mark.parametrize("method", METHODS)
def test_a_run_writes_down_what_is_read_and_reads_it_back(method: str, tmp_path: Path) -> None:
    made = load_experiment(overrides=[f"method={method}", *(ACROSS if method in TWO_DOMAINS else ())])
    run = Run(tmp_path)
    run.write_experiment(made)
    written = yaml.safe_load((tmp_path / "experiment.yaml").read_text())
    for path in unread(made):
        at = written
        for name in path:
            at = at.get(name, {}) if isinstance(at, dict) else {}
        assert at == {}, path
    assert run.experiment == made
    older = tmp_path / "older.yaml"  # of a time when every setting was written
    older.write_text(yaml.safe_dump(made.model_dump()))
    assert load_experiment(older) == made
    assert read_values(load_experiment(older)) == written


def test_what_a_method_starts_from_goes_where_nothing_reads_it(tmp_path: Path) -> None:
    """As released, FCUCR distils by a clamp and lets padding in: nothing without a teacher, or without SASRec."""
    asked = ["method=fcucr", "backbone=gru4rec", "fidelity=released", "model.teacher=none"]
    made = load_experiment(overrides=asked)
    assert made.model["distill"] == "constant"
    assert made.model["masked"] is True
    older = tmp_path / "older.yaml"
    older.write_text(
        yaml.safe_dump(made.model_dump() | {"model": {**made.model, "distill": "clamped", "masked": False}})
    )
    assert load_experiment(older) == made
    with pytest.raises(InputError, match="teacher is none"):
        load_experiment(overrides=["method=fcucr", "model.teacher=none", "model.distill=clamped"])


def test_prototypes_take_no_places_where_no_session_comes_back() -> None:
    with pytest.raises(InputError, match=r"belongs to protocol.stream cyclic, and no session comes back"):
        load_experiment(overrides=["method=fcucr", "knowledge.replace=false"])
    load_experiment(overrides=["method=fcucr", "protocol.stream=cyclic", "knowledge.replace=false"])
