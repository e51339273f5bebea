"""An environment without extras, emulated: every module that only an extra brings is hidden from imports.

python -m tests.bare      commands as JSON on standard input, how each ended as JSON on standard output
"""

from __future__ import annotations

import contextlib
import json
import re
import sys
import tempfile
import tomllib
import traceback
from importlib.metadata import PackageNotFoundError, packages_distributions, requires
from pathlib import Path
from typing import IO, Any

ROOT = Path(__file__).parents[1]


def canonical(requirement: str) -> str:
    """The name of the package that a requirement is of, as registries compare it."""
    return re.sub(r"[-_.]+", "-", re.match(r"[\w.-]+", requirement)[0]).lower()  # type: ignore[index]


def installed_without_extras() -> set[str]:
    """The packages that `pip install edgefr` brings, by pyproject.toml and what the packages themselves ask for."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    found, ahead = {"edgefr"}, [canonical(line) for line in project["dependencies"]]
    while ahead:
        name = ahead.pop()
        if name not in found:
            found.add(name)
            with contextlib.suppress(PackageNotFoundError):
                ahead += [canonical(line) for line in requires(name) or [] if "extra ==" not in line]
    return found


class Without:
    """A finder of modules that finds none of the hidden ones."""

    def __init__(self, finder: Any, hidden: set[str]):
        self.finder, self.hidden = finder, hidden

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        return None if name.partition(".")[0] in self.hidden else self.finder.find_spec(name, path, target)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.finder, name)


def hide() -> None:
    """Let this process import no module that only an extra, or nothing of ours, brings."""
    kept = installed_without_extras()
    of = packages_distributions()
    hidden = {module for module, names in of.items() if not {canonical(name) for name in names} & kept}
    sys.meta_path[:] = [Without(finder, hidden) for finder in sys.meta_path]


def ended(arguments: list[str]) -> tuple[int, str, str]:
    """The exit code, stdout and stderr of a command in this process; what is no exit is told on stderr."""
    from edgefr.cli.app import main

    sys.argv, code = ["edgefr", *arguments], 1
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            try:
                main()
            except SystemExit as end:
                code = end.code if isinstance(end.code, int) else 0
            except Exception:
                traceback.print_exc(file=err)
        return code, _whole(out), _whole(err)


def _whole(file: IO[str]) -> str:
    file.seek(0)
    return file.read()


if __name__ == "__main__":
    hide()
    print(json.dumps([ended(arguments) for arguments in json.load(sys.stdin)]))
