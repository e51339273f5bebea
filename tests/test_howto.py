"""The pages of docs/ do what they say: their blocks are run in order, in a folder of the page's own.

```python            goes on where the last one of the page ended
```python name.py    is a file in that folder; so is ```yaml name.yaml
```sh                has an `edgefr` or `pytest` command a line, or over lines that end in a backslash
```sh slow           has such that take long, so the page runs among the slow tests
```sh refused        has one that ends with one line and exit code 2
```text, math, toml   are to be read alone
```bash name.sh       is a script, which has a test of its own
"""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli import commands
from tests.mostly_slow import mostly_slow
from tests.warm import WARM

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
READ = ("text", "math", "toml", "bash rounds.sh")
COMMANDS = {"edgefr": commands.COMMAND, "pytest": [sys.executable, "-m", "pytest"]}
METHOD = "howto-method.md"
LONG = ("your-data.md", "compare.md", "ship.md")
"""Pages that go on from one another, take minutes, and have a test of their own that makes them smaller."""


def blocks(page: str) -> list[tuple[str, str]]:
    """Return the kind and the content of every fenced block of a page."""
    return re.findall(r"^```([\w .]+)\n(.*?)^```$", (DOCS / page).read_text(), re.MULTILINE | re.DOTALL)


ALL = sorted(path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md"))
PAGES = [page for page in ALL if page not in LONG and any(kind not in READ for kind, _ in blocks(page))]
QUICK = (
    "howto-metric.md",
    "own-data.md",
    "concepts/local-program.md",
    "concepts/protocols.md",
    "concepts/four-epsilons.md",
)
"""Pages that run with every commit; the others are slow."""


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The cache of all pages: an encoder that one of them distils, another need not distil again."""
    return tmp_path_factory.mktemp("pages") / "cache"


def run(command: list[str], folder: Path, cache: Path, seconds: int = 300) -> subprocess.CompletedProcess[str]:
    """Run a command in the folder of a page."""
    surroundings = commands.environment(cache) | {"PYTHONPATH": str(ROOT)}
    if command[: len(commands.COMMAND)] == commands.COMMAND:
        return WARM.run(command[len(commands.COMMAND) :], folder, surroundings, seconds)
    return subprocess.run(command, cwd=folder, env=surroundings, capture_output=True, text=True, timeout=seconds)


def commands_of(content: str) -> list[list[str]]:
    """Return the commands of a block, one a line."""
    lines = [shlex.split(line) for line in content.strip().replace("\\\n", " ").splitlines()]
    return [[*COMMANDS[first], *arguments] for first, *arguments in lines]


@pytest.mark.parametrize("page", mostly_slow(PAGES, QUICK))
def test_a_page_runs(page: str, tmp_path: Path, cache: Path) -> None:
    shutil.copy(ROOT / "devices.yaml", tmp_path)
    found, python = blocks(page), tmp_path / "page.py"
    for (kind, content), following in zip(found, [*(kind for kind, _ in found[1:]), ""], strict=True):
        language, _, name = kind.partition(" ")
        if language in ("python", "yaml") and name:
            (tmp_path / name).write_text(content)
        elif kind == "python":
            python.write_text((python.read_text() if python.exists() else "") + content)
            if following == "python":  # which goes on at once, and says what came before it again
                continue
            done = run([sys.executable, python.name], tmp_path, cache)
            assert done.returncode == 0, (content, done.stderr)
        elif kind == "sh refused":
            (command,) = commands_of(content)
            done = run(command, tmp_path, cache)
            commands.refused(done.returncode, done.stdout, done.stderr)
        elif kind not in READ:
            assert kind in ("sh", "sh slow"), kind
            for command in commands_of(content):
                done = run(command, tmp_path, cache)
                assert done.returncode == 0, (command, done.stdout, done.stderr)


def test_every_block_says_of_what_kind_it_is() -> None:
    assert {"index.md", "add-data.md", "api.md", METHOD} < set(PAGES)
    for page in ALL:
        fences = len(re.findall(r"^ *```", (DOCS / page).read_text(), re.MULTILINE))
        assert fences == 2 * len(blocks(page)), page


@pytest.mark.parametrize("page", [page for page in PAGES if page.startswith("howto-")])
def test_a_page_says_how_many_lines_its_file_has(page: str) -> None:
    first = next(content for kind, content in blocks(page) if " " in kind)
    lines = len(first.splitlines())
    assert f"of {lines} lines" in " ".join((DOCS / page).read_text().split()), lines
    assert page != METHOD or lines < 80


def test_the_pages_that_are_quick_are_pages() -> None:
    assert set(QUICK) <= set(PAGES)
