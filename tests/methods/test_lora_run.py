"""A whole run of LoRA clients: saved for peft, the same whoever does the work, and read once per evaluation."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

import edgefr
from edgefr.simulation.runs.run import Run
from export.batches import One
from export.given import Given
from tests.caches import new_cache
from tests.closeness import assert_same
from tests.export.worlds import student

TINY = (
    "model.client=lora",
    "model.lora_rank=2",
    "model.lora_alpha=3",
    "model.adapter=[16, 8]",
    "model.head=[8]",
    "model.local_training_epochs=1",
    "encoder.distill=null",
    "encoder.encode.max_tokens=16",
    "rounds=2",
    "local_epochs=1",
    "clients_per_round=6",
    "negatives=1",
    "protocol.negatives=20",
    "engine.shard_size=3",
)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("EDGEFR_CACHE", str(new_cache(tmp_path_factory.mktemp("cache"))))
        yield tmp_path_factory.mktemp("lora")


def simulate(place: Path, name: str, *overrides: str) -> Run:
    small = {"data_options": {"users": 30, "items": 100, "interactions": 8}}
    changes = (*TINY, f"encoder.teacher={student()}", *overrides)
    experiment = edgefr.load_experiment(None, changes, **small)
    return edgefr.simulate(experiment, "devices.yaml", out=place / name, bundles=False)


@pytest.fixture(scope="module")
def run(place: Path) -> Run:
    return simulate(place, "inline")


def test_peft_opens_what_a_run_saved(run: Run) -> None:
    """The run's encoder folder with the run's adapter gives the vectors that the program scores with."""
    from peft import PeftModel
    from transformers import AutoModel

    from edgefr.simulation.runs.saved_model import reader_of

    tensors = run.read_tensors("model")
    reader = reader_of(run, run.experiment, tensors)
    row = run.experiment.row
    settings = row.settings.model_validate(run.experiment.model)
    program = row.program(settings, Given(len(reader.tokens), 1, reader=lambda: reader))
    shared = {n.removeprefix("shared."): v for n, v in tensors.items() if n.startswith("shared.")}
    items = torch.arange(len(reader.tokens))
    with torch.no_grad():
        found = program.read(shared, One(items, items, torch.ones(len(items)), torch.ones(len(items))))  # type: ignore[attr-defined]
        base = AutoModel.from_pretrained(run.path / "encoder", attn_implementation="eager").eval()
        model = PeftModel.from_pretrained(base, run.path / "adapters" / "lora").eval()
        mask = (reader.tokens != 0).long()
        states = model(input_ids=reader.tokens.long(), attention_mask=mask).last_hidden_state
    weight = mask.unsqueeze(-1).float()
    expected = (states * weight).sum(1) / weight.sum(1).clamp(min=1)
    assert_same(found, expected)
    assert all(float(value.abs().max()) > 0 for name, value in shared.items() if name.endswith(".b")), "learned"


def test_workers_come_to_the_same_bits(run: Run, place: Path) -> None:
    other = simulate(place, "processes", "engine.executor=processes", "engine.workers=2")
    ours, theirs = run.read_tensors("model"), other.read_tensors("model")
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(value, theirs[name]) for name, value in ours.items())
