"""What stands around the code keeps what it promises: one version, types, how to cite, a README that is a page."""

from __future__ import annotations

import importlib
import re
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

import edgefr
from tests.house import House, Source, circles, floors, room

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
README = (ROOT / "README.md").read_text()


def test_the_version_stands_in_one_place() -> None:
    version = PROJECT["project"]["version"]
    assert edgefr.__version__ == version
    newest = re.findall(r"^## \[([\d.]+)\]", (ROOT / "CHANGELOG.md").read_text(), re.M)[0]
    assert newest == version, "the changelog begins with another one"
    stated = [
        path for path in ROOT.glob("*/**/*.py") if f'"{version}"' in path.read_text() and "tests" not in path.parts
    ]
    assert stated == []


@pytest.mark.parametrize("room", PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"])
def test_every_room_of_the_wheel_is_typed(room: str) -> None:
    assert (ROOT / room / "py.typed").read_text() == ""


def test_it_can_be_cited_with_the_papers_it_runs() -> None:
    found = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert found["cff-version"] == "1.2.0"
    assert found["license"] == PROJECT["project"]["license"]
    assert found["authors"] == [{"name": "The edgefr authors"}]
    titles = " ".join(paper["title"] for paper in found["references"])
    for words in (
        "TransFR",
        "Federated Continual Recommendation",
        "Evolving Preferences",
        "Context-Aware Personalized",
    ):
        assert words in titles
    assert all(paper["authors"] and paper["year"] >= 2024 for paper in found["references"])


def test_the_readme_sets_up_by_two_commands() -> None:
    assert re.findall(r"^    (pip install .*)$", README, re.M) == [
        "pip install -e '.[cloud,teacher]' && edgefr simulate --devices devices.yaml",
        "pip install -e '.[cloud,teacher,test]' && pytest",
    ]
    assert len(README.splitlines()) <= 110, "it is a page; what is longer stands in docs/"


def test_the_readme_shows_a_first_screen_and_a_picture() -> None:
    start = README.index("    transfr on demo: ")
    screen = README[start : README.index("runs/demo\n\n", start)].splitlines()
    assert len(screen) <= 24
    assert max(map(len, screen)) <= 4 + 100
    (picture,) = re.findall(r"!\[.+\]\((.+\.png)\)", README)
    content = (ROOT / picture).read_bytes()
    assert content.startswith(b"\x89PNG")
    assert len(content) < 200_000


ORDER = (
    "edgefr/cli",
    "edgefr/serving edgefr/studies",
    "edgefr/simulation",
    "edgefr/methods",
    "edgefr/experiment edgefr/engine edgefr/report",
    "edgefr/data edgefr/fleet edgefr/metrics",
    "edgefr/config",
    "export",
    "edge cloud",
    "privacy",
)
"""Rooms from the top down; those of one line do not use each other."""
TERMS = frozenset(
    {"accounting", "clipping", "filtering", "learning", "numbering", "pacing", "padding", "pooling", "ranking"}
    | {"sampling", "scoring", "secret_sharing", "sorting", "training", "trimming", "kernel_training", "xing"}
    | {
        "keyed",
        "ragged",
        "paired",
        "delimited",
        "regularised",
        "norm_bounded",
        "unclipped",
        "published",
        "finding",
        "forgetting",
    }
)
"""Names of modules that end like a participle and are the field's own."""


def upward(rooms: dict[str, set[str]]) -> list[str]:
    """Return the arrows between rooms that do not go down."""
    high = {name: -floor for floor, names in enumerate(ORDER) for name in names.split()}
    return [f"{a} -> {b}" for a, used in rooms.items() for b in used if high.get(b, 0) >= high.get(a, 0)]


def unsaid(source: Source) -> bool:
    """Say whether a folder does not tell what it owns and what it does not own."""
    return source.path.endswith("__init__.py") and not (
        "Owns:" in source.docstring and "Does not own:" in source.docstring
    )


def too_long(source: Source) -> list[str]:
    """Return a file, or functions of it, that nobody can see whole; commands list their options."""
    long = [source.path] if source.text.count("\n") > 400 else []
    return long + [f"{source.path}:{name}" for name, lines in source.functions() if lines > 60]


def participle(source: Source) -> bool:
    """Say whether a module is called by a bare participle that is no term."""
    name = source.path.rsplit("/", 1)[1].removesuffix(".py")
    return name.endswith(("ed", "ing")) and name not in TERMS


@pytest.fixture(scope="module")
def house() -> House:
    return House(ROOT)


def test_no_files_go_round_also_not_by_types_or_late_imports(house: House) -> None:
    assert circles(house.arrows) == []


def test_rooms_use_what_lies_below_them(house: House) -> None:
    assert set(house.rooms) == set(" ".join(ORDER).split())
    assert upward(house.rooms) == []
    assert max(floors(house.rooms).values()) <= 8


@pytest.mark.parametrize(
    ("module", "name"),
    [
        ("privacy.belongs", "ReadWith"),
        ("edgefr.methods", "METHODS"),
        ("edgefr.methods.f3crec.strategies", "STRATEGIES"),
        ("edgefr.data", "READERS"),
        ("edgefr.experiment", "Experiment"),
        ("edgefr.testing", "check_method"),
        ("edgefr.tracking.tracker", "Tracker"),
    ],
)
def test_paths_that_the_changelog_keeps_hand_names_on(module: str, name: str) -> None:
    assert hasattr(importlib.import_module(module), name)


def test_nothing_lies_loose(house: House) -> None:
    loose = [path.name for path in (ROOT / "edgefr").glob("*.py")]
    assert sorted(loose) == ["__init__.py", "__main__.py"]


@pytest.mark.parametrize("rule", [unsaid, too_long, participle])
def test_every_file_keeps_the_rules_of_the_house(house: House, rule: Callable[[Source], object]) -> None:
    assert [source.path for source in house.sources.values() if rule(source)] == []


def test_the_rules_are_awake(tmp_path: Path) -> None:
    """A house that breaks each of them, once."""
    files = {
        "edgefr/data/__init__.py": '"""A room."""',
        "edgefr/data/opened.py": "if 0:\n    from edgefr.data.rows import read\ndef see(): ...",
        "edgefr/data/rows.py": "def read():\n    from edgefr.data.opened import see\n" + "    see()\n" * 400,
        "edgefr/cli/app.py": "from edgefr.data import rows",
        "edgefr/metrics/names.py": "import edgefr.cli.app",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    broken = House(tmp_path)
    assert circles(broken.arrows) == [["edgefr/data/opened.py", "edgefr/data/rows.py"]]
    assert upward(broken.rooms) == ["edgefr/metrics -> edgefr/cli"]
    found = {rule: [s.path for s in broken.sources.values() if rule(s)] for rule in (unsaid, too_long, participle)}
    assert found == {
        unsaid: ["edgefr/data/__init__.py"],
        too_long: ["edgefr/data/rows.py"],
        participle: ["edgefr/data/opened.py"],
    }
    assert room("edgefr/data/rows.py") == "edgefr/data"
