"""Every figure of a run's first screen, and what summary.json counts, made again from the run's raw files.

The code here reads parquet, JSON lines and folders alone. A number on the first screen that it does not know is a
failure: recompute it here.
"""

from __future__ import annotations

import html
import json
import math
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import yaml
from scipy.optimize import brentq
from scipy.stats import norm

from edgefr.report.screen import first_screen

FEDERATED = ("private", "plain", "async")
ROW = ["on", "stage", "which", "ranking", "metric"]
LEFT = ("lost", "late", "uploaded")


@pytest.fixture(params=FEDERATED)
def run(request: pytest.FixtureRequest, made: Callable[[str], Path]) -> Path:
    return made(request.param)


def summary_of(run: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((run / "summary.json").read_text(encoding="utf-8"))
    return found


def events_of(run: Path) -> pd.DataFrame:
    lines = (run / "events.jsonl").read_text(encoding="utf-8").splitlines()
    return pd.DataFrame([json.loads(line) for line in lines])


def ends(run: Path) -> dict[tuple[Any, ...], float]:
    """Return what metrics.parquet holds of the end of each stage."""
    rows = pd.read_parquet(run / "metrics.parquet")
    masks = np.where(rows["ranking"] == "full", "history", "none")  # what was had is left out of a full ranking
    rows = rows[rows["round"].isna() & (rows["group"] == "all") & (rows["mask"] == masks)]
    return {tuple(row[name] for name in ROW): float(row["value"]) for row in rows.to_dict("records")}


def outcomes(run: Path) -> Counter[str]:
    """Return how the invitations of all rounds ended."""
    events, total = events_of(run), Counter[str]()
    for found in events[events["kind"] == "closed"]["outcomes"]:
        total.update({kind: int(number) for kind, number in found.items()})
    return total


def work(run: Path) -> pd.DataFrame:
    """Return who was at work in the rounds of a fleet that waits: its class, and the seconds until it left."""
    events = events_of(run)
    starts = events[events["kind"] == "started"].set_index("round")["time"]
    left = events[events["kind"].isin(LEFT)]
    assert not left.duplicated(["round", "client"]).any()
    return left.assign(seconds=left["time"] - left["round"].map(starts))


def epsilon(releases: int, multiplier: float, delta: float) -> float:
    """Return the epsilon of so many Gaussian releases (Balle & Wang 2018, Theorem 8)."""
    mu = math.sqrt(releases) / multiplier

    def excess(eps: float) -> float:
        return float(norm.cdf(mu / 2 - eps / mu) - math.exp(eps) * norm.cdf(-mu / 2 - eps / mu)) - delta

    return float(brentq(excess, 0.0, 500.0))


def clip_of(run: Path) -> set[str]:
    """Return what the screen says of the clip, which is within four deviations of what is kept from readers."""
    clip, kept = summary_of(run)["privacy"]["clip"], run / "private" / "norms.json"
    if clip["clipped_share"] is None:
        return set()
    exact = json.loads(kept.read_text(encoding="utf-8"))
    for name in ("clipped_share", "kept_length"):
        assert abs(clip[name] - exact[name]) <= 4 * clip["std"]
    shares = {f"{100 * clip[name]:.3g}" for name in ("clipped_share", "kept_length")}
    return {f"{clip['bound']:.4g}", f"{200 * clip['std']:.1f}", *shares}


def test_metrics_are_the_means_over_users(run: Path) -> None:
    found, users = ends(run), pd.read_parquet(run / "private" / "users.parquet")
    metrics = [name for name in users.columns if "@" in name]
    assert metrics
    for (on, stage, ranking), rows in users.groupby(["on", "stage", "ranking"]):
        for metric in metrics:
            assert rows[metric].sum() / len(rows) == pytest.approx(found[on, stage, "test", ranking, metric])


def test_metrics_of_the_summary_are_those_of_the_table(run: Path) -> None:
    s, found = summary_of(run), ends(run)

    def check(values: dict[str, float], stage: str, which: str, ranking: str) -> None:
        assert values
        for metric, value in values.items():
            assert value == pytest.approx(found[s["split"], stage, which, ranking, metric]), (stage, which, metric)

    check(s["metrics"], s["stage"], "test", "sampled")
    check(s["metrics_full_ranking"], s["stage"], "test", "full")
    for stage, values in {**s["stages"]["main"], **s["references"]["main"]}.items():
        check(values, stage, "test", "sampled")
        check(s["full_ranking"]["main"][stage], stage, "test", "full")
        check(s["validation"]["main"][stage], stage, "valid", "full")


def test_gains_and_their_intervals_are_those_of_users(run: Path) -> None:
    """The interval is of means over users drawn again; drawn here by another generator, so nearly the same."""
    s, users = summary_of(run), pd.read_parquet(run / "private" / "users.parquet")
    learned = s["learning"]["main"]["federated"]
    metric, ranking = learned["metric"], learned["ranking"]
    rows = users[users["ranking"] == ranking].pivot(index="user", columns="stage", values=metric)
    assert learned["users"] == len(rows)
    assert learned["value"] == pytest.approx(rows["federated"].mean())
    for name, one in learned["against"].items():
        assert one["value"] == pytest.approx(ends(run)["main", name, "test", ranking, metric])
        assert one["difference"] == pytest.approx(learned["value"] - one["value"])
    gains = (rows["federated"] - rows["before any round"]).to_numpy()
    again = np.random.default_rng(7).choice(gains, (4000, len(gains))).mean(axis=1)
    before = learned["against"]["before any round"]
    near = 0.5 * again.std()
    assert (before["low"], before["high"]) == pytest.approx(tuple(np.quantile(again, [0.025, 0.975])), abs=near)


def test_invitations_are_counted_by_how_they_ended(run: Path) -> None:
    fleet, events, found = summary_of(run)["fleet"], events_of(run), outcomes(run)
    assert fleet["contributed"] == found.pop("ok")
    assert fleet["failures"] == dict(found)
    assert fleet["invited"] == fleet["contributed"] + found.total()
    assert fleet["rounds"] == (events["kind"] == "closed").sum()
    assert fleet["virtual_hours"] == pytest.approx(events["time"].max() / 3600)
    for name in ("clients", "invited", "contributed"):
        assert fleet[name] == sum(row[name] for row in fleet["classes"].values())
    single = events[events["client"].notna()]
    for name, row in fleet["classes"].items():
        own = single[single["class"] == name]
        assert row["contributed"] == (own["kind"] == "uploaded").sum(), name
        assert row["invited"] == own["kind"].isin([*LEFT, "refused"]).sum(), name


@pytest.mark.parametrize("kind", ["private", "plain"])
def test_seconds_are_those_from_a_round_s_start(kind: str, made: Callable[[str], Path]) -> None:
    """Percentiles are known to a bin of 1.1 %."""
    fleet, found = summary_of(made(kind))["fleet"], work(made(kind))
    assert fleet["total_seconds"] == pytest.approx(found["seconds"].sum())
    for row, own in [
        (fleet, found["seconds"]),
        *((fleet["classes"][name], part["seconds"]) for name, part in found.groupby("class")),
    ]:
        ordered = np.sort(own.to_numpy())
        for share, name in ((0.1, "p10"), (0.5, "p50"), (0.9, "p90")):
            assert row["seconds"][name] == pytest.approx(ordered[math.ceil(share * len(ordered)) - 1], rel=0.012)


def test_the_epsilon_is_that_of_the_ledger_s_busiest_client(made: Callable[[str], Path]) -> None:
    s, ledger = summary_of(made("private")), pd.read_parquet(made("private") / "ledger.parquet")
    most = int(ledger.groupby("client")["releases"].sum().max())
    assert s["privacy"]["releases_per_client"]["max"] == most
    (multiplier,) = ledger["multiplier"].unique()
    expected = epsilon(most, float(multiplier), s["privacy"]["delta"])
    assert s["privacy"]["eps_guaranteed"] == pytest.approx(expected, rel=1e-3)
    asked = yaml.safe_load((made("private") / "experiment.yaml").read_text(encoding="utf-8"))["privacy"]["epsilon"]
    assert 0.99 * asked < expected <= asked * 1.001


def test_bundles_are_as_large_as_their_files(made: Callable[[str], Path]) -> None:
    s = summary_of(made("private"))
    assert {row["class"] for row in s["bundles"]} == {path.name for path in (made("private") / "bundles").iterdir()}
    for row in s["bundles"]:
        folder = made("private") / "bundles" / row["class"]
        listed = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))["files"]
        assert row["files_mb"] == pytest.approx(sum((folder / file["path"]).stat().st_size for file in listed) / 1e6)


def test_updates_a_second_are_updates_over_seconds(run: Path) -> None:
    s = summary_of(run)
    assert s["engine"]["client_updates"] == outcomes(run)["ok"]
    assert s["engine"]["clients_per_second"] == pytest.approx(
        s["engine"]["client_updates"] / s["engine"]["train_seconds"]
    )


def figures(run: Path) -> set[str]:
    """Return every number that the first screen may show, as it is written there."""
    s, found, known = summary_of(run), ends(run), set[str]()
    learned = s["learning"]["main"]["federated"]
    metric, ranking = learned["metric"], learned["ranking"]
    for ranked, rows in ((ranking, learned["against"] | learned["ceilings"]), ("sampled", learned["sampled"])):
        value = found["main", "federated", "test", ranked, metric]
        for name, one in rows.items():
            other = found["main", name, "test", ranked, metric]
            known |= {f"{value:.4f}", f"{other:.4f}", f"{value - other:+.4f}"}
            known |= {f"{one['low']:+.4f}", f"{one['high']:+.4f}"}
            known |= {
                f"{other - value:.4f}",
                f"{-one['low']:.4f}",
                f"{-one['high']:.4f}",
            }  # of a ceiling, how far below
    ended = outcomes(run)
    lost = {f"{number}" for kind, number in ended.items() if kind != "ok"}
    known |= {*lost, f"{ended.total() - ended['ok']}", f"{ended.total()}", f"{learned['users']}"}
    fleet = s["fleet"]
    slowest = max(fleet["classes"].values(), key=lambda row: float(row["seconds"]["p90"]))
    for row in (fleet, slowest):
        for quantity, percentiles in {
            "seconds": ["p50", "p90"],
            "energy_j": ["p50", "p90"],
            "memory_mb": ["p50"],
        }.items():
            known |= {f"{row[quantity][name]:.3g}" for name in percentiles}
        known.add(f"{(row['bytes_down']['p50'] + row['bytes_up']['p50']) / 1e6:.3g}")
    if (run / "ledger.parquet").is_file():
        ledger = pd.read_parquet(run / "ledger.parquet")
        most = ledger.groupby("client")["releases"].sum().max()
        known.add(f"{epsilon(int(most), float(ledger['multiplier'].iloc[0]), s['privacy']['delta']):.3g}")
    known |= {f"{sum(1 for _ in (run / 'bundles').glob('*/manifest.json'))}"}
    known |= {f"{row['files_mb']:.3g}" for row in s["bundles"]}
    known |= clip_of(run)
    return known | {f"{min((row['hr_kept'] for row in s['bundles']), default=0):.1%}"}


WORDS = (
    r"NDCG@10|HR@10|95 %|p50 \(p90\)|phone_sd680|speaker_512|laptop_x86|\(f\d+;|delta 1e-05|least_cohort: 1|at_least=10"
    r"|and \d+ more: --full|1 \+ 99 sampled"
)
"""What has digits and is no figure of the run."""


def test_no_number_on_the_first_screen_is_unknown_here(run: Path) -> None:
    lines = [
        line.plain for line in first_screen(summary_of(run), run) if not line.plain.startswith(("run:", "report:"))
    ]
    shown = re.sub(WORDS, " ", "\n".join(lines))
    numbers = set(re.findall(r"(?<![\w.])[+-]?\d+(?:,\d{3})*(?:\.\d+)?(?:e[+-]?\d+)?%?", shown))
    assert len(numbers) > 15
    assert numbers - figures(run) == set()


def cells(page: str) -> str:
    """Return the text of a page's tables, without drawings and their axes."""
    tables = re.findall(r"<table.*?</table>", page, re.DOTALL)
    assert tables
    plain = re.sub(r"<svg.*?</svg>|<th.*?</th>", " ", "\n".join(tables), flags=re.DOTALL)
    return html.unescape(re.sub(r"<[^>]+>", " ", plain))


def classes(run: Path) -> dict[int, str]:
    """Return the class of every client, who is numbered as users are named."""
    events = events_of(run)
    own = events[events["client"].notna() & events["class"].notna()]
    return {int(client): str(name) for client, name in zip(own["client"], own["class"], strict=True)}


def of_classes(run: Path) -> set[str]:
    """Return what tables say of classes: who took part, when, and the metrics of their users."""
    known, events, kinds = set[str](), events_of(run), classes(run)
    users = pd.read_parquet(run / "private" / "users.parquet")
    users = users[(users["stage"] == "federated") & (users["on"] == "main")]
    users = users.assign(kind=users["user"].str[1:].astype(int).map(kinds))
    ended = events[events["kind"] == "closed"].set_index("round")["time"]
    starts = events[events["kind"] == "started"].set_index("round")["time"]
    lasted = (ended - starts).sort_values()
    typical = lasted.index[(len(lasted) - 1) // 2]  # the round that took the median time
    first = events[(events["round"] == typical) & events["client"].notna()]
    first = first.assign(time=first["time"] - starts[typical])
    for name in set(kinds.values()):
        own = events[events["class"] == name]
        part = (own["kind"] == "uploaded").sum() / own["kind"].isin([*LEFT, "refused"]).sum()
        known |= {f"{part:.0%}", f"{100 * part:.1f}%", str(sum(kind == name for kind in kinds.values()))}
        round_ = first[first["class"] == name]
        known |= {
            str(len(round_[round_["kind"] != "refused"]["client"].unique())),
            str((round_["kind"] == "uploaded").sum()),
        }
        known |= {
            f"{round_[round_['kind'] == kind]['time'].median():.3g}" for kind in ("downloaded", "trained", "uploaded")
        }
        for _, rows in users.groupby("ranking"):
            here = rows[rows["kind"] == name]
            known.add(str(len(here)))
            for metric in ("HR@10", "NDCG@10"):
                mean, error = here[metric].mean(), here[metric].std() / math.sqrt(len(here))
                known |= {f"{mean:.4f}", f"{error:.4f}", f"{mean - rows[metric].mean():+.4f}"}
    return known


def of_costs(run: Path) -> set[str]:
    """Return what tables say of costs, whose percentiles the tests above hold to the events."""
    s = summary_of(run)
    known = set[str]()
    for row in (s["fleet"], *s["fleet"]["classes"].values()):
        for quantity in ("seconds", "energy_j", "memory_mb"):
            known |= {f"{row[quantity][name]:.3g}" for name in ("p10", "p50", "p90")}
        moved = [sum(row[way][name] for way in ("bytes_down", "bytes_up")) / 1e6 for name in ("p10", "p50", "p90")]
        known |= {f"{one:.3g}" for one in moved}
    for row in s["bundles"]:
        known |= {f"{row['files_mb']:.3g}", f"{row['memory_mb']:.0f}", f"{row['hr_kept']:.3f}"}
        known |= {f"{row['latency_ms']:.3g}", f"{row['max_score_error']:.2g}"}  # parity's, which export's tests hold
        known |= {f"{one['files_mb']:.3g}" for one in row["considered"]}  # planned, which export's tests hold
    return known


def of_audit(run: Path) -> set[str]:
    """Return the figures of the run's audit, which tests/audits hold to its trials."""
    if not (run / "audit.json").is_file():
        return set()
    found = re.findall(r"-?[0-9]+\.[0-9e-]+", (run / "audit.json").read_text(encoding="utf-8"))
    return {form.format(float(one)) for one in found for form in ("{:.3g}", "{:.3f}")}


NAMED = (
    r"fewer than 10|95 %|@10|1\+99|1 \+ 99|phone_sd680|speaker_512|laptop_x86|fp32|f\d+|Snapdragon 680|4-6 GB|512 MB"
    "|5560"
)


@pytest.mark.parametrize("kind", ["private", "plain"])
def test_no_number_in_a_table_of_the_page_is_unknown_here(kind: str, made: Callable[[str], Path]) -> None:
    run = made(kind)
    shown = re.sub(NAMED, " ", cells((run / "report.html").read_text(encoding="utf-8")))
    numbers = set(re.findall(r"(?<![\w.])[+-]?\d+(?:,\d{3})*(?:\.\d+)?(?:e[+-]?\d+)?%?", shown))
    ended = {f"{value:.4f}" for value in ends(run).values()}
    assert len(numbers) > 40
    known = figures(run) | ended | of_classes(run) | of_costs(run) | of_audit(run)
    assert numbers - known == set()
