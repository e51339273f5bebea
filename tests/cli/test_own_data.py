"""A stranger's file goes through the command line: looked at, simulated, exported, learned from on a device."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import yaml

import edgefr
from tests.cli import commands
from tests.cli.conftest import Cli


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write orders as a spreadsheet does: odd names, spaces, a BOM, ISO dates, rows twice, and a list of products."""
    folder, draw = tmp_path_factory.mktemp("shop"), np.random.default_rng(0)
    lines = ["Customer Nr;Artikel ; Bought at;Stars"]
    for number in range(600):
        who, what, day = draw.integers(40), draw.integers(90), np.datetime64("2022-01-01") + draw.integers(700)
        lines.append(
            f' K-{who:03} ;"{what}; size {what % 3}";{day} {number % 24:02}:{number % 60:02}:00;{draw.integers(1, 6)}'
        )
    lines += lines[5:25]
    (folder / "orders 2022.csv").write_bytes(b"\xef\xbb\xbf" + "\r\n".join(lines).encode() + b"\r\n\r\n")
    products = [f'"{what}; size {what % 3}",Cup number {what},"Kitchen, blue"' for what in range(90)]
    (folder / "products.csv").write_text("\n".join(["Nr,Product name,Category", *products]) + "\n")
    return folder


READ = [
    "data_options.columns.user=Customer Nr",
    "data_options.columns.item=Artikel",
    "data_options.columns.time=Bought at",
]
ITEMS = ["data_options.items=products.csv", "data_options.columns.listed=Nr"]


def told(*values: str) -> list[str]:
    return [part for value in values for part in ("--set", value)]


DEVICES = ("--devices", commands.ROOT / "devices.yaml")


def refused(*arguments: str | Path, cache: Path, cwd: Path) -> str:
    process = commands.edgefr(*arguments, cache=cache, cwd=cwd)
    return commands.refused(process.returncode, process.stdout, process.stderr)


def test_what_is_missing_is_asked_for_before_anything_is_loaded(shop: Path, tmp_path: Path) -> None:
    line = refused("data", "orders 2022.csv", cache=tmp_path, cwd=shop)
    assert "say which by data_options.columns.user=NAME (it has: Customer Nr, Artikel , Bought at, Stars)" in line
    asked = (*DEVICES, *told(*READ, "protocol.negatives=9"), "--out", tmp_path / "run")
    line = refused("simulate", "--data", "orders 2022.csv", *asked, cache=tmp_path, cwd=shop)
    assert "transfr reads the texts of items, and 'orders 2022.csv' has none; name a file of items" in line
    assert "--method fedmf or fedncf" in line
    assert not (tmp_path / "run").exists()


def test_from_a_survey_to_a_device(shop: Path, tmp_path: Path) -> None:
    written = tmp_path / "start.yaml"
    look = ("data", "orders 2022.csv", *told(*READ, *ITEMS), "--out", written)
    looked = commands.done(*look, cache=tmp_path, cwd=shop)
    for part in ("user: Customer Nr", "40, with ", "90 of 90 items", "20 of 620 rows repeat another", "fits: 40 users"):
        assert part in looked, looked
    assert looked.endswith(f"wrote {written}\n")
    assert written.read_text() in looked, "what is printed is what is written"
    assert "is there already" in refused(*look, cache=tmp_path, cwd=shop)
    experiment = yaml.safe_load(written.read_text())
    assert experiment["method"] == "transfr"
    experiment |= {"method": "fedmf", "rounds": 2, "model": {"dim": 4}}
    experiment["fleet"] = {"share": {"laptop_x86": 0.5, "phone_sd680": 0.5}}
    (shop / "start.yaml").write_text(yaml.safe_dump(experiment))

    run, shipped = tmp_path / "run", tmp_path / "shipped"
    common = (*DEVICES, "--no-bundles", "--out", run)
    commands.done("simulate", "--experiment", "start.yaml", *common, cache=tmp_path, cwd=shop)
    about = edgefr.Run.open(run).summary["dataset"]
    assert (about["users"], about["items"], about["items_with_text"]) == (40, 90, 90)
    assert about["source"]["columns"]["time"] == " Bought at"
    commands.done("export", "--run", run, "--out", shipped, cache=tmp_path)
    ask = ("--state", tmp_path / "state", "--user", "K-007", "--item", "5; size 2", "--item", "8; size 2")
    assert "optimiser steps" in commands.done("device", "learn", shipped / "phone_sd680", *ask, cache=tmp_path)


def test_a_split_of_ones_own_with_several_items_a_user_goes_to_a_bundle(cli: Cli, tmp_path: Path) -> None:
    draw = np.random.default_rng(2)
    rows = [(user, item, place) for user in range(20) for place, item in enumerate(draw.permutation(40)[:12])]
    part = dict.fromkeys(range(8), "train") | dict.fromkeys((8, 9), "valid")
    lines = [f"u{user},i{item},{1_600_000_000 + place},{part.get(place, 'test')}" for user, item, place in rows]
    (tmp_path / "own.csv").write_text("\n".join(["user,item,time,split", *lines]))
    values = [f"data={tmp_path / 'own.csv'}", "method=fedmf", "protocol.name=holdout", "protocol.by=column", "rounds=2"]
    code, out, err = cli(
        "simulate", *[part for value in values for part in ("--set", value)], "--out", tmp_path / "run"
    )
    assert (code, "error" in err) == (0, False)
    assert "full ranking, 20 users" in out
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert summary["protocol"].startswith("hold-out by column: 20 of 20 users are tested on 40 items")
    assert "hold-out by column" in (tmp_path / "run" / "report.html").read_text()
    code, out, err = cli("recommend", tmp_path / "run" / "bundles" / "laptop_x86", "--k", "3")
    assert code == 0
    assert "rank" in out
