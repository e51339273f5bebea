"""The other commands, how long runs are interrupted, and what is not loaded to run them."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

import edgefr
from tests.cli.commands import COMMAND, ROOT, environment, hear_interrupts, refused, without_progress
from tests.cli.conftest import Cli, Made

COMMANDS = ("simulate", "export", "recommend", "devices", "distill", "pretrain")


def test_help_is_complete(cli: Cli) -> None:
    code, out, err = cli("--help")
    assert (code, err) == (0, "")
    assert all(name in out for name in COMMANDS)
    assert cli()[:2] == (0, out), "no command at all shows the same help"
    for name in COMMANDS:
        code, out, err = cli(name, "--help")
        assert (code, err) == (0, "")
        assert f"edgefr {name}" in out
        assert max(map(len, out.splitlines())) <= 80
        for option in re.findall(r"│ \*? *(--[a-z-]+)", out):
            described = re.search(rf"{option}\b.*?  +[A-Z<a-z]", out)
            assert described, f"{name} {option} has no description"
    for option in ("devices", "experiment", "data", "data-dir", "seed", "seeds", "set", "executor", "device", "out"):
        assert f"--{option}" in cli("simulate", "--help")[1]


def test_version(cli: Cli) -> None:
    from importlib.metadata import version

    assert cli("--version") == (0, f"edgefr {version('edgefr')}\n", "")


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
    code, out, err = cli("devices")
    assert (code, err) == (0, "")
    assert all(name in out for name in edgefr.load_fleet(ROOT / "devices.yaml").devices)
    assert max(map(len, out.splitlines())) <= 80
    assert "…" not in out


def test_recommend_gives_what_the_simulated_model_gives(transfr: Made, cli: Cli, tmp_path: Path) -> None:
    import torch

    from edgefr.engine.scoring import ModelScorer
    from edgefr.simulation.runs.saved_model import open_model

    run = transfr.run
    assert cli("export", "--run", run.path, "--out", tmp_path, "--with-users")[::2] == (0, "")
    folder = tmp_path / "laptop_x86"
    user = json.loads((folder / "private" / "users.json").read_text())["users"][0]
    model = open_model(run).model
    number = model.names.users.index(user)
    scores = torch.from_numpy(ModelScorer.of(model, torch.device("cpu"))(np.array([number]), None))[0].clone()
    scores[torch.from_numpy(model.own[number]).long()] = -torch.inf
    best = scores.topk(3)
    code, out, err = cli("recommend", folder, "--user", user, "--k", "3")
    assert (code, err) == (0, "")
    shown = re.findall(r"│ +(\d) │ (i\d+) │ .*? │ +(-?[\d.]+) │", out)
    assert [item for _, item, _ in shown] == [model.names.items[i] for i in best.indices.tolist()]
    assert [float(score) for _, _, score in shown] == pytest.approx(best.values.tolist(), rel=5e-4)  # items in f16
    without = cli("recommend", folder, "--user", user, "-k", "3", "--exclude", shown[0][1])[1]
    assert shown[0][1] not in without
    assert shown[1][1] in without


def test_export_again_gives_the_same_bundles(fedmf: Made, cli: Cli, tmp_path: Path) -> None:
    found = []
    for name in ("one", "two"):
        code, out, err = cli("export", "--run", fedmf.run.path / "seed-0", "--out", tmp_path / name)
        assert (code, err) == (0, "")
        assert out.rstrip().endswith(f"bundles: {tmp_path / name}")
        manifests = sorted((tmp_path / name).glob("*/manifest.json"))
        assert [path.parent.name for path in manifests] == ["laptop_x86", "phone_sd680", "speaker_512"]
        found.append([path.read_bytes() for path in manifests])
    assert found[0] == found[1]
    assert "for a new device" in cli("recommend", tmp_path / "one" / "laptop_x86")[1]


def test_distill_writes_the_student_that_simulate_used(transfr: Made, place: Path, cli: Cli, tmp_path: Path) -> None:
    texts = tmp_path / "texts.txt"
    texts.write_text("\n".join(edgefr.load_data("demo", seed=0, options={"users": 60, "items": 160}).catalogue.text))
    out = tmp_path / "student"
    code, shown, err = cli("distill", "--experiment", place / "tiny.yaml", "--texts", texts, "--out", out)
    assert (code, err) == (0, "")
    assert shown.rstrip().endswith(f"student: {out}")
    model = "model.safetensors"
    assert (out / model).read_bytes() == (transfr.run.path / "encoder" / model).read_bytes()
    assert {p.name for p in tmp_path.iterdir()} == {"student", "texts.txt"}


HEAVY = {"torch", "transformers", "onnx", "pandas", "pyarrow", "matplotlib", "scipy", "dp_accounting", "opacus"}


def modules_after(code: str, cache: Path) -> set[str]:
    """The modules that are loaded once a piece of code is done."""
    script = f"{code}\nimport sys; print('LOADED', *sorted(sys.modules))"
    surroundings = environment(cache) | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, env=surroundings, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return set(done.stdout.rsplit("LOADED ", 1)[1].split())


@pytest.mark.parametrize(
    "code",
    [
        "import edgefr; edgefr.load_experiment; edgefr.load_fleet; edgefr.load_data; edgefr.Run",
        "from edgefr.cli.app import app; app(['recommend', BUNDLE], standalone_mode=False)",
    ],
    ids=["import", "recommend"],
)
def test_the_light_commands_load_nothing_heavy(code: str, transfr: Made, cache: Path) -> None:
    bundle = str(transfr.run.path / "bundles" / "laptop_x86")
    loaded = modules_after(f"BUNDLE = {bundle!r}\n{code}", cache)
    assert "numpy" in loaded
    assert not loaded & HEAVY


@pytest.mark.parametrize(
    "arguments",
    [["--help"], ["devices"], ["simulate", "--help"], ["sweep", "--help"], ["device", "--help"]],
    ids=" ".join,
)
def test_help_and_the_fleet_load_no_arrays_either(arguments: list[str], cache: Path) -> None:
    loaded = modules_after(f"from edgefr.cli.app import app; app({arguments}, standalone_mode=False)", cache)
    assert "typer" in loaded
    assert not loaded & (HEAVY | {"numpy"})


def test_a_command_loads_no_other(cache: Path) -> None:
    loaded = modules_after("from edgefr.cli.app import app; app(['devices'], standalone_mode=False)", cache)
    assert "edgefr.cli.devices" in loaded
    assert not loaded & {"edgefr.cli.simulate", "edgefr.cli.sweep", "edgefr.cli.device", "edgefr.cli.reproduce"}


@pytest.mark.parametrize(
    "arguments",
    [
        ["simulate", "--data", "nowhere"],
        ["simulate", "--set", "data=nowhere"],
        ["data", "nowhere"],
        ["sweep", "--data", "nowhere", "--grid", "rounds=[1,2]"],
        ["tune", "fedmf", "--data", "nowhere"],
        ["distill", "--data", "nowhere", "--out", "new"],
    ],
    ids=" ".join,
)
def test_a_wrong_data_set_is_refused_before_anything_heavy_is_loaded(arguments: list[str], cache: Path) -> None:
    code = f"""\
from edgefr.cli.app import app
from privacy.errors import InputError
try:
    app({arguments}, standalone_mode=False)
except InputError as error:
    assert "unknown data set 'nowhere'" in str(error)
else:
    raise SystemExit("not refused")"""
    assert not modules_after(code, cache) & HEAVY


def rounds_in(events: Path) -> int:
    """How many rounds a run's log tells of by now."""
    lines = events.read_text(encoding="utf-8").splitlines()[:-1] if events.exists() else []
    return len({json.loads(line).get("round") for line in lines})


@pytest.mark.skipif(os.name != "posix", reason="signals")
def test_ctrl_c(place: Path, cache: Path, transfr: Made, tmp_path: Path) -> None:
    """Interrupted in the rounds: exit code 130 within seconds, no summary, nothing half written, and how to go on."""
    out = tmp_path / "run"
    arguments = ["simulate", "--experiment", place / "tiny-fedmf.yaml", "--set", "rounds=1000000", "--out", out]
    process = subprocess.Popen(
        [*COMMAND, *map(str, arguments)],
        cwd=ROOT,
        env=environment(cache) | {"PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=hear_interrupts,
    )
    try:
        limit = time.monotonic() + 60
        while rounds_in(out / "events.jsonl") < 3:  # what the first one needs is compiled by then
            assert process.poll() is None, process.communicate()
            assert time.monotonic() < limit
            time.sleep(0.05)
        time.sleep(2.5)
        process.send_signal(signal.SIGINT)
        started = time.monotonic()
        stdout, stderr = process.communicate(timeout=120)
    finally:
        process.kill()
    assert time.monotonic() - started < 10
    assert process.returncode == 130
    assert stdout == ""
    assert re.search(r"^\[\d+ s\] rounds [\d,]+/1,000,000: [\d,]+ clients/s", stderr, re.MULTILINE), "progress"
    said = without_progress(stderr).strip().splitlines()
    assert said == [
        f"go on with edgefr simulate --resume {out} (from its beginning: without --checkpoint-every nothing of its "
        "rounds is kept)",
        "interrupted: what was finished is kept, nothing is half written",
    ]
    assert {p.name for p in out.iterdir()} <= {"experiment.yaml", "devices.yaml", "events.jsonl"}


def test_progress_on_a_terminal_is_bars() -> None:
    from io import StringIO

    from edgefr.cli.progress import shown

    file = StringIO()
    with shown(Console(file=file, force_terminal=True, width=100)) as progress:
        progress("rounds", 1, 4, "")
        progress("rounds", 4, 4, "14 clients/s [of 3] " + "and a long tail " * 9)
    last = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", file.getvalue()).rstrip().splitlines()[-1]
    assert all(part in last for part in ("rounds", "4/4", "0:00:0", "14 clients/s [of 3] and", "…")), last
    assert len(last.strip()) <= 100
    assert "starting" not in last


def test_bundles_go_to_no_other_place_of_the_run(fedmf: Made, cli: Cli) -> None:
    run = fedmf.run.path / "seed-0"
    before = sorted(run.rglob("*"))
    for inside in (run, run / "checkpoint", run / "new" / "place", run / ".." / run.name / "figures"):
        line = refused(*cli("export", "--run", run, "--out", inside))
        assert f"lies in the run itself, which is kept as it is; name {run / 'bundles'}, or a folder outside" in line
    assert sorted(run.rglob("*")) == before
