"""A survey tells of a data set what is there, and its settings run."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

import edgefr
from edgefr.simulation.probe import Probe
from edgefr.simulation.survey import survey
from tests.cli.commands import refused
from tests.cli.conftest import Cli, cache, cli, inside, place  # noqa: F401 - fixtures
from tests.data.files.written import interactions, items, write


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("data")
    write(interactions(), made / "ratings.csv")
    write(items(), made / "films.csv")
    return made


def test_it_says_which_protocols_fit_and_why_others_do_not(folder: Path) -> None:
    found = {fit.protocol: fit for fit in survey(str(folder / "ratings.csv")).fits}
    assert list(found) == ["leave-one-out", "cross-domain", "blocks", "sessions", "holdout"]
    assert found["leave-one-out"].tested == 30
    assert "needs two domains, and there is one" in found["cross-domain"].why
    assert "lower it" in found["blocks"].why
    assert "protocol.gap_minutes" in found["sessions"].why


def test_its_settings_run(folder: Path, tmp_path: Path) -> None:
    start = dict(survey(str(folder / "ratings.csv"), {"positive": 1}).start or {})
    assert (start["method"], start["protocol"]["negatives"]) == ("fedmf", 25)
    path = tmp_path / "start.yaml"
    path.write_text(yaml.safe_dump(start))
    experiment = edgefr.load_experiment(path, ["rounds=1", "model.dim=4"])
    run = edgefr.simulate(experiment, out=tmp_path / "run", bundles=False, page=False)
    assert run.summary["dataset"]["users"] == 30


def test_sessions_of_ones_own_choose_a_method_that_reads_them(tmp_path: Path) -> None:
    rows = [f"u{u},i{(u * 3 + s * 2 + k) % 40},s{u}-{s}" for u in range(20) for s in range(6) for k in range(4)]
    (tmp_path / "plays.csv").write_text("user,item,session\n" + "\n".join(rows))
    start = survey(str(tmp_path / "plays.csv")).start or {}
    assert (start["method"], start["protocol"]["name"]) == ("sasrec", "sessions")


def test_texts_choose_a_method_that_reads(folder: Path) -> None:
    start = survey(str(folder / "ratings.csv"), {"items": "films.csv"}).start or {}
    assert start["method"] == "transfr"


def test_from_the_shell(folder: Path, cli: Cli) -> None:  # noqa: F811
    code, out, err = cli("data", folder / "ratings.csv", "--set", "data_options.positive=3")
    assert code == 0, err
    for part in (
        "user: userId",
        "30, with",
        "does not fit: it needs two domains",
        "0.5 to 5",
    ):
        assert part in " ".join(out.split())
    assert cli("data")[0] == 0
    assert "ml-100k" in cli("data")[1]
    refused(*cli("data", folder / "no.csv"))
    assert "only data_options are read here" in refused(*cli("data", folder / "ratings.csv", "--set", "rounds=3"))
    assert "did you mean 'positive'" in refused(*cli("data", folder / "ratings.csv", "--set", "data_options.postive=3"))


def popular_films(folder: Path, texts: list[str]) -> Path:
    """Thirty users with ten of forty films each, and the films' texts."""
    rows = [(u, (u * 7 + k * (1 + u % 3)) % 40, 10 * u + k) for u in range(30) for k in range(10)]
    (folder / "ratings.csv").write_text("user,item,time\n" + "\n".join(",".join(map(str, row)) for row in rows))
    (folder / "films.csv").write_text("item,title\n" + "\n".join(f"{i},{text}" for i, text in enumerate(texts)))
    return folder / "ratings.csv"


def test_texts_that_say_less_than_ids_choose_a_method_of_ids(tmp_path: Path, cli: Cli) -> None:  # noqa: F811
    path = popular_films(tmp_path, [f"word{(i * 17) % 40}" for i in range(40)])
    code, out, err = cli("data", path, "--set", "data_options.items=films.csv")
    assert code == 0, err
    line = " ".join(out.split())
    found = re.search(
        r"probe NDCG@10, full ranking, validation items of 30 users: text mean \(TF-IDF\) (\S+), popularity (\S+), "
        r"item-kNN, central (\S+); texts say less than ids",
        line,
    )
    assert found is not None, line
    text, popularity, knn = map(float, found.groups())
    assert max(2 * text, popularity) < knn
    assert "method: fedmf" in line


def test_a_probe_without_texts_says_what_ids_are_worth(folder: Path) -> None:
    found = survey(str(folder / "ratings.csv"))
    assert found.probe is not None
    assert "text" not in found.probe
    assert "popularity" in found.probe


@pytest.mark.parametrize(
    ("text", "popularity", "knn", "carry"),
    [
        (None, 0.1, 0.2, False),
        (0.2, 0.1, 0.4, True),
        (0.1, 0.1, 0.19, False),
        (0.2, 0.1, 0.41, False),
        (0.2, 0.1, None, True),
        (0.085, 0.09, 0.1, True),
        (0.07, 0.09, 0.1, False),
        (0.0, 0.0, 0.0, False),
        (0.1, 0.2, None, False),
    ],
)
def test_texts_carry_where_they_beat_popularity_or_come_near_item_knn(text, popularity, knn, carry) -> None:
    assert Probe(10, text, popularity, knn).texts_carry is carry
