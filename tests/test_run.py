"""The run folder: nothing is overwritten, nothing is half written, what was written is read back."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from edgefr.simulation.runs.run import Run
from privacy.errors import InputError


def test_a_new_folder_may_exist_if_it_is_empty(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    assert Run.create(tmp_path / "empty").path.is_dir()
    assert Run.create(tmp_path / "a" / "b").path.is_dir()


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    for name, files in {"run": ("experiment.yaml", "summary.json"), "half": ("experiment.yaml",)}.items():
        (tmp_path / name).mkdir()
        for file in files:
            (tmp_path / name / file).write_text("x")
    for path, what in (
        (tmp_path, "other files;"),
        (tmp_path / "file", "other files;"),
        (tmp_path / "run", "another run;"),
        (
            tmp_path / "half",
            f"a run that did not finish; continue it with edgefr simulate --resume {tmp_path}/half, or",
        ),
    ):
        with pytest.raises(InputError, match=rf"already holds {what} choose another --out \(nothing was changed\)"):
            Run.create(path)
    assert (tmp_path / "file").read_text() == "mine"


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    with pytest.raises(InputError, match=r"cannot make the run folder .*Not a directory; choose another --out"):
        Run.create(tmp_path / "file" / "run")


@pytest.mark.parametrize("error", [InputError, KeyboardInterrupt, RuntimeError])
def test_a_failure_before_anything_was_written_leaves_no_folder(tmp_path: Path, error: type[BaseException]) -> None:
    with pytest.raises(error), Run.started(tmp_path / "run"):
        raise error("no")
    assert not (tmp_path / "run").exists()

    def half_way() -> None:
        with Run.started(tmp_path / "run") as run:
            run.write_summary({"a": 1})
            raise error("no")

    with pytest.raises(error):
        half_way()
    assert Run(tmp_path / "run").summary == {"a": 1}
    with Run.started(tmp_path / "idle"):
        pass
    assert (tmp_path / "idle").is_dir()


def test_open_says_what_is_missing(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no experiment.yaml\); give the folder that simulate printed"):
        Run.open(tmp_path)
    (tmp_path / "experiment.yaml").write_text("rounds: 3\n")
    with pytest.raises(InputError, match=r"did not finish \(no summary.json\)"):
        Run.open(tmp_path)
    (tmp_path / "summary.json").write_text("{}")
    assert Run.open(tmp_path).experiment.rounds == 3
    Run(tmp_path / "seed-4").write_summary({})
    with pytest.raises(InputError, match=r"holds a run per seed; name one of them, for example .*seed-4"):
        Run.open(tmp_path)


def test_damaged_files_are_named(tmp_path: Path) -> None:
    run = Run(tmp_path)
    with pytest.raises(InputError, match=r"cannot read .*summary.json"):
        _ = run.summary
    (tmp_path / "summary.json").write_text("{")
    with pytest.raises(InputError, match=r"cannot read .*summary.json.*run the experiment again"):
        _ = run.summary
    for content in (b"", b"nonsense", b"\xff" * 100):
        (tmp_path / "checkpoint").mkdir(exist_ok=True)
        (tmp_path / "checkpoint" / "model.safetensors").write_bytes(content)
        with pytest.raises(InputError, match=r"cannot read .*model.safetensors.*run the experiment again"):
            run.read_tensors("model")


def test_tensors_are_read_back_to_the_bit(tmp_path: Path) -> None:
    run = Run(tmp_path)
    whole = torch.arange(24, dtype=torch.float32).view(4, 6)
    tensors = {"a": whole.T, "b": torch.tensor([1, 2], dtype=torch.int64), "c": torch.tensor([float("nan")])}
    run.write_tensors("model", tensors)
    found = run.read_tensors("model")
    assert found.keys() == tensors.keys()
    assert torch.equal(found["a"], whole.T)
    assert torch.equal(found["b"], tensors["b"])
    assert bool(found["c"].isnan().all())


def test_a_summary_never_holds_nan(tmp_path: Path) -> None:
    run = Run(tmp_path)
    run.write_summary({"a": 1.5})
    with pytest.raises(ValueError, match="not JSON compliant"):
        run.write_summary({"a": float("nan")})
    assert run.summary == {"a": 1.5}


def test_metrics_and_events(tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    run = Run(tmp_path)
    place = {"split": "main", "stage": "s", "which": "valid", "ranking": "full", "metric": "HR@1"}
    rows = [{"round": 1, **place, "value": 0.5}, {"round": None, **place, "value": 0.25}]
    run.write_metrics(rows)
    assert pq.read_table(tmp_path / "metrics.parquet").to_pylist() == rows
    run.log.append('{"time": 0.0, "kind": "started"}\n')
    run.log.append('{"time": 1.5, "kind": "ended"}\n')
    assert (tmp_path / "events.jsonl").read_text().splitlines()[1] == '{"time": 1.5, "kind": "ended"}'
