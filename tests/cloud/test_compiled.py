"""Compiling says so to whoever watches, once; a function that was kept on disk says nothing."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

SCRIPT = """
from cloud import compiled
from privacy.progress import heard

@compiled.compiled
def twice(x):
    return 2 * x

told = []
with heard(lambda *said: told.append(said)):
    assert twice(3) == 6
    assert twice(4) == 8
print(told)
"""


def run(script: Path, tmp_path: Path) -> str:
    env = {"EDGEFR_CACHE": str(tmp_path / "cache"), "PYTHONPATH": ":".join(sys.path)}
    done = subprocess.run([sys.executable, str(script)], env=env, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_a_function_is_said_to_be_compiled_once_on_a_machine(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    note = "to machine code, once on this machine"
    assert run(script, tmp_path) == f"[('compile', 0, 1, '{note}'), ('compile', 1, 1, '{note}')]"
    assert run(script, tmp_path) == "[]"
