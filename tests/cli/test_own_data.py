"""A stranger's file goes through the command line: looked at, simulated, exported, learned from on a device."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import yaml

import edgefr
from tests.cli import commands


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


def test_what_is_missing_is_asked_for(shop: Path, tmp_path: Path) -> None:
    done = commands.edgefr("data", "orders 2022.csv", cache=tmp_path, cwd=shop)
    line = commands.refused(done.returncode, done.stdout, done.stderr)
    assert "say which by data_options.columns.user=NAME (it has: Customer Nr, Artikel , Bought at, Stars)" in line


def test_a_method_that_reads_says_so_before_it_loads(shop: Path, tmp_path: Path) -> None:
    values = told(*READ, "protocol.negatives=9")
    devices = ("--devices", commands.ROOT / "devices.yaml")
    out = ("--out", tmp_path / "run")
    done = commands.edgefr("simulate", "--data", "orders 2022.csv", *devices, *values, *out, cache=tmp_path, cwd=shop)
    line = commands.refused(done.returncode, done.stdout, done.stderr)
    assert "transfr reads the texts of items, and 'orders 2022.csv' has none; name a file of items" in line
    assert "--set method=fedmf or fedncf" in line
    assert not (tmp_path / "run").exists()


def test_from_a_survey_to_a_device(shop: Path, tmp_path: Path) -> None:
    written = tmp_path / "start.yaml"
    look = ("data", "orders 2022.csv", *told(*READ, *ITEMS), "--out", written)
    looked = commands.edgefr(*look, cache=tmp_path, cwd=shop)
    assert looked.returncode == 0, looked.stderr
    for part in ("user: Customer Nr", "40, with ", "90 of 90 items", "20 of 620 rows repeat another", "fits: 40 users"):
        assert part in looked.stdout, looked.stdout
    assert looked.stdout.endswith(f"wrote {written}\n")
    assert written.read_text() in looked.stdout, "what is printed is what is written"
    again = commands.edgefr(*look, cache=tmp_path, cwd=shop)
    assert "is there already" in commands.refused(again.returncode, again.stdout, again.stderr)
    experiment = yaml.safe_load(written.read_text())
    assert experiment["method"] == "transfr"
    experiment |= {"method": "fedmf", "rounds": 2, "model": {"dim": 4}}
    experiment["fleet"] = {"share": {"laptop_x86": 0.5, "phone_sd680": 0.5}}
    (shop / "start.yaml").write_text(yaml.safe_dump(experiment))

    run = tmp_path / "run"
    devices = ("--devices", commands.ROOT / "devices.yaml")
    common = (*devices, "--no-bundles", "--out", run)
    done = commands.edgefr("simulate", "--experiment", "start.yaml", *common, cache=tmp_path, cwd=shop)
    assert done.returncode == 0, done.stderr
    about = edgefr.Run.open(run).summary["dataset"]
    assert (about["users"], about["items"], about["items_with_text"]) == (40, 90, 90)
    assert about["source"]["columns"]["time"] == " Bought at"

    done = commands.edgefr("export", "--run", run, "--out", tmp_path / "shipped", cache=tmp_path)
    assert done.returncode == 0, done.stderr
    bundle = tmp_path / "shipped" / "phone_sd680"
    ask = ("--state", tmp_path / "state", "--user", "K-007", "--item", "5; size 2", "--item", "8; size 2")
    done = commands.edgefr("device", "learn", bundle, *ask, cache=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "optimiser steps" in done.stdout
