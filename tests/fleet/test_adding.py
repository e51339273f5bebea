"""A device class of one's own: what is given, what is assumed, and a fleet file that stays one."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from edgefr.cli.app import main
from edgefr.config.packaged_files import shipped
from edgefr.fleet import load_fleet
from edgefr.fleet.add_class import DeviceFigures, add, nearest
from edgefr.fleet.spec import SHIPPED
from privacy.errors import InputError
from tests.cli import commands

PHONE = DeviceFigures(memory_mb=3000, gflops=30, battery_wh=12)


def test_the_fleet_that_ships_is_found_from_anywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    assert load_fleet("devices.yaml").devices.keys() == load_fleet(shipped(SHIPPED)).devices.keys()
    assert load_fleet().devices.keys() == load_fleet(shipped(SHIPPED)).devices.keys()
    with pytest.raises(InputError, match=r"cannot read other\.yaml"):
        load_fleet("other.yaml")
    (tmp_path / "devices.yaml").write_text("schema: mine\n")
    with pytest.raises(InputError, match=r"devices\.yaml:1"):
        load_fleet("devices.yaml")


def test_the_wheel_takes_the_fleet_and_search_spaces_along():
    import tomllib

    built = tomllib.loads((commands.ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
    assert built["force-include"] == {
        name: f"edgefr/{name}" for name in ("devices.yaml", "experiments/spaces", "conformance")
    }


def test_what_is_not_given_is_assumed_and_says_so(tmp_path: Path):
    path = tmp_path / "mine.yaml"
    added = add(path, "my_phone", PHONE)
    before, after = load_fleet(shipped(SHIPPED)), load_fleet(path)
    own, like = after.devices["my_phone"], before.devices[added.like]
    assert added.like == "phone_sd680"
    assert (own.memory.total_mb, own.compute.fp32_gflops.v) == (3000, 30)
    assert own.power.battery_wh is not None
    assert own.power.battery_wh.v == 12
    assert own.memory.app_mb.v == pytest.approx(like.memory.app_mb.v * 3000 / like.memory.total_mb, rel=0.01)
    assert own.compute.int8_gops.v == pytest.approx(
        like.compute.int8_gops.v * 30 / like.compute.fp32_gflops.v, rel=0.01
    )
    assert own.memory.app_mb.kind == own.memory.copy_gbs.kind == "E"
    assert any("659 MB" in line for line in added.assumed)
    assert {name: device for name, device in after.devices.items() if name != "my_phone"} == before.devices
    assert after.fleet == before.fleet, "nobody has it yet"
    assert path.read_text().count("#") == shipped(SHIPPED).read_text().count("#"), "comments stay"


def test_a_second_one_goes_beside_the_first(tmp_path: Path):
    path = tmp_path / "mine.yaml"
    add(path, "one", PHONE)
    add(path, "two", DeviceFigures(512, 8, 0, app_mb=200, active_w=2.5, label="a box"), like="speaker_512")
    two = load_fleet(path).devices["two"]
    assert (two.power.battery_wh, two.memory.app_mb.v, two.power.active_w.v, two.label) == (None, 200, 2.5, "a box")
    assert "one" in load_fleet(path).devices


def test_the_nearest_has_a_battery_or_has_none():
    spec = load_fleet(shipped(SHIPPED))
    assert nearest(spec, DeviceFigures(512, 8, 0)) == "rpi_zero_2w"
    assert nearest(spec, DeviceFigures(2048, 6, 1)) == "watch_w5"
    assert nearest(spec, DeviceFigures(16384, 280, 50)) == "laptop_x86"


@pytest.mark.parametrize(
    ("name", "known", "like", "said"),
    [
        ("My Phone", PHONE, None, "small letters"),
        ("a\nb", PHONE, None, "small letters"),
        ("phone_sd680", PHONE, None, "has a class phone_sd680 already"),
        ("mine", PHONE, "phone", "unknown device class 'phone'; did you mean"),
        ("mine", DeviceFigures(0, 30, 1), None, "the memory of a device is above 0"),
        ("mine", DeviceFigures(100, float("nan"), 1), None, "the rate of a device is above 0"),
        ("mine", DeviceFigures(100, 30, -1), None, "battery-wh is 0 on mains power"),
    ],
)
def test_what_cannot_be_added_is_refused(tmp_path: Path, name: str, known: DeviceFigures, like: str | None, said: str):
    with pytest.raises(InputError, match=said):
        add(tmp_path / "mine.yaml", name, known, like)
    assert not (tmp_path / "mine.yaml").exists()


def test_a_label_is_no_yaml(tmp_path: Path):
    label = 'a: "b" # c\n- !!python/x'
    add(tmp_path / "mine.yaml", "mine", DeviceFigures(3000, 30, 12, label=label))
    assert load_fleet(tmp_path / "mine.yaml").devices["mine"].label == label


def run(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr(sys, "argv", ["edgefr", "devices", *arguments])
    with pytest.raises(SystemExit) as ended:
        main()
    return int(ended.value.code or 0)


def test_the_command_names_all_that_is_missing_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
):
    monkeypatch.chdir(tmp_path)
    assert run(monkeypatch, "add", "mine", "--gflops", "30") == 2
    assert "needs --memory-mb, --battery-wh" in capfd.readouterr().err
    assert run(monkeypatch, "add", "mine", "--gflops", "30", "--memory-mb", "3000", "--battery-wh", "0") == 0
    assert "assumed, as estimates: memory an app may use" in capfd.readouterr().out
    assert run(monkeypatch) == 0
    assert "mine" in capfd.readouterr().out
