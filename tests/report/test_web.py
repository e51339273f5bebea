"""The page of a run: what is on it for every kind of run, what never is, and what hostile words do to it."""

from __future__ import annotations

import html
import json
import re
import shlex
import shutil
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

import edgefr
from edgefr.report.web.chart import Axis
from edgefr.report.web.facts import Facts
from edgefr.report.web.page import run_page
from edgefr.report.web.privacy import in_words, watchers
from edgefr.simulation.runs.run import Run
from edgefr.simulation.summary.pages import facts_of
from edgefr.studies.pages import write_report
from edgefr.studies.sweeps.grid import Axis as GridAxis
from edgefr.studies.sweeps.plan import SweepPlan
from privacy.errors import InputError
from privacy.report import label
from tests.cli.conftest import cache, cli, inside, place
from tests.mostly_slow import mostly_slow
from tests.report.conftest import DATA, DEVICES, KINDS

__all__ = ["cache", "cli", "inside", "place"]
Made = Callable[[str], Path]
EVERY = {"verdict", "curve", "again"}
FEDERATED = {*EVERY, "costs", "rounds", "fairness", "privacy"}
SECTIONS = {
    "private": {*FEDERATED, "bundles", "measures"},
    "local": {*FEDERATED, "measures"},
    "plain": {*FEDERATED, "measures"},
    "blocks": {*FEDERATED, "blocks"},
    "sessions": {*FEDERATED, "sessions", "measures"},
    "central": {*EVERY, "measures"},
    "async": {*FEDERATED, "measures"},
    "across": {*FEDERATED, "transfer", "measures"},
}
MOST = 3_000_000
"""Bytes that a page may have."""


def sections(page: str) -> list[str]:
    return re.findall(r'<section id="(\w+)"', page)


def words(page: str) -> str:
    """The page as it is read, without tags, style and script."""
    kept = re.sub(r"<(style|script)>.*?</\1>", " ", page, flags=re.DOTALL)
    return html.unescape(" ".join(re.sub(r"<[^>]*>", " ", kept).split()))


@pytest.mark.parametrize("kind", mostly_slow(KINDS, list(KINDS)[:3]))
def test_a_run_ends_with_a_page_of_the_sections_that_apply_to_it(kind: str, made: Made) -> None:
    page = (made(kind) / "report.html").read_text()
    found = sections(page)
    assert set(found) == SECTIONS[kind]
    assert len(found) == len(set(found))
    assert len(page.encode()) < MOST
    assert not re.findall(r"""(?:src|href|url)\s*[=(]\s*["']?(?:https?:|//|data:)""", page)  # loads nothing
    for nothing in ("None", "nan", "NaN", "{{", "{%"):
        assert f"> {nothing} <" not in f"> {words(page)} <"
        assert not re.search(rf"(?<![\w'@]){re.escape(nothing)}(?!\w)", words(page).split("The whole experiment")[0])


def test_what_the_page_says_first_is_what_the_summary_says(made: Made) -> None:
    run = edgefr.Run.open(made("private"))
    said = words((run.path / "report.html").read_text())
    (record,) = run.summary["learning"]["main"].values()
    best = max(record["against"].values(), key=lambda one: one["value"])
    assert "Does learning help? No" in said or "Does learning help? Yes" in said
    assert ("Does learning help? Yes" in said) == record["helped"]
    assert f"{best['difference']:+.4f} [{best['low']:+.4f}, {best['high']:+.4f}]" in said
    assert "At which privacy? epsilon 8 per person" in said
    assert "Devices release nothing by default: set trust: central" in said
    assert f"{run.summary['fleet']['invited']:,} invitations" in said
    assert f"{run.summary['fleet']['seconds']['p50']:.3g} s" in said


def test_every_metric_says_its_ranking(made: Made) -> None:
    said = words((made("plain") / "report.html").read_text())
    sampled = "NDCG@10 (1 + 99 sampled)"
    assert re.search(r"Does learning help\? (Yes|No) NDCG@10 \(full ranking\) 0\.\d{4}", said)
    fair = said.split("Does the model serve every device class?")[-1]
    assert f"{sampled} is 0." in fair or "none is called the best" in fair
    assert f"{sampled}, mean ± standard error" in fair
    panels = said.split("One device class:")[1].split("Is it fair")[0]
    assert f"{sampled} 0." in panels
    assert re.search(r"NDCG@10 1\+99 sampled", said.split("All measurements")[-1])
    blocks = words((made("blocks") / "report.html").read_text())
    assert "NDCG@20 (full ranking), mean ± standard error" in blocks


def curve_note(folder: Path, **changed: Any) -> str:
    """What the page says of the round that is kept, of a run whose curve has these values after its rounds."""
    facts = facts_of(folder)
    rows = [dict(row) for row in facts.rows]
    for row in rows:
        if row["round"] is not None and row["which"] == "valid":
            row |= {"value": changed["values"][min(row["round"], 3)], "users": changed["users"]}
    facts.__dict__["rows"] = rows
    said = words(run_page(facts)).split("Learning curves")[-1]
    return said.split("The numbers of this figure")[1].split("Other metrics and items")[0]


def test_the_page_says_which_round_is_kept_and_where_an_earlier_one_was_clearly_better(made: Made) -> None:
    fallen = curve_note(made("plain"), values=[0.1, 0.3, 0.5, 0.2], users=900)
    assert "The last round is kept" in fallen
    assert "Validation items decide" not in fallen
    assert "An earlier round was clearly better on validation items (NDCG@10 0.5000 after round 2, 0.2000" in fallen
    assert "--set evaluation.keep=best" in fallen
    for values, users in (([0.1, 0.2, 0.21, 0.2], 900), ([0.1, 0.3, 0.5, 0.4], 40), ([0.1, 0.2, 0.3, 0.4], 900)):
        assert "clearly better" not in curve_note(made("plain"), values=values, users=users)
    for kind, unit in (("central", "epoch"), ("blocks", "round"), ("sessions", "round")):
        assert f"Validation items decide which {unit} is kept" in words((made(kind) / "report.html").read_text())


def test_the_first_download_is_told_from_further_rounds_and_the_straggler_is_named(made: Made) -> None:
    facts = facts_of(made("plain"))
    travel, classes = facts.summary["fleet"]["travel"], facts.summary["fleet"]["classes"]
    assert travel["once"] == 0.0 < travel["down"]
    assert (
        "downloads" not in words(run_page(facts)).split("What do rounds cost the devices?")[-1].split("One device")[0]
    )
    travel |= {"once": 2.5e6, "fetched_once": 40}
    classes["laptop_x86"]["seconds"] |= {"p50": 1e-9, "p90": 1e6}
    said = words(run_page(facts))
    assert f"Slowest tenth: {classes['laptop_x86']['label']}, 1,000,000 s or more" in said
    assert "Before its first round a device also downloads 2.5 MB, once" in said
    assert f"Each further round moves {(travel['down'] + travel['up']) / 1e6:.3g} MB" in said


@pytest.mark.parametrize("noise", ["", "mechanism: gaussian, clip: 1, sigma: 2", "mechanism: paper-laplace, scale: 1"])
def test_the_sweep_that_a_page_names_is_one_that_would_run(
    noise: str, made: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "a run"
    shutil.copytree(made("plain"), folder)
    if noise:
        experiment = edgefr.load_experiment(folder / "experiment.yaml", [f"privacy={{{noise}}}"])
        (folder / "experiment.yaml").write_text(yaml.safe_dump(experiment.model_dump(mode="json")))
    page = run_page(facts_of(folder))
    (command,) = [html.unescape(one) for one in re.findall(r"<pre[^>]*>(edgefr sweep [^<]*)</pre>", page)]
    words = shlex.split(command)
    options = list(zip(words[2::2], words[3::2], strict=True))
    monkeypatch.chdir(tmp_path)
    grid = [value for name, value in options if name == "--grid"]
    plan = SweepPlan(
        [GridAxis.parse(text) for text in grid],
        base=Path(dict(options)["--experiment"]),
        changes=[value for name, value in options if name == "--set"],
        devices=Path(dict(options)["--devices"]),
    )
    assert len(plan.points) == 4


def test_a_page_holds_nobody(made: Made) -> None:
    run = edgefr.Run.open(made("plain"))
    said = (run.path / "report.html").read_text()
    assert not [user for user in run.users["user"].unique() if user in said]
    assert str(run.path.parent) not in said  # nor where on a machine it was made


def test_a_page_of_a_few_users_does_not_say_that_it_holds_nobodys_data(made: Made) -> None:
    facts = facts_of(made("plain"))
    assert "holds no data of single people" in run_page(facts)
    few = {
        split: {stage: {**one, "users": 9} for stage, one in found.items()}
        for split, found in facts.summary["learning"].items()
    }
    said = words(run_page(Facts(facts.path, {**facts.summary, "learning": few})))
    assert "has figures of fewer than 10 users: keep it as you keep their data." in said
    assert "holds no data of single people" not in said


def test_four_epsilons_stand_apart_and_an_audit_adds_its_own(made: Made, tmp_path: Path) -> None:
    said = words((made("private") / "report.html").read_text())
    assert not re.search("not audited", said), "the page is written again after an audit"
    assert words(write_report([made("private")], tmp_path / "again.html").read_text()) == said
    other = words((made("local") / "report.html").read_text())
    assert "This run was not audited." in other
    assert "audited not audited" in other
    bound = json.loads((made("private") / "audit.json").read_text())["eps_lb95"]
    assert f"audited ≥ {bound:.3g}" in said
    pattern = r"guaranteed 8 The guarantee:.*nominal [\d.]+ The formula for one round.*hypothetical not measured"
    assert re.search(pattern, said)
    assert "game whether a person took part" in said


def test_privacy_is_said_in_words() -> None:
    assert "at most 73 % sure" in in_words(1.0, 1e-5, 2e-4)[0]
    assert "probability 1 in 5,000," in in_words(1.0, 1e-5, 2e-4)[1]
    assert "100,000" not in " ".join(in_words(1.0, 1e-5, 2e-4)), "delta is no chance of a larger loss"
    assert "probability" not in " ".join(in_words(1.0, 1e-5, None)), "where it is not known, none is said"
    assert not any("Rare outcomes" in line or "probability" in line for line in in_words(1.0, 1e-5, 0.0))
    assert "more than 99.99 %" in in_words(20.0, 1e-5, None)[0]
    assert "no guarantee" in in_words(float("inf"), 0.0, None)[0]


@pytest.mark.parametrize(("epsilon", "word"), [(0.9, ""), (7.18, ""), (12.0, "weak"), (60.0, "too large to protect")])
def test_one_scale_of_words_is_on_a_page(epsilon: float, word: str, made: Made) -> None:
    """7.18 was "a moderate guarantee" at the head of a page, and "hardly a limit" below."""
    facts = facts_of(made("private"))
    report = {**facts.summary["privacy"], "eps_guaranteed": epsilon, "label": label(epsilon)}
    said = words(run_page(Facts(facts.path, {**facts.summary, "privacy": report})))
    found = set(re.findall(r"\b(strong|moderate|reasonable|hardly|weak|too large to protect)\b", said))
    assert found == ({word} if word else set())


def test_a_page_without_noise_speaks_of_no_noise_and_of_nobody_trusted(made: Made) -> None:
    said = words((made("plain") / "report.html").read_text())
    for wrong in ("noise is drawn", "separate secret", "secure bits", "is trusted", "adds the noise"):
        assert wrong not in said
    assert "There is no guarantee: an observer" in said


@pytest.mark.parametrize(("trust", "server"), [("central", False), ("local", True)])
def test_the_server_is_named_among_those_who_are_kept_out_only_where_it_is(trust: str, server: bool) -> None:
    found = {who: protected for who, protected, _ in watchers(True, {"trust": trust})}
    assert found["The server that adds up the uploads"] is server
    assert found["Other devices and recipients of the model"]
    assert not any(protected for _, protected, _ in watchers(False, {"trust": trust}))


HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(2)>\"'`{{ 7*7 }}{% raw %}&lt;-->"


def hostile(value: Any, key: str = "") -> Any:
    """The same summary, with hostile words wherever words come from outside, in values and in names."""
    outside = {"label", "notes", "licence", "archive", "protocol", "experiment", "data", "adversary", "class"}
    if isinstance(value, dict):
        named = key in ("main", "classes", "versions")
        return {(HOSTILE + name if named else name): hostile(inner, name) for name, inner in value.items()}
    if isinstance(value, list):
        return [hostile(inner, key) for inner in value]
    return HOSTILE + value if key in (*outside, "not_covered") and isinstance(value, str) else value


@pytest.fixture
def attacked(made: Made, tmp_path: Path) -> Path:
    """A run whose folder and whose summary are full of hostile words."""
    folder = tmp_path / "<b onclick=alert(3)>'run"
    shutil.copytree(made("plain"), folder)
    summary = json.loads((folder / "summary.json").read_text())
    summary["stage"] = HOSTILE + summary["stage"]
    (folder / "summary.json").write_text(json.dumps(hostile(summary)))
    return folder


def test_hostile_words_are_shown_and_nothing_more(attacked: Path) -> None:
    page = write_report([attacked]).read_text()
    assert page.count("<script>") == 1
    assert "<img" not in page
    assert "<b onclick" not in page
    assert "{{ 7*7 }}" in page
    assert "49" not in re.findall(r"alert\(2\)&gt;(.{0,20})", page)
    assert html.escape("<script>alert(1)</script>") in page


@pytest.mark.parametrize("kinds", [("private", "plain"), ("plain", "central", "blocks"), ("sessions", "across")])
def test_several_runs_stand_beside_each_other(kinds: tuple[str, ...], made: Made, tmp_path: Path) -> None:
    out = write_report([made(kind) for kind in kinds], tmp_path / "many.html")
    page = out.read_text()
    assert {"overview", "settings", "verdicts", "commands"} <= set(sections(page))
    assert len(page.encode()) < MOST
    said = words(page)
    for kind in kinds:
        assert f"--experiment {kind}/experiment.yaml" in said
    assert ("cannot be compared with each other" in said) == (kinds != ("private", "plain"))
    if kinds == ("private", "plain"):
        assert re.search(r"privacy\.epsilon 8 –", said)
        assert "rounds 3" not in said.split("What do they differ in?")[1]


def test_the_page_of_runs_names_a_comparison_that_works_or_none(made: Made, cli: Any, tmp_path: Path) -> None:
    """Runs that differ in their seed alone have none in common, and `compare` refuses them."""

    def copied(kind: str, name: str, seed: int) -> Path:
        shutil.copytree(made(kind), tmp_path / name)
        for part in ("summary.json", "experiment.yaml"):
            file = tmp_path / name / part
            file.write_text(re.sub(r'("?seed"?): \d+', rf"\1: {seed}", file.read_text(), count=1))
        return tmp_path / name

    runs = [copied("private", "a/one", 0), copied("private", "two", 0)]
    (command,) = re.findall(r"<code>(edgefr compare .*?)</code>", write_report(runs, tmp_path / "two.html").read_text())
    assert command == "edgefr compare a/one two"
    code, _, err = cli("compare", *(tmp_path / name for name in shlex.split(html.unescape(command))[2:]))
    assert code == 0, err
    several = [copied("plain", f"{method}/seed-{seed}", seed) for method in ("mine", "other") for seed in (0, 1)]
    assert "<code>edgefr compare mine other</code>" in write_report(several, tmp_path / "several.html").read_text()
    some = write_report([several[0], *several[2:]], tmp_path / "some.html").read_text()
    assert "<code>edgefr compare mine/seed-0 other</code>" in some, "a run of which a seed is missing stays by itself"
    seeds = [copied("plain", f"seed-{seed}", seed) for seed in (0, 1)]
    page = write_report(seeds, tmp_path / "seeds.html").read_text()
    assert "edgefr compare" not in page
    assert "no seed in common" in page


def test_seeds_of_one_experiment_are_one_row_with_its_points(made: Made, tmp_path: Path) -> None:
    """Two seeds are one group with a mean, a deviation and two points; another experiment is a group of its own."""
    for seed in (1, 2):
        experiment = edgefr.load_experiment(overrides=[*DATA, *KINDS["plain"], f"seed={seed}"])
        edgefr.simulate(experiment, DEVICES, out=tmp_path / "plain" / f"seed-{seed}", bundles=False)
    folders = [tmp_path / "plain" / "seed-1", made("private"), tmp_path / "plain" / "seed-2"]
    page = write_report(folders, tmp_path / "many.html").read_text()
    overview = page.split('id="overview"')[1].split("</section>")[0]
    rows = re.findall(r'<th scope="row"><span class="c(\d)">■</span> ([^<]+)', overview)
    assert rows == [("0", "plain"), ("1", "private")]
    values = [s["learning"]["main"]["federated"]["value"] for s in (Run.open(f).summary for f in folders[::2])]
    assert f"{statistics.mean(values):.4f} ± {statistics.stdev(values):.4f}" in words(overview)
    assert [f"seed-{n}: {value:.4f}" in overview for n, value in enumerate(values, 1)] == [True, True]
    assert set(re.findall(r'data-line="([^"]+)"', page)) == {"plain", "private"}
    made_again = page.split('id="commands"')[1]
    assert made_again.count("--experiment") == 3


def test_curves_of_runs_are_drawn_together(made: Made, tmp_path: Path) -> None:
    page = write_report([made("private"), made("plain")], tmp_path / "two.html").read_text()
    assert set(re.findall(r'data-line="([^"]+)"', page)) == {"private", "plain"}


def test_the_command_line_makes_it_again(made: Made, cli: Any, tmp_path: Path) -> None:
    folder = tmp_path / "plain"  # its name stands on the page
    shutil.copytree(made("plain"), folder)
    before = (folder / "report.html").read_bytes()
    (folder / "report.html").unlink()
    code, out, err = cli("report", folder)
    assert (code, err) == (0, "")
    assert out.strip() == f"wrote {folder / 'report.html'}"
    assert (folder / "report.html").read_bytes() == before


def test_what_is_no_run_is_refused_in_a_line(made: Made, cli: Any, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    code, _, err = cli("report", tmp_path / "empty")
    assert code == 2
    assert "is not a run folder" in err
    old = tmp_path / "old"
    shutil.copytree(made("plain"), old)
    summary = json.loads((old / "summary.json").read_text())
    del summary["fleet"]
    (old / "summary.json").write_text(json.dumps(summary))
    code, _, err = cli("report", old)
    assert code == 2
    assert "fleet" in err
    with pytest.raises(InputError, match="24 runs at most"):
        write_report([made("plain")] * 25)


def test_a_run_of_an_earlier_version_has_a_page(made: Made, tmp_path: Path) -> None:
    """What was added to summaries later may be missing: verdicts, fairness, tests of classes, the table of costs."""
    old = tmp_path / "old"
    shutil.copytree(made("plain"), old)
    summary = json.loads((old / "summary.json").read_text())
    for name in ("learning", "verdicts", "transfer"):
        del summary[name]
    for name in ("fairness", "cost", "total_seconds"):
        del summary["fleet"][name]
    for row in summary["fleet"]["classes"].values():
        del row["metrics"], row["participation"]
    (old / "summary.json").write_text(json.dumps(summary))
    (old / "metrics.parquet").unlink()
    (old / "events.jsonl").unlink()
    found = sections(write_report([old]).read_text())
    assert set(found) == {"costs", "privacy", "measures", "again"}


def test_axes_go_over_their_values_in_round_steps() -> None:
    axis = Axis.over([-0.013, 0.042])
    assert [label for _, label in axis.ticks] == ["-0.02", "-0.01", "0.00", "0.01", "0.02", "0.03", "0.04", "0.05"]
    assert axis.origin == pytest.approx(100 * 2 / 7, abs=0.01)
    assert [label for _, label in Axis.decades([0.3, 40.0], " s").ticks] == ["0.1 s", "1 s", "10 s", "100 s"]
    assert Axis.over([]).place(0.0) == 0.0
    tight = Axis.over([0.0, 3.0], whole=True, tight=True)
    assert [label for _, label in tight.ticks] == ["0", "1", "2", "3"]
