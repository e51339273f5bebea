"""A SuperLink and six SuperNodes on loopback do a run's rounds, and end where the simulator does."""

from __future__ import annotations

import importlib.util
import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from edgefr.serving.keys import Keys
from tests.cli.commands import ROOT
from tests.devices import POLICY, open_device
from tests.remote import worlds
from tests.remote.test_same_as_simulator import compare_scores, compare_shared
from tests.remote.worlds import CLASS, ROUNDS, Twins

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        importlib.util.find_spec("flwr") is None,
        reason="flwr is not installed; docs/howto-flower.md says which environment has it",
    ),
]
BESIDE = Path(sys.executable).parent


def surroundings(folder: Path) -> dict[str, str]:
    """Where nothing calls home, and nothing of the user's is read."""
    quiet = {"FLWR_TELEMETRY_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1", "FLWR_HOME": str(folder / "home")}
    paths = {"PYTHONPATH": str(ROOT), "PATH": f"{BESIDE}{os.pathsep}{os.environ['PATH']}"}
    return {**os.environ, **quiet, **paths, "OMP_NUM_THREADS": "1", "EDGEFR_CACHE": str(folder / "cache")}


def free_port() -> int:
    with socket.socket() as made:
        made.bind(("127.0.0.1", 0))
        return int(made.getsockname()[1])


def app(folder: Path) -> Path:
    """The app of the page, as it stands there."""
    page = (ROOT / "docs" / "howto-flower.md").read_text(encoding="utf-8")
    found = re.search(r"```toml\n(.*?)```", page, re.DOTALL)
    assert found is not None
    (folder / "devices").mkdir()
    (folder / "devices" / "pyproject.toml").write_text(found[1])
    return folder / "devices"


@contextmanager
def started(folder: Path, name: str, *command: str) -> Iterator[Path]:
    """A process of Flower's; what it says is in the file."""
    said = folder / f"{name}.log"
    with open(said, "wb") as file:
        process = subprocess.Popen(
            [str(BESIDE / command[0]), *command[1:]],
            env=surroundings(folder),
            stdout=file,
            stderr=file,
            cwd=folder,
            start_new_session=True,
        )
    try:
        yield said
    finally:
        with_children(process)


def with_children(process: subprocess.Popen[bytes]) -> None:
    """End a process and what it has started."""
    for number in (15, 9):
        try:
            os.killpg(process.pid, number)
            process.wait(10)
        except (ProcessLookupError, subprocess.TimeoutExpired):
            continue


def waited_for(condition: object, seconds: float, logs: list[Path]) -> None:
    until = time.monotonic() + seconds
    while not condition():  # type: ignore[operator]
        if time.monotonic() > until:
            raise AssertionError("\n".join(f"--- {log}\n{log.read_text()[-3000:]}" for log in logs))
        time.sleep(0.2)


@contextmanager
def fleet(folder: Path, twins: Twins) -> Iterator[tuple[str, list[Path]]]:
    """A SuperLink, and a SuperNode for every user; the address, and what they say."""
    address, codes = f"127.0.0.1:{free_port()}", Keys(twins.begun.path).issue(list(twins.users))
    from contextlib import ExitStack

    with ExitStack() as stack:
        link = ("flower-superlink", "--insecure", "--disable-runtime-dependency-installation")
        logs = [stack.enter_context(started(folder, "link", *link, "--port", address.rsplit(":", 1)[1]))]
        for user in twins.users:
            state, own = folder / "states" / user, folder / f"{user}.txt"
            state.mkdir(parents=True)
            (state / "policy.yaml").write_text(POLICY)
            own.write_text("item\n" + "\n".join(twins.items(user)) + "\n")
            told = {"bundle": twins.bundle, "state": state, "interactions": own, "code": codes[user]}
            config = " ".join(f'{name}="{value}"' for name, value in told.items())
            node = ("flower-supernode", "--insecure", "--superlink", address, "--port", str(free_port()))
            logs.append(stack.enter_context(started(folder, user, *node, "--node-config", config)))
        yield address, logs


def test_six_supernodes_end_where_the_simulator_does(tmp_path: Path) -> None:
    twins = worlds.fedmf().own(tmp_path)
    with fleet(tmp_path, twins) as (address, logs):
        (tmp_path / "home").mkdir(exist_ok=True)
        connection = f'[superlink]\ndefault = "here"\n[superlink.here]\naddress = "{address}"\ninsecure = true\n'
        (tmp_path / "home" / "config.toml").write_text(connection)
        given = {"run": twins.begun.path, "bundle-class": CLASS, "out": tmp_path / "served"}
        config = " ".join(f'{name}="{value}"' for name, value in given.items()) + f" rounds={ROUNDS} timeout=120.0"
        time.sleep(5)
        asked = [str(BESIDE / "flwr"), "run", str(app(tmp_path)), "here", "--run-config", config]
        done = subprocess.run(asked, env=surroundings(tmp_path), capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stdout + done.stderr
        waited_for((tmp_path / "served" / "summary.json").exists, 400, logs)
    compare_shared(twins, load_file(tmp_path / "served" / "shared.safetensors"))
    own = [open_device(twins.bundle, tmp_path / "states" / user) for user in twins.users]
    assert [device.status()["round"] for device in own] == [ROUNDS] * len(own)
    compare_scores(twins, np.stack([device.scores() for device in own]), "rounds", "federated")
