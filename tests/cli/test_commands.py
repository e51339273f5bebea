"""The other commands, how long runs are interrupted, and what is not loaded to run them."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import edgefr
from tests.cli.commands import COMMAND, ROOT, environment, hear_interrupts, without_progress
from tests.cli.conftest import Cli, Made


def test_shell_completion(cache: Path) -> None:
    surroundings = environment(cache) | {"_EDGEFR_COMPLETE": "complete_bash", "PYTHONPATH": str(ROOT)}
    start = "import sys; sys.argv[0] = 'edgefr'; from edgefr.cli.app import main; main()"

    def completed(words: str) -> list[str]:
        variables = surroundings | {"COMP_WORDS": words, "COMP_CWORD": str(len(words.split(" ")) - 1)}
        done = subprocess.run([sys.executable, "-c", start], env=variables, capture_output=True, text=True, timeout=60)
        return done.stdout.split()

    assert completed("edgefr dev") == ["devices", "device"]
    assert set(completed("edgefr simulate --data ml")) == {"ml-100k", "ml-1m", "ml-latest-small"}


def test_devices_lists_every_class_in_80_columns(cli: Cli) -> None:
    out = cli.done("devices")
    assert all(name in out for name in edgefr.load_fleet(ROOT / "devices.yaml").devices)
    assert max(map(len, out.splitlines())) <= 80
    assert "…" not in out


def test_recommend_gives_what_the_simulated_model_gives(transfr: Made, cli: Cli, tmp_path: Path) -> None:
    import torch

    from edgefr.engine.scoring import ModelScorer
    from edgefr.simulation.runs.saved_model import open_model

    run = transfr.run
    cli.done("export", "--run", run.path, "--out", tmp_path, "--with-users")
    folder = tmp_path / "laptop_x86"
    user = json.loads((folder / "private" / "users.json").read_text())["users"][0]
    model = open_model(run).model
    number = model.names.users.index(user)
    scores = torch.from_numpy(ModelScorer.of(model, torch.device("cpu"))(np.array([number]), None))[0].clone()
    scores[torch.from_numpy(model.own[number]).long()] = -torch.inf
    best = scores.topk(3)
    out = cli.done("recommend", folder, "--user", user, "--k", "3")
    shown = re.findall(r"│ +(\d) │ (i\d+) │ .*? │ +(-?[\d.]+) │", out)
    assert [item for _, item, _ in shown] == [model.names.items[i] for i in best.indices.tolist()]
    assert [float(score) for _, _, score in shown] == pytest.approx(best.values.tolist(), rel=5e-4)  # items in f16
    without = cli.done("recommend", folder, "--user", user, "-k", "3", "--exclude", shown[0][1])
    assert shown[0][1] not in without
    assert shown[1][1] in without


def test_export_again_gives_the_same_bundles(fedmf: Made, cli: Cli, tmp_path: Path) -> None:
    found = []
    for name in ("one", "two"):
        out = cli.done("export", "--run", fedmf.run.path / "seed-0", "--out", tmp_path / name)
        assert out.rstrip().endswith(f"bundles: {tmp_path / name}")
        manifests = sorted((tmp_path / name).glob("*/manifest.json"))
        assert [path.parent.name for path in manifests] == ["laptop_x86", "phone_sd680", "speaker_512"]
        found.append([path.read_bytes() for path in manifests])
    assert found[0] == found[1]
    assert "for a new device" in cli.done("recommend", tmp_path / "one" / "laptop_x86")


def test_distill_writes_the_student_that_simulate_used(transfr: Made, place: Path, cli: Cli, tmp_path: Path) -> None:
    texts = tmp_path / "texts.txt"
    texts.write_text("\n".join(edgefr.load_data("demo", seed=0, options={"users": 60, "items": 160}).catalogue.text))
    out = tmp_path / "student"
    shown = cli.done("distill", "--experiment", place / "tiny.yaml", "--texts", texts, "--out", out)
    assert shown.rstrip().endswith(f"student: {out}")
    model = "model.safetensors"
    assert (out / model).read_bytes() == (transfr.run.path / "encoder" / model).read_bytes()
    assert {p.name for p in tmp_path.iterdir()} == {"student", "texts.txt"}


HEAVY = {"torch", "transformers", "onnx", "pandas", "pyarrow", "matplotlib", "scipy", "dp_accounting"}
OTHERS = {"edgefr.cli.simulate", "edgefr.cli.sweep", "edgefr.cli.device", "edgefr.cli.reproduce"}
LOADING = """\
import json, sys
from edgefr.cli.app import app
from privacy.errors import InputError
def call(*arguments):
    try:
        app(arguments, standalone_mode=False)
    except InputError as error:
        assert "unknown data set 'nowhere'" in str(error)
    else:
        assert "nowhere" not in arguments and "data=nowhere" not in arguments, "not refused"
for step in json.loads(sys.argv[1]):
    exec(step)
    print("LOADED", json.dumps(sorted(sys.modules)))
"""


def test_light_commands_load_nothing_heavy(transfr: Made, cache: Path) -> None:
    """All in one process, in which nothing is loaded twice: whatever loads too much is told by its place."""
    helped = [["--help"], ["simulate", "--help"], ["sweep", "--help"], ["device", "--help"]]
    refused = [
        ["simulate", "--data", "nowhere"],
        ["simulate", "--set", "data=nowhere"],
        ["data", "nowhere"],
        ["sweep", "--data", "nowhere", "--grid", "rounds=[1,2]"],
        ["tune", "fedmf", "--data", "nowhere"],
        ["distill", "--data", "nowhere", "--out", "new"],
    ]
    steps = [f"call(*{arguments})" for arguments in (["devices"], *helped, *refused)]
    steps.append("import edgefr; edgefr.load_experiment; edgefr.load_fleet; edgefr.load_data; edgefr.Run")
    steps.append(f"call('recommend', {str(transfr.run.path / 'bundles' / 'laptop_x86')!r})")
    command = [sys.executable, "-c", LOADING, json.dumps(steps)]
    surroundings = environment(cache) | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=ROOT, env=surroundings, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    loaded = [set(json.loads(line[7:])) for line in done.stdout.splitlines() if line.startswith("LOADED ")]
    for number, (step, modules) in enumerate(zip(steps, loaded, strict=True)):
        light = number <= len(helped)
        assert not modules & (HEAVY | {"numpy"} if light else HEAVY), step
    assert "edgefr.cli.devices" in loaded[0]
    assert not loaded[0] & OTHERS, "a command loads no other"
    assert "numpy" in loaded[-2]


def rounds_in(events: Path) -> int:
    """How many rounds a run's log tells of by now."""
    lines = events.read_text(encoding="utf-8").splitlines()[:-1] if events.exists() else []
    return len({json.loads(line).get("round") for line in lines})


@pytest.mark.skipif(os.name != "posix", reason="signals")
def test_ctrl_c(place: Path, cache: Path, transfr: Made, tmp_path: Path) -> None:
    """Interrupted in the rounds: exit code 130 within seconds, no summary, nothing half written, and how to go on."""
    out = tmp_path / "run"
    arguments = ["simulate", "--experiment", place / "tiny-fedmf.yaml", "--set", "rounds=1000000", "--out", out]
    arguments += ["--set", "evaluation.keep=last"]  # patience would end it
    heard = {"env": environment(cache) | {"PYTHONPATH": str(ROOT)}, "text": True, "preexec_fn": hear_interrupts}
    progress = re.compile(r"^\[\d+ s\] rounds [\d,]+/1,000,000: [\d,]+ clients/s", re.MULTILINE)
    printed, said_of_it = tmp_path / "stdout", tmp_path / "stderr"
    with printed.open("w") as stdout, said_of_it.open("w") as stderr:
        process = subprocess.Popen([*COMMAND, *map(str, arguments)], cwd=ROOT, **heard, stdout=stdout, stderr=stderr)
    try:
        limit = time.monotonic() + 120
        while rounds_in(out / "events.jsonl") < 3 or not progress.search(said_of_it.read_text()):
            assert process.poll() is None, said_of_it.read_text()
            assert time.monotonic() < limit
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        started = time.monotonic()
        process.wait(timeout=120)
    finally:
        process.kill()
    assert time.monotonic() - started < 10
    assert process.returncode == 130
    assert printed.read_text() == ""
    said = without_progress(said_of_it.read_text()).strip().splitlines()
    assert said == [
        f"go on with edgefr simulate --resume {out} (from its beginning: without --checkpoint-every nothing of its "
        "rounds is kept)",
        "interrupted: finished work is kept, and no file is half written",
    ]
    assert {p.name for p in out.iterdir()} <= {"experiment.yaml", "devices.yaml", "resolved.json", "events.jsonl"}


def test_bundles_go_to_no_other_place_of_the_run(fedmf: Made, cli: Cli) -> None:
    run = fedmf.run.path / "seed-0"
    before = sorted(run.rglob("*"))
    for inside in (run, run / "checkpoint", run / "new" / "place", run / ".." / run.name / "pages"):
        line = cli.refused("export", "--run", run, "--out", inside)
        assert f"lies in the run itself, which is kept as it is; name {run / 'bundles'}, or a folder outside" in line
    assert sorted(run.rglob("*")) == before


def test_a_run_is_measured_and_its_fleet_takes_the_steps(
    transfr: Made, cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    out = tmp_path / "calibration.json"
    text = cli.done("calibrate", transfr.run.path, "--out", out)
    for name in ("laptop_x86", "phone_sd680", "speaker_512", "fits", "GFLOP/s", f"calibration: {out}"):
        assert name in text, name
    cost = {"mode": "host-ratio", "calibration": str(out)}
    spec = edgefr.load_fleet(transfr.run.path / "devices.yaml", {"cost": cost})
    assert list(spec.cost.calibration.classes) == ["phone_sd680", "laptop_x86", "speaker_512"]
    assert all(spec.cost.calibration.learning(name).work.upload_bytes > 0 for name in spec.fleet.share)


def test_what_cannot_be_calibrated_ends_with_one_line(transfr: Made, cli: Cli, tmp_path: Path) -> None:
    for arguments, error in (
        ((tmp_path,), "has no bundles; give a run"),
        ((tmp_path / "nowhere",), "has no bundles"),
        ((transfr.run.path, "--devices", tmp_path / "none.yaml"), "cannot read"),
        ((transfr.run.path, "--timeout-s", "0"), "--timeout-s"),
    ):
        assert error in cli.refused("calibrate", *arguments)
    shutil.copytree(transfr.run.path / "bundles", tmp_path / "bundles")
    (tmp_path / "bundles" / "laptop_x86" / "onnx" / "score.onnx").write_bytes(b"")
    assert "score.onnx has 0 bytes" in cli.refused("calibrate", tmp_path / "bundles")
    assert not (tmp_path / "bundles" / "calibration.json").exists()
