"""Everything a user can get wrong ends with exit code 2 and one line that says how to mend it; nothing is touched."""

from __future__ import annotations

import errno
import os
import zipfile
from pathlib import Path

import pytest

from edgefr.simulation.runs.run import Run
from tests.cli.commands import ROOT
from tests.cli.conftest import Cli, Made

FLEET = (ROOT / "devices.yaml").read_text()
SHIPPED = FLEET.splitlines()


def line_of(start: str) -> int:
    """Number of the first line of devices.yaml that starts so."""
    return next(number for number, line in enumerate(SHIPPED, 1) if line.strip().startswith(start))


def tree(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (["--set", "method=trasnfr"], ["--set method", "did you mean 'transfr'"]),
        (["--data", "ml-100l"], ["unknown data set 'ml-100l'", "did you mean 'ml-100k'"]),
        (["--device", "tpu"], ["--device", "'auto', 'cpu' or 'cuda'", "'tpu'"]),
        (["--executor", "inlin"], ["--executor", "did you mean 'inline'? (known: debug, inline, processes, ray)"]),
        (["--set", "ronuds=3"], ["--set ronuds=3", "did you mean 'rounds'"]),
        (["--set", "privacy.at-least=2"], [": privacy.at-least: unknown key 'at-least'", "did you mean 'at_least'"]),
        (["--set", "backbone=fedfm"], ["backbone", "did you mean", "fedmf"]),
        (["--set", "method=fedmf", "--set", "backbone=pfedrec"], ["backbone: fedmf has its own", "set method=pfedrec"]),
        (["--set", "method=fcucr", "--set", "backbone=fedmf"], ["fcucr has no fedmf: use one of sasrec, gru4rec, tis"]),
        (
            ["--set", "method=f3crec", "--set", "backbone=sasrec"],
            ["has no sasrec: use one of transfr, fedmf, fedncf, pfedrec"],
        ),
        (["--set", "method=fcucr", "--set", "model.encoder=gru4rec"], ["model.encoder: ", "set backbone=gru4rec"]),
        (["--set", "method=sasrec", "--set", "model.encoder=gru4rec"], ["model.encoder: ", "set method=gru4rec"]),
        (["--set", "method=fedmf", "--set", "strategy=kd"], ["strategy", "protocol.name=blocks"]),
        (
            ["--set", "aggregation.rule=median", "--set", "privacy.mechanism=laplace", "--set", "privacy.scale=1"],
            ["aggregation.rule", "with noise use mean"],
        ),
        (["--resume", "nowhere", "--seed", "3"], ["--seed cannot change a run that is resumed"]),
        (
            ["--set", "protocol={name: 9}"],
            ["unknown protocol '9'", "blocks, cross-domain, holdout, leave-one-out, sessions"],
        ),
        (
            ["--set", "method=fcucr", "--set", "protocol.gap_minutes=.nan"],
            [": protocol.gap_minutes: it should be a finite number"],
        ),
        (["--set", "method=fcucr", "--set", "protocol.gap=3"], [": protocol.gap: unknown key 'gap'", "gap_minutes"]),
        (["--set", "method=f3crec", "--set", "protocol.base=2"], [": protocol.base: it should be"]),
        (["--set", "protocol.name=cross-domain"], ["--set protocol.name", "protocol.source", "is missing"]),
        (["--set", "protocol={name: cross-domain, source: books, target: filsm}"], ["did you mean 'films'"]),
        (["--set", "rounds"], ["--set takes key=value, got 'rounds'"]),
        (["--set", "rounds=[1"], ["--set rounds=[1", "not YAML"]),
        (["--set", "rounds=x"], ["--set rounds=x", "valid integer"]),
        (["--set", "rounds.x=1"], ["--set rounds.x=1: 'rounds' is a value, not a section"]),
        (["--set", "clients_per_round=2.5"], ["--set clients_per_round=2.5", "a whole number of clients"]),
        (["--set", "model.lr=.nan"], ["--set model.lr=.nan: model.lr: "]),
        (["--set", "protocol.negatives=100000"], ["protocol.negatives is 100000", "of 800 items", "lower it"]),
        (["--set", "protocol.min_interactions=9999"], ["no user", "lower protocol.min_interactions"]),
        (["--set", "data_options={users: 60, items: 160}", "--set", "negatives=1001"], ["less than or equal to 1000"]),
        (["--set", "privacy.mechanism=gaussian"], ["exactly one of sigma, epsilon, scale"]),
        (["--set", "privacy.sigma=1"], ["sigma belongs to", "and mechanism is none"]),
        (
            ["--set", "privacy={mechanism: laplace, clip: 1, sigma: 1}", "--set", "aggregation.weights=size"],
            ["--set aggregation.weights=size: aggregation.weights: ", "use uniform"],
        ),
        (
            ["--set", "method=fedmf", "--set", "privacy.at_least=9999"],  # known when the run begins, after its data
            ["at_least 9999 is more than the 600 clients of a round", "lower it"],
        ),
        (["--set", "method=fedmf", "--set", "privacy.tensors=[user]"], ["no shared tensor 'user'", "'item'"]),
        (["--set", "fleet.share={phone_sd680: 0.5}"], ["shares sum to 0.5, not 1"]),
        (["--set", "fleet.rounds.deadline_s=-1"], ["deadline_s", "greater than 0"]),
        (["--set", "name=../etc"], ["--set name=../etc"]),
        (["--seed", "2147483647", "--seeds", "2"], ["use a smaller --seed"]),
        (["--seeds", "0"], ["'--seeds'", "greater than or equal to 1", "see edgefr simulate --help"]),
        (["--sead", "3"], ["--sead", "--seed"]),
        (["--data", "ml-100k"], ["grouplens.org", "licence", "--data-dir or EDGEFR_DATA"]),
        (["--data", "ml-100k", "--data-dir", "/nowhere"], ["/nowhere/ml-100k.zip is not there", "grouplens.org"]),
        (["--experiment", "/nowhere.yaml"], ["cannot read /nowhere.yaml", "check the path"]),
        (["--out", "/proc/edgefr"], ["cannot make the run folder /proc/edgefr", "choose another --out"]),
        (["--set", "encoder.distill.teacher=/nowhere"], ["/nowhere", "give a transformers folder"]),
        (["--set", "encoder.distill.layers=3"], ["layer_map", "use layer_map: [2, 4, 6]"]),
    ],
    ids=lambda value: " ".join(value) if value and value[0].startswith("--") else "",
)
def test_simulate(arguments: list[str], parts: list[str], cli: Cli, tmp_path: Path) -> None:
    out = [] if "--out" in arguments else ["--out", str(tmp_path / "run")]
    line = cli.refused("simulate", *arguments, *out)
    assert [part for part in parts if part not in line] == [], line
    assert list(tmp_path.iterdir()) == [], "a refused run left something behind"


@pytest.mark.parametrize(
    ("content", "parts"),
    [
        (b"", ["the file is empty"]),
        (b"\x7fELF\x00\x01\xff", ["not a text file"]),
        (b"x: !!python/object/apply:os.system ['true']\n", [":1:"]),
        (FLEET.replace("phone_sd680: 0.25", "phone_sd680: 0.35").encode(), ["shares sum to 1.1, not 1", "fleet.share"]),
        (
            FLEET.replace("phone_sd680: 0.25", "phone_sd681: 0.25").encode(),
            [f":{line_of('phone_sd680: 0.25')}:", "did you mean 'phone_sd680'"],
        ),
        (FLEET.replace("dropout: 0.1", "dropuot: 0.1").encode(), [f":{line_of('dropout')}:", "did you mean 'dropout'"]),
        (FLEET.replace("total_mb: 512", "total_mb: -512").encode(), ["memory.total_mb", "greater than 0", "-512"]),
        (FLEET.replace("{v: 350, kind: E", "{v: .nan, kind: E").encode(), ["memory.app_mb.v", "finite", "nan"]),
        (FLEET.replace("{v: 350, kind: E", "{v: .inf, kind: E").encode(), ["memory.app_mb.v", "finite", "inf"]),
    ],
    ids=lambda value: value[:40].decode(errors="replace") if isinstance(value, bytes) else value[-1],
)
def test_devices_file(content: bytes, parts: list[str], cli: Cli, tmp_path: Path) -> None:
    file = tmp_path / "devices.yaml"
    file.write_bytes(content)
    for command in (["devices"], ["simulate", "--out", str(tmp_path / "run")]):
        line = cli.refused(*command, "--devices", file)
        assert str(file) in line
        assert [part for part in parts if part not in line] == [], line
    assert tree(tmp_path) == {"devices.yaml": content}


def test_experiment_file(cli: Cli, tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    for content, parts in (
        ("rounds: 3\nmodel:\n  lr: 0\n", [":3:", "model.lr", "greater than 0"]),
        ("rounds: 3\nmodle: {}\n", [":2:", "did you mean 'model'"]),
        ("encoder:\n  distill:\n    stpes: 2\n", [":3:", "did you mean 'steps'"]),
        ("privacy:\n  mechanism: gaussian\n", [":1:", "privacy", "exactly one of"]),
    ):
        file.write_text(content)
        line = cli.refused("simulate", "--experiment", file, "--out", tmp_path / "run")
        assert [part for part in [str(file), *parts] if part not in line] == [], line
    assert [p.name for p in tmp_path.iterdir()] == ["mine.yaml"]


RATINGS = "196\t2\t3\t881250949\n22\t1\t5\t881250000\n196\t3\t1\t881250949\n"


@pytest.mark.parametrize(
    ("ratings", "cut", "parts"),
    [
        (RATINGS, 40, ["ml-100k.zip"]),
        (RATINGS.replace("22\t1", "22\tx"), None, ["u.data", "2"]),
        (RATINGS.replace("\t881250000", ""), None, ["u.data", "2"]),
        ("", None, ["u.data"]),
        (RATINGS, None, ["no user", "lower protocol.min_interactions"]),
    ],
    ids=["truncated", "not a number", "short row", "no rows", "too few interactions"],
)
def test_archive(ratings: str, cut: int | None, parts: list[str], cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "ml-100k.zip"
    with zipfile.ZipFile(path, "w") as out:
        out.writestr("ml-100k/u.genre", "unknown|0\nAction|1\n")
        out.writestr("ml-100k/u.item", "".join(f"{n}|Film {n}|01-Jan-1995||http://x|0|1\n" for n in (1, 2, 3)))
        out.writestr("ml-100k/u.data", ratings)
    path.write_bytes(path.read_bytes()[slice(None) if cut is None else slice(-cut)])
    before = path.read_bytes()
    line = cli.refused("simulate", "--data", "ml-100k", "--data-dir", tmp_path, "--out", tmp_path / "run")
    assert [part for part in parts if part not in line] == [], line
    assert tree(tmp_path) == {"ml-100k.zip": before}


@pytest.mark.slow
def test_a_folder_that_is_taken_is_left_alone(transfr: Made, place: Path, cli: Cli, tmp_path: Path) -> None:
    before = tree(transfr.run.path)
    line = cli.refused("simulate", "--experiment", place / "tiny.yaml", "--out", transfr.run.path)
    assert f"{transfr.run.path} already holds another run; choose another --out" in line
    assert tree(transfr.run.path) == before
    (tmp_path / "notes.txt").write_text("mine")
    assert "already holds other files" in cli.refused("simulate", "--out", tmp_path)
    assert "already holds other files" in cli.refused("simulate", "--out", tmp_path / "notes.txt")
    assert tree(tmp_path) == {"notes.txt": b"mine"}


def test_other_commands(transfr: Made, fedmf: Made, cli: Cli, tmp_path: Path) -> None:
    bundle = transfr.run.path / "bundles" / "laptop_x86"
    text = tmp_path / "texts.txt"
    text.write_text("\n \n")
    binary = tmp_path / "binary.txt"
    binary.write_bytes(b"\xff\xfe")
    new = str(tmp_path / "new")
    for arguments, part in (
        (["recommend", str(tmp_path)], "is not a bundle"),
        (["recommend"], "see edgefr recommend --help"),
        (["recommend", str(bundle), "--user", "nobody"], "carries no users, so it does not know 'nobody'"),
        (["recommend", str(bundle), "--exclude", "nothing"], "unknown item 'nothing'"),
        (["recommend", str(bundle), "--k", "0"], "greater than or equal to 1"),
        (["export", "--run", str(tmp_path), "--out", new], "is not a run folder"),
        (["export", "--run", str(fedmf.run.path), "--out", new], "name one of them, for example"),
        (["export", "--run", str(transfr.run.path), "--out", str(text)], str(text)),
        (["distill", "--out", new, "--device", "tpu"], "unknown device 'tpu'"),
        (["distill", "--out", new, "--texts", "/nowhere"], "cannot read /nowhere"),
        (["distill", "--out", new, "--texts", str(text)], "holds no text"),
        (["distill", "--out", str(text)], "exists; choose another --out"),
        (["distill", "--out", new, "--set", "encoder.distill=null"], "reads with the teacher itself"),
        (["distill", "--out", new, "--set", "encoder.kind=hash"], "distils nothing; set encoder.kind=student"),
        (["pretrain", "--out", new, "--texts", str(binary)], "is not UTF-8"),
        (["pretrain", "--out", new, "--texts", str(text), "--heads", "5"], "heads must divide hidden"),
        (["simulat"], "No such command"),
    ):
        line = cli.refused(*arguments)
        assert part in line, line
    assert {p.name for p in tmp_path.iterdir()} == {"texts.txt", "binary.txt"}


def test_a_run_that_did_not_finish_is_not_exported(transfr: Made, cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "experiment.yaml").write_text((transfr.run.path / "experiment.yaml").read_text())
    line = cli.refused("export", "--run", tmp_path, "--out", tmp_path / "new")
    assert line.endswith(f"did not finish (no summary.json); go on with edgefr simulate --resume {tmp_path}")


@pytest.mark.parametrize("file", ["experiment.yaml", "model.safetensors", "metrics.parquet", "bundles", "summary.json"])
def test_disk_full(
    file: str, place: Path, transfr: Made, cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk is full when this file is flushed: no summary, nothing half written, other runs as they were."""
    flush, full = os.fsync, []

    def fsync(handle: int) -> None:
        name = os.readlink(f"/proc/self/fd/{handle}")
        if file in name.partition(str(tmp_path))[2]:
            full.append(name)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        flush(handle)

    before = tree(transfr.run.path)
    monkeypatch.setattr(os, "fsync", fsync)
    out = tmp_path / "run"
    bundles = "--bundles" if file == "bundles" else "--no-bundles"
    line = cli.refused("simulate", "--experiment", place / "tiny-fedmf.yaml", bundles, "--out", out)
    assert full
    assert "No space left on device" in line
    assert str(tmp_path) in line
    assert not (out / "summary.json").exists()
    assert not list(tmp_path.rglob("*.part"))
    assert out.exists() == (file != "experiment.yaml")
    assert tree(transfr.run.path) == before
    monkeypatch.undo()
    if out.exists():
        with pytest.raises(Exception, match="did not finish"):
            Run.open(out)
