"""What stands around the code keeps what it promises: one version, types, how to cite, a README that is a page."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
import yaml

import edgefr

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
