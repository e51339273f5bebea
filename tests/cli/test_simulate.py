"""`edgefr simulate` end to end."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

import edgefr
from edgefr.metrics.settings import CEILINGS
from edgefr.simulation.runs.run import Run
from tests.cli.conftest import Cli, Made

PROMISED = {
    *("experiment", "method", "data", "protocol", "seed", "metrics", "blocks"),
    *("references", "privacy", "fleet", "engine", "versions"),
}
TIMINGS = {
    *("clients_per_second", "train_seconds", "eval_seconds", "wall_seconds", "peak_rss_mb", "executor", "shard_size")
}


def again(place: Path, out: Path, *overrides: str, file: str = "tiny.yaml") -> Run:
    """A small experiment in this process, without bundles."""
    return edgefr.simulate(edgefr.load_experiment(place / file, overrides), "devices.yaml", out=out, bundles=False)


def without_timing(summary: dict[str, Any]) -> dict[str, Any]:
    """What must not change from one run of an experiment to the next."""
    kept = {k: v for k, v in summary.items() if k not in ("encoder", "bundles", "blocks")}
    kept["engine"] = {k: v for k, v in summary["engine"].items() if k not in TIMINGS}
    return kept | {"blocks": [block["metrics"] for block in summary["blocks"]]}


def values(run: Run) -> dict[tuple[Any, ...], float]:
    """The metrics table by all that keys a row."""
    rows = pq.read_table(run.path / "metrics.parquet").to_pylist()
    keys = ("round", "after", "on", "stage", "group", "which", "ranking", "mask", "metric")
    out = {tuple(row[k] for k in keys): row["value"] for row in rows}
    assert len(out) == len(rows)
    return out


def test_it_ends_well_and_says_where_the_run_is(transfr: Made) -> None:
    process = transfr.process
    assert process.returncode == 0, process.stderr
    assert process.stderr == "", "nothing beside progress"
    assert process.stdout.rstrip().endswith(f"run: {transfr.run.path}")
    for part in ("transfr on demo", "popularity", "localtrain", "fleet: 2 rounds", "speaker_512", "eps GUARANTEED"):
        assert part in process.stdout
    assert "…" not in process.stdout, "a cell was cut off"
    path_line = f"run: {transfr.run.path}"
    assert max(len(line) for line in process.stdout.splitlines() if line != path_line) <= 80


def test_the_run_folder_holds_what_is_promised(transfr: Made) -> None:
    path = transfr.run.path
    assert {p.name for p in path.iterdir()} == {
        *("experiment.yaml", "devices.yaml", "resolved.json", "metrics.parquet", "events.jsonl", "summary.json"),
        *("checkpoint", "encoder", "bundles", "private", "publisher.pem", "report.html"),
    }
    assert {p.name for p in (path / "bundles").iterdir()} == {"laptop_x86", "phone_sd680", "speaker_512"}
    events = [json.loads(line) for line in (path / "events.jsonl").read_text().splitlines()]
    assert {event["round"] for event in events} == {1, 2}
    assert not [p for p in path.rglob("*") if p.suffix in (".pkl", ".pt", ".part")]


def test_what_is_of_single_users_is_for_the_owner_of_the_folder_alone(transfr: Made) -> None:
    """Tensors and users' own items lie in `checkpoint/`, candidates say what users had."""
    run = transfr.run.path
    closed = [path for name in ("private", "checkpoint") for path in (run / name, *(run / name).rglob("*"))]
    closed += run.glob("candidates.parquet")
    assert {"model.safetensors", "names.json", "signing.pem"} <= {path.name for path in closed}
    assert {path.name: path.stat().st_mode & 0o077 for path in closed if path.stat().st_mode & 0o077} == {}


def test_the_encoder_is_an_ordinary_transformers_folder(transfr: Made) -> None:
    from transformers import AutoModel

    assert AutoModel.from_pretrained(transfr.run.path / "encoder").config.hidden_size == 24


def test_the_summary_holds_what_is_promised(transfr: Made) -> None:
    summary = transfr.run.summary
    assert set(summary) >= PROMISED
    assert list(summary["stages"]["main"]) == ["random", "pretrain", "finetune", "localtrain"]
    named = {"before any round", "popularity", "chance", "TF-IDF mean", "text mean", "hybrid", *CEILINGS}
    assert set(summary["references"]["main"]) == named
    assert summary["metrics"] == summary["stages"]["main"]["localtrain"] == summary["blocks"][0]["metrics"]
    assert {"clients_per_second", "train_seconds", "eval_seconds", "metrics"} <= set(summary["blocks"][0])
    assert set(summary["fleet"]["classes"]) == {"laptop_x86", "phone_sd680", "speaker_512"}
    assert summary["privacy"]["eps_guaranteed"] == "inf"
    assert summary["transfer"] is None
    assert summary["engine"]["peak_rss_mb"] > 50
    assert all(row["top10_equal"] >= 0.99 for row in summary["bundles"])
    assert all(row["max_score_error"] < 1e-4 for row in summary["bundles"] if row["item_vectors"] == "f32")
    invited = [json.loads(line) for line in (transfr.run.path / "events.jsonl").read_text().splitlines()]
    assert summary["fleet"]["invited"] == sum(e["invited"] for e in invited if e["kind"] == "started")


def test_a_verdict_says_what_the_table_says(transfr: Made) -> None:
    summary = transfr.run.summary
    table = summary["full_ranking"]["main"]
    lines = summary["verdicts"]["main"]
    assert [line.split(": ")[0] for line in lines] == ["finetune", "localtrain"]
    for line, (stage, found) in zip(lines, summary["learning"]["main"].items(), strict=True):
        assert found["against"].keys() == table.keys() - {"finetune", "localtrain", *CEILINGS}
        assert found["ceilings"].keys() == set(CEILINGS)
        for name, other in (found["against"] | found["ceilings"]).items():
            apart = table[stage][found["metric"]] - table[name][found["metric"]]
            assert other["difference"] == pytest.approx(apart)
            assert other["low"] <= apart <= other["high"]
        beaten = all(other["low"] > 0 for other in found["against"].values())
        assert ("learning helped:" in line, found["helped"]) == (beaten, beaten)
        assert " ".join(line.split()) in " ".join(transfr.process.stdout.split())


def test_the_experiment_file_gives_the_same_experiment_and_fleet(transfr: Made) -> None:
    run = transfr.run
    assert edgefr.load_experiment(run.path / "experiment.yaml") == run.experiment
    assert run.experiment.engine.shard_size is not None
    fleet = edgefr.load_fleet(run.path / "devices.yaml")
    assert set(fleet.fleet.share) == {"laptop_x86", "phone_sd680", "speaker_512"}


@pytest.mark.usefixtures("inside")
def test_the_same_seed_gives_the_same_run(transfr: Made, place: Path, tmp_path: Path) -> None:
    same = again(place, tmp_path / "same")
    assert values(same) == values(transfr.run)
    assert without_timing(same.summary) == without_timing(transfr.run.summary)
    model = "checkpoint/model.safetensors"
    assert (same.path / model).read_bytes() == (transfr.run.path / model).read_bytes()
    assert (same.path / "events.jsonl").read_text() == (transfr.run.path / "events.jsonl").read_text()


def test_another_seed_gives_another_run(fedmf: Made) -> None:
    assert values(Run(fedmf.run.path / "seed-0")) != values(Run(fedmf.run.path / "seed-1"))


def test_seeds_give_mean_and_sd(fedmf: Made) -> None:
    process, path = fedmf.process, fedmf.run.path
    assert process.returncode == 0, process.stderr
    assert "mean ± sd of 2 seeds" in process.stdout
    assert process.stdout.rstrip().endswith(f"runs: {path}")
    runs = [Run(path / f"seed-{seed}").summary for seed in (0, 1)]
    summary = fedmf.run.summary
    assert summary["seeds"] == [0, 1]
    for metric, spread in summary["metrics"].items():
        both = [run["metrics"][metric] for run in runs]
        assert spread["mean"] == pytest.approx(sum(both) / 2)
        assert spread["sd"] == pytest.approx(abs(both[0] - both[1]) / 2**0.5)
    assert summary["references"]["main"]["popularity"].keys() == summary["metrics"].keys()


def test_fedmf_needs_no_text(fedmf: Made) -> None:
    summary = Run(fedmf.run.path / "seed-0").summary
    assert summary["method"] == "fedmf"
    assert summary["encoder"] is None
    assert list(summary["stages"]["main"]) == ["federated"]
    assert set(summary["references"]["main"]) == {
        *("before any round", "popularity", "chance", "TF-IDF mean", "hybrid"),
        *CEILINGS,
    }
    assert summary["bundles"] == []
    assert not (fedmf.run.path / "seed-0" / "encoder").exists()


@pytest.mark.usefixtures("inside")
def test_across_domains(place: Path, tmp_path: Path, cli: Any) -> None:
    task = "protocol={name: cross-domain, source: books, target: films, negatives: 40}"
    asked = ("--experiment", place / "tiny.yaml", "--set", task, "--no-bundles", "--full", "--out", tmp_path / "r")
    out = cli.done("simulate", *asked)
    assert "transfr on demo: target" in out
    assert "transfer after local training" in out
    summary = Run(tmp_path / "r").summary
    assert list(summary["stages"]) == ["source", "target"]
    assert {"text mean, cold", "hybrid", "hybrid, cold"} <= set(summary["references"]["target"])
    for metric, row in summary["transfer"].items():
        source, target = (summary["stages"][split]["localtrain"][metric] for split in ("source", "target"))
        assert (row["source"], row["target"]) == (source, target)
        assert row["delta"] == pytest.approx((source - target) / source)
    assert summary["metrics"] == summary["stages"]["target"]["localtrain"]


@pytest.mark.usefixtures("inside")
def test_noise_with_a_clip_guarantees_something_and_without_nothing(place: Path, tmp_path: Path, cli: Any) -> None:
    base = ("simulate", "--experiment", place / "tiny-fedmf.yaml", "--no-bundles", "--full")
    base += ("--set", "privacy.mechanism=gaussian")
    code, out, _ = cli(*base, "--set", "privacy.clip=0.5", "--set", "privacy.sigma=2", "--out", tmp_path / "clipped")
    assert code == 0
    report = Run(tmp_path / "clipped").summary["privacy"]
    assert 0 < report["eps_guaranteed"] < 10
    assert report["trust"] == "central"
    assert report["adjacency"] == "zero-out"
    assert report["rounds"] == 2
    assert report["clip"]["p90_norm"] is report["eps_hypothetical"] is None
    kept = tmp_path / "clipped" / "private" / "norms.json"
    exact = json.loads(kept.read_text())["clipped_share"]
    assert exact > 0
    assert 0 < abs(report["clip"]["clipped_share"] - exact) < 4 * report["clip"]["std"]  # it is told with noise
    assert kept.stat().st_mode & 0o777 == 0o600
    assert f"{report['eps_guaranteed']:.4g}" in out
    code, out, _ = cli(*base, "--set", "privacy.scale=0.1", "--out", tmp_path / "free")
    assert code == 0
    report = Run(tmp_path / "free").summary["privacy"]
    assert report["eps_guaranteed"] == "inf"
    assert report["eps_nominal"] > 0
    assert report["clip"]["p90_norm"] > 0, "nothing is guaranteed, so it may be told"
    assert "without a clip the noise guarantees nothing" in " ".join(out.replace("│", " ").split())


@pytest.mark.usefixtures("inside")
def test_a_noise_key_is_one_experiments(place: Path, tmp_path: Path, cli: Cli) -> None:
    """With the same noise on two results, their difference would be what the noise was to hide."""
    base = ("simulate", "--experiment", place / "tiny-fedmf.yaml", "--no-bundles")
    base += ("--set", "privacy.mechanism=gaussian")
    asked = (*base, "--set", "privacy.clip=1", "--set", "privacy.sigma=2")
    assert cli(*asked, "--out", tmp_path / "first")[0] == 0
    same = ("--noise-key", tmp_path / "first" / "private" / "noise.key")
    assert cli(*asked, *same, "--out", tmp_path / "again")[0] == 0
    first, again = (Run(tmp_path / name).read_tensors("model")["shared.item"] for name in ("first", "again"))
    assert bool((first == again).all())
    line = cli.refused(*asked, *same, "--set", "model.lr=0.5", "--out", tmp_path / "other")
    assert "this noise key has made the noise of another experiment" in line
    assert not (tmp_path / "other").exists()


def test_divergence_is_said_and_no_rounds_is_a_run(place: Path, tmp_path: Path, cli: Any) -> None:
    base = ("simulate", "--experiment", place / "tiny-fedmf.yaml", "--no-bundles", "--full")
    hot = ("--set", "model.lr=1e30", "--set", "local_epochs=4", "--set", "model.item_lr=1e30")
    code, out, _ = cli(*base, *hot, "--out", tmp_path / "hot")
    assert code == 0
    dropped = Run(tmp_path / "hot").summary["engine"]["dropped_updates"]
    assert dropped > 0
    assert f"warning: {dropped} client updates dropped for NaN or infinite values" in " ".join(out.split())
    code, out, _ = cli(*base, "--set", "rounds=0", "--out", tmp_path / "none")
    assert code == 0
    assert Run(tmp_path / "none").summary["fleet"]["invited"] == 0
    assert "fleet: 0 rounds" in out
