"""Finished runs beside each other: what is claimed, what is refused, and what is written."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import edgefr
from edgefr.report.verdict import verdicts
from edgefr.studies.comparisons.finished_run import read
from privacy.errors import InputError
from tests.cli import commands

SMALL = ["rounds=1", "model.dim=4", "protocol.negatives=20", "data_options={users: 50, items: 110, interactions: 14}"]


def made(out: Path, *overrides: str, seeds: int = 1) -> Path:
    experiment = edgefr.load_experiment(overrides=["method=fedmf", *SMALL, *overrides])
    asked: dict[str, Any] = {"devices": commands.ROOT / "devices.yaml", "bundles": False, "page": False}
    if seeds == 1:
        edgefr.simulate(experiment, out=out, **asked)
    else:
        edgefr.simulate_seeds(experiment, seeds, out, **asked)
    return out


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Runs of one protocol by two methods, one of them with more seeds, and runs that asked something else."""
    at, blocks = tmp_path_factory.mktemp("runs"), "protocol={name: blocks, min_interactions: 2, increments: 2}"
    return {
        "fedmf": made(at / "fedmf"),
        "slow": made(at / "slow", "model.lr=0.01"),
        "seeds": made(at / "seeds", seeds=3),
        "more": made(at / "more", "model.lr=0.01", seeds=2),
        "blocks": made(at / "blocks", blocks),
        "other blocks": made(at / "other-blocks", blocks, "model.lr=0.01"),
    }


def changed(path: Path, change: Callable[[pd.DataFrame], pd.DataFrame]) -> Path:
    """Change the users' metrics of a run."""
    file = path / "private" / "users.parquet"
    change(pd.read_parquet(file)).to_parquet(file)
    return path


def test_a_run_is_not_compared_with_itself(runs: dict[str, Path], tmp_path: Path):
    (tmp_path / "link").symlink_to(runs["fedmf"])
    for twice in (runs["fedmf"], runs["slow"] / ".." / "fedmf", tmp_path / "link"):
        with pytest.raises(InputError, match="is given twice, and a run does not differ from itself"):
            edgefr.compare([runs["fedmf"], runs["slow"], twice])


def test_a_run_and_its_copy_do_not_differ(runs: dict[str, Path], tmp_path: Path):
    copy = shutil.copytree(runs["fedmf"], tmp_path / "fedmf")
    found = edgefr.compare([runs["fedmf"], copy])
    assert [row.name for row in found.rows] == [str(runs["fedmf"]), str(copy)]
    frame = found.frame
    assert frame["metric"].tolist() == ["NDCG@10", "HR@10"], "Recall@10 is HR@10 with one held-out item"
    assert (frame[["difference", "low", "high", "d", "r"]] == 0).all(axis=None)
    assert (frame["p"] == 1).all()
    assert (frame["above"] == "").all()
    assert found.differs == {}
    assert "no significant difference" in str(found)


def test_a_difference_is_found_and_has_a_direction(runs: dict[str, Path], tmp_path: Path):
    copy = Path(shutil.copytree(runs["slow"], tmp_path / "high"))
    high = changed(copy, lambda f: f.assign(**{"NDCG@10": f["NDCG@10"] + 0.2}))
    found = edgefr.compare([runs["fedmf"], high, runs["slow"]], ["NDCG@10"])
    frame = found.frame.set_index(["one", "other"])
    fedmf, best = (read(path).users["full"]["main"][1]["NDCG@10"] for path in (runs["fedmf"], high))
    assert frame.loc[("high", "slow"), "difference"] == pytest.approx(0.2)
    assert frame.loc[("fedmf", "high"), "difference"] == pytest.approx((fedmf - best).mean())
    assert frame["above"].tolist() == ["high", "", "high"]
    assert found.rows[1].above["NDCG@10"] == ["fedmf", "slow"]
    assert found.differs == {"model.lr": {"fedmf": "1.0", "high": "0.01", "slow": "0.01"}}


def test_baselines_that_all_runs_share_are_rows(runs: dict[str, Path]):
    found = edgefr.compare([runs["fedmf"], runs["slow"]])
    names = [row["run"] for row in found.page.sheets[0].rows]
    assert names[:2] == ["a: fedmf", "b: slow"]
    assert {"popularity", "EASE, central", "item-kNN, central"} <= set(names[2:])
    assert "before any round" not in names, "it is of one run's model"
    summary = edgefr.Run.open(runs["fedmf"]).summary
    popularity = next(row for row in found.baselines if row.name == "popularity")
    assert popularity.values["NDCG@10"].mean == summary["full_ranking"]["main"]["popularity"]["NDCG@10"]
    sampled = edgefr.compare([runs["fedmf"], runs["slow"]], ranking="sampled")
    popularity = next(row for row in sampled.baselines if row.name == "popularity")
    assert popularity.values["NDCG@10"].mean == summary["references"]["main"]["popularity"]["NDCG@10"]
    assert edgefr.compare([runs["blocks"], runs["other blocks"]]).baselines == []
    over_seeds = edgefr.compare([runs["seeds"], runs["more"]])
    assert {row.values["NDCG@10"].number for row in over_seeds.baselines} == {2}


def test_rows_of_a_method_are_beside_each_other(runs: dict[str, Path], tmp_path: Path):
    other = made(tmp_path / "other", "method=pfedrec")
    found = edgefr.compare([runs["fedmf"], other, runs["slow"]])
    assert [row.name for row in found.rows] == ["fedmf", "slow", "other"]


def test_the_caption_says_what_the_marks_mean(runs: dict[str, Path]):
    one, many = (
        edgefr.compare([runs[a], runs[b]], ["NDCG@10"]).latex for a, b in (("fedmf", "slow"), ("seeds", "more"))
    )
    for said in (
        "Bold: the highest mean of a column, whether or not it differs significantly from the others.",
        r"p \textless{} 0.05 (two-sided, Holm's correction over all 1 tests of the next table)",
        "Rows without a letter are baselines, which were not tested.",
    ):
        assert said in one, one
    assert r"Mean $\pm$ standard deviation (n - 1) over 2 to 3 seeds." in many
    assert "standard deviation" not in one.split("label")[0]
    assert " & popularity & " in one


def test_seeds_are_paired_where_both_have_them(runs: dict[str, Path]):
    found = edgefr.compare([runs["seeds"], runs["more"]], ["NDCG@10"])
    frame = found.frame
    assert np.isfinite(frame["p_seeds_holm"]).all()
    assert "runs are paired by seeds 0, 1" in found.notes
    assert [row.values["NDCG@10"].number for row in found.rows] == [3, 2]
    per_seed = [
        [edgefr.Run.open(runs[name] / f"seed-{seed}").summary["metrics_full_ranking"]["NDCG@10"] for seed in (0, 1)]
        for name in ("seeds", "more")
    ]
    means = frame["difference"].item()
    assert means == pytest.approx(np.mean(per_seed[0]) - np.mean(per_seed[1]), abs=2e-3), "users differ by seed"
    assert edgefr.compare([runs["seeds"], runs["fedmf"]]).frame["difference"].tolist() == [0.0, 0.0], "seed 0 of both"


def test_blocks_are_compared_by_their_means(runs: dict[str, Path]):
    found = edgefr.compare([runs["blocks"], runs["other blocks"]], ["NDCG@20"])
    means = [edgefr.Run.open(runs[name]).summary["metrics"]["NDCG@20"] for name in ("blocks", "other blocks")]
    assert [row.values["NDCG@20"].mean for row in found.rows] == pytest.approx(means)
    assert found.frame["difference"].item() == pytest.approx(means[0] - means[1])


def refused(paths: list[Path], match: str, **options: Any) -> None:
    with pytest.raises(InputError, match=match) as caught:
        edgefr.compare(paths, **options)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("overrides", "match", "options"),
    [
        (["protocol.negatives=30"], r"differ in their protocol \(.*20.* \| .*30.*may", {}),
        (["data_options={users: 51, items: 110, interactions: 14}"], "in their data", {}),
        (["seed=7"], r"no seed in common \(fedmf: 0; other: 7\)", {}),
        (["evaluation.full_ranking_users=20"], "tested different users of main", {}),
        (["evaluation.full_ranking_users=0"], "no users ranked by full", {"ranking": "full"}),
        (["evaluation.k=[5]"], "no metric in common", {}),
    ],
)
def test_runs_that_asked_something_else_are_refused(
    overrides: list[str], match: str, options: dict[str, Any], runs: dict[str, Path], tmp_path: Path
):
    other = made(tmp_path / "other", *overrides)
    refused([runs["fedmf"], other], match, **options)
    if options:
        assert edgefr.compare([runs["fedmf"], other]).ranking == "sampled", "which both have"


def test_what_no_comparison_has_is_refused(runs: dict[str, Path]):
    fedmf, slow = runs["fedmf"], runs["slow"]
    refused([fedmf], "two runs or more")
    refused([fedmf, runs["blocks"]], "no users ranked by sampled; it has full|differ in their protocol")
    refused([fedmf, slow], r"unknown metric of all these runs 'NDCG@5'; did you mean 'NDCG@10'", metrics=["NDCG@5"])
    refused([fedmf, slow], "unknown ranking 'ful'", ranking="ful")


HOSTILE: dict[str, tuple[Callable[[Path], object], str]] = {
    "no users": (lambda run: shutil.rmtree(run / "private"), "bring the run's private part too"),
    "no table": (lambda run: (run / "private/users.parquet").write_bytes(b"PAR1 no"), "is damaged|run it again"),
    "no summary": (lambda run: (run / "summary.json").unlink(), "did not finish"),
    "a list for a summary": (lambda run: (run / "summary.json").write_text("[1]"), "does not say its dataset"),
    "a stage of nobody": (
        lambda run: (run / "summary.json").write_text(
            json.dumps(json.loads((run / "summary.json").read_text()) | {"stage": "x"})
        ),
        "no users of stage 'x'",
    ),
    "texts for numbers": (lambda run: changed(run, lambda f: f.astype({"NDCG@10": str})), "not numbers"),
    "no column of users": (lambda run: changed(run, lambda f: f.drop(columns="user")), "no user, on, stage"),
    "users twice": (
        lambda run: changed(run, lambda f: pd.concat([f, f], ignore_index=True)),
        "a user of main twice",
    ),
    "users without a name": (lambda run: changed(run, lambda f: f.assign(user=None)), "without a name|not numbers"),
    "an experiment of lists": (lambda run: (run / "experiment.yaml").write_text("- 1"), "experiment.yaml"),
    "code in an experiment": (
        lambda run: (run / "experiment.yaml").write_text("!!python/object/apply:os.system [id]"),
        "tags",
    ),
}


@pytest.mark.parametrize("what", HOSTILE)
def test_damaged_and_hostile_folders_are_refused(runs: dict[str, Path], tmp_path: Path, what: str):
    change, said = HOSTILE[what]
    change(Path(shutil.copytree(runs["fedmf"], tmp_path / "run")))
    refused([runs["fedmf"], tmp_path / "run"], said)


def test_a_table_of_more_than_memory_holds_is_refused(runs: dict[str, Path], tmp_path: Path):
    """A file of some kilobytes can say that it holds a billion equal rows."""
    run = Path(shutil.copytree(runs["fedmf"], tmp_path / "run"))
    rows = 50_000_000
    names = pa.DictionaryArray.from_arrays(pa.array(np.zeros(rows, np.int8)), pa.array(["u"])).cast(pa.string())
    pq.write_table(
        pa.table({"user": names, "on": names, "stage": names, "ranking": names, "NDCG@10": np.zeros(rows)}),
        run / "private/users.parquet",
        compression="zstd",
    )
    assert (run / "private/users.parquet").stat().st_size < 1 << 20
    refused([runs["fedmf"], run], "takes more than 1 GB")


def test_the_command_prints_and_writes(runs: dict[str, Path], tmp_path: Path):
    def compare(*arguments: str | Path) -> tuple[int, str, str]:
        done = commands.edgefr("compare", *arguments, cache=tmp_path / "cache")
        return done.returncode, done.stdout, done.stderr

    hostile = tmp_path / r"a_1 & $x$ \input{b}"
    shutil.copytree(runs["slow"], hostile)
    code, out, err = compare(runs["fedmf"], hostile, "--out", tmp_path / "out")
    assert code == 0, err
    assert "what else differs" in out
    for run in (runs["fedmf"], hostile):
        (first,) = verdicts(edgefr.Run.open(run).summary)
        assert f"federated: {first.words}: " in " ".join(out.split()), "the verdict of the run's own first screen"
    written = {path.name for path in (tmp_path / "out").iterdir()}
    assert written == {f"comparison.{kind}" for kind in ("md", "csv", "tex", "png", "svg")}
    tex = (tmp_path / "out/comparison.tex").read_text()
    assert r"a\_1 \& \$x\$ \textbackslash{}input\{b\}" in tex
    assert tex.count(r"\begin{tabular}") == tex.count(r"\end{tabular}") == 2
    code, out, err = compare(runs["fedmf"], runs["slow"], "--format", "latex", "--metric", "NDCG@10")
    assert (code, err) == (0, "")
    assert out.startswith("% needs \\usepackage{booktabs}")
    code, out, err = compare(runs["fedmf"], runs["slow"], "--format", "markdown")
    assert out.startswith("# comparison of 2 runs, full ranking")
    commands.refused(*compare(runs["fedmf"], tmp_path / "none"))
