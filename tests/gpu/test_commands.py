"""Whole commands run on a GPU as on the host: every method over every protocol, and what follows a run."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from edgefr.engine import device
from edgefr.simulation import resolve
from tests.cli.commands import TINY, edgefr
from tests.export.worlds import student
from tests.golden.cases import known
from tests.golden.kept import kept
from tests.golden.make import values
from tests.golden.values import differences
from tests.gpu.conftest import CUDA
from tests.gpu.pretended import GPU, Pretended
from tests.mostly_slow import mostly_slow

ON_GPU = ("--plugin", "tests.gpu.on_gpu")
QUICK = (
    "transfr mlp, leave-one-out, none, ours",
    "transfr lora, leave-one-out, none, paper",
    "transfr mlp, cross-domain, none, ours",
    "f3crec on transfr, blocks, none, paper",
    "fcucr on sasrec, sessions, none, paper",
    "fedcar, leave-one-out, none, paper",
    "ease, leave-one-out, none, paper",
    "fedmf, nobody waits",
    "fedmf, DP-SGD",
)
"""What runs with every commit."""


@pytest.mark.parametrize("case", mostly_slow(known(), QUICK))
def test_a_whole_run_comes_to_what_it_comes_to_on_the_host(
    case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The values are those that the golden runs keep."""
    for place in (device, resolve):
        monkeypatch.setattr(place, "torch_device", lambda name: GPU)
    monkeypatch.setenv("EDGEFR_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("EDGEFR_DATA", raising=False)
    with Pretended():
        found = values(case, student(), tmp_path / "run")
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["engine"]["device"] == GPU.type
    lines = differences(found, kept()[case])
    assert not lines, "\n".join([f"{len(lines)} values differ", *lines[:20]])


def test_the_quick_cases_are_cases() -> None:
    assert set(QUICK) <= known().keys()


def run_of(folder: Path, *arguments: str | Path) -> str:
    """Run a command on the pretended GPU; return what it printed."""
    done = edgefr(*arguments, *ON_GPU, cache=folder / "cache", cwd=folder)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
def test_the_readmes_command_and_what_follows_it(tmp_path: Path) -> None:
    """TransFR distils, learns, is measured, written down and exported; the run is continued, attacked and swept."""
    (tmp_path / "tiny.yaml").write_text(TINY)
    small = ("--experiment", "tiny.yaml")
    run_of(tmp_path, "simulate", *small, "--checkpoint-every", "1", "--out", "whole")
    summary = json.loads((tmp_path / "whole" / "summary.json").read_text())
    assert summary["engine"]["device"] == GPU.type
    shutil.copytree(tmp_path / "whole", tmp_path / "broken")
    for name in ("summary.json", "bundles", "report.html", "checkpoint/round-00000002"):
        place = tmp_path / "broken" / name
        shutil.rmtree(place) if place.is_dir() else place.unlink()
    run_of(tmp_path, "simulate", "--resume", "broken")
    again = json.loads((tmp_path / "broken" / "summary.json").read_text())
    assert again["metrics"] == summary["metrics"]
    assert len(list((tmp_path / "broken" / "bundles").iterdir())) == 3
    run_of(tmp_path, "export", "--run", "whole", "--out", "shipped")
    run_of(tmp_path, "audit", "whole", "--users", "5", "--trials", "100", "--attacks", "membership,sign-split")
    run_of(tmp_path, "sweep", *small, "--grid", "rounds=[1]", "--seeds", "1", "--out", "swept")
    (swept,) = (tmp_path / "swept").rglob("summary.json")
    assert json.loads(swept.read_text())["engine"]["device"] == GPU.type


@pytest.mark.slow
def test_a_search_and_a_teacher_of_ones_own(tmp_path: Path) -> None:
    """Pre-training, distilling from what it made, tuning and explaining run on the pretended GPU."""
    (tmp_path / "texts.txt").write_text("".join(f"a small text about topic {n % 7} and {n % 5}\n" for n in range(60)))
    sizes = ("--layers", "2", "--hidden", "16", "--heads", "2", "--vocabulary", "200", "--steps", "3")
    run_of(tmp_path, "pretrain", "--texts", "texts.txt", "--out", "teacher", *sizes)
    small = [
        f"encoder.distill.{key}" for key in ("teacher=teacher", "layer_map=[2]", "layers=1", "hidden=8", "steps=2")
    ]
    run_of(tmp_path, "distill", "--texts", "texts.txt", "--out", "student", *(f"--set={one}" for one in small))
    few = ("--set", "rounds=1", "--set", "data_options.users=40")
    run_of(tmp_path, "tune", "fedmf", "--data", "demo", "--trials", "1", *few, "--out", "tuned")
    run_of(tmp_path, "simulate", "--set", "method=fedcar", *few, "--no-bundles", "--out", "explained")
    run_of(tmp_path, "explain", "explained", "--user", "u0000003", "--k", "1")
    assert (tmp_path / "tuned" / "recipes" / "fedmf.yaml").is_file()


REAL = {
    "the README's": [],
    **{
        method: ["--set", f"method={method}", "--set", "rounds=3", "--no-bundles"]
        for method in ("fedmf", "fedncf", "fcucr", "fedcar", "gpfedrec")
    },
}


@pytest.mark.gpu
@pytest.mark.skipif(not CUDA, reason="no GPU: torch.cuda.is_available() is false")
@pytest.mark.parametrize("name", REAL if CUDA else ["none"])
def test_commands_run_whole_on_a_real_gpu(name: str, tmp_path: Path) -> None:
    command = ("simulate", "--devices", "devices.yaml", "--device", "cuda", *REAL[name], "--out", tmp_path / "run")
    done = edgefr(*command, cache=tmp_path / "cache")
    assert done.returncode == 0, done.stderr
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["engine"]["device"].startswith("cuda")
