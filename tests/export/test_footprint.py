"""Memory of a bundle: measured in a process of the device's own code, once per content."""

import json
from pathlib import Path

import pytest

from export.footprint import Footprint, Footprints, measure
from tests.export import worlds


def test_a_fresh_process_is_measured_and_an_encoder_takes_more() -> None:
    out, _ = worlds.exported("transfr")
    cached, encoding = measure(out / "speaker"), measure(out / "laptop")
    assert cached is not None
    assert encoding is not None
    assert 20 < cached.bare_mb < 120
    assert 5 < cached.grown_mb < encoding.grown_mb < 200


def test_what_is_no_bundle_is_not_measured(tmp_path: Path) -> None:
    assert measure(tmp_path) is None


class Scale:
    """Stands in for a process: counts what it is asked to measure."""

    def __init__(self) -> None:
        self.asked: list[Path] = []

    def __call__(self, bundle: Path) -> Footprint | None:
        self.asked.append(bundle)
        return Footprint(46.0, float(len(self.asked)))


def test_the_same_files_are_measured_once(tmp_path: Path) -> None:
    scale, path = Scale(), tmp_path / "footprints.json"

    def ask(**files: str) -> Footprint | None:
        return Footprints(path, scale).of(files, lambda: tmp_path / "bundle")

    assert ask(a="1", b="2") == ask(b="2", a="1") == Footprint(46.0, 1.0)
    assert ask(a="1", b="3") == Footprint(46.0, 2.0)
    assert scale.asked == [tmp_path / "bundle"] * 2
    assert len(json.loads(path.read_text())) == 2


@pytest.mark.parametrize("text", ["", "[1]", '{"x": 3}', '{"x": {"bare_mb": 1}}', '{"x": {"bare_mb": "a"}}'])
def test_a_damaged_file_is_measured_anew(text: str, tmp_path: Path) -> None:
    (tmp_path / "footprints.json").write_text(text)
    scale = Scale()
    assert Footprints(tmp_path / "footprints.json", scale).of({"a": "1"}, lambda: tmp_path) == Footprint(46.0, 1.0)
    assert Footprints(tmp_path / "footprints.json", scale).of({"a": "1"}, lambda: tmp_path) == Footprint(46.0, 1.0)


def test_what_cannot_be_measured_is_not_kept(tmp_path: Path) -> None:
    assert Footprints(tmp_path / "footprints.json", lambda bundle: None).of({"a": "1"}, lambda: tmp_path) is None
    assert not (tmp_path / "footprints.json").exists()


def test_a_place_that_cannot_be_written_only_costs_time(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    kept = Footprints(tmp_path / "file" / "footprints.json", Scale())
    assert kept.of({"a": "1"}, lambda: tmp_path) == Footprint(46.0, 1.0)
