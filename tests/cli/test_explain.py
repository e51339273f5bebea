"""`edgefr explain` as a user runs it: a run and its bundle say the same, in words, in files and in pictures."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import edgefr
from edge.explain import Explanation, Lean
from edgefr.report.explaining import Explained, ItemMap
from edgefr.simulation.explain import write_maps
from edgefr.simulation.runs.saved_model import open_model
from privacy.errors import InputError
from tests.cli.commands import edgefr as command
from tests.cli.commands import refused

TINY = "data_options={users: 40, items: 160, interactions: 12}"
FLEET = "fleet.share={laptop_x86: 1.0}"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> edgefr.Run:
    """A small finished run of FedCAR, with the bundle of everybody's device."""
    home = tmp_path_factory.mktemp("car")
    settings = ("method=fedcar", "rounds=2", "model.dim=6", TINY, FLEET)
    chosen = [part for setting in settings for part in ("--set", setting)]
    done = command("simulate", "--devices", "devices.yaml", *chosen, "--out", home / "run", cache=home / "cache")
    assert done.returncode == 0, done.stderr
    return edgefr.Run.open(home / "run")


@pytest.fixture
def users(run: edgefr.Run) -> list[str]:
    """The two busiest users."""
    model = open_model(run).model
    busiest = np.argsort(-np.diff(model.seen.offsets), kind="stable")[:2]
    return [model.names.users[user] for user in busiest]


def test_shares_of_the_best_and_the_held_out_item(
    run: edgefr.Run, users: list[str], tmp_path: Path, cache: Path
) -> None:
    done = command("explain", run.path, "--user", users[0], "-k", "2", "--out", tmp_path / "out", cache=cache)
    assert done.returncode == 0, done.stderr
    assert f"what recommendations for {users[0]} lean on, of the last 5 items" in done.stdout.replace("\n", " ")
    names = sorted(path.name for path in (tmp_path / "out").iterdir())
    assert names == ["explained.json", "explained.png", "explained.svg"]
    record = json.loads((tmp_path / "out" / "explained.json").read_text())
    assert record["user"] == users[0]
    assert [one["why"] for one in record["items"]] == ["recommended", "recommended", "held out"]
    assert [one["item"] for one in record["items"][:2]] == run.recommend(users[0], 2)["item"].tolist()
    for one in record["items"]:
        assert len(one["leans"]) == 5
        assert sum(lean["weight"] for lean in one["leans"]) == pytest.approx(1, abs=1e-5)
        for lean in one["leans"]:
            assert f"{lean['weight']:.1%}" in done.stdout
    again = edgefr.explain(run, users[0], k=2, out=tmp_path / "again")
    for kind in ("json", "png", "svg"):
        one, other = ((tmp_path / folder / f"explained.{kind}").read_bytes() for folder in ("out", "again"))
        assert one == other, kind
    assert again.frame.groupby("item", sort=False)["weight"].sum().tolist() == pytest.approx([1, 1, 1], abs=1e-5)


def test_a_bundle_says_what_its_run_says(run: edgefr.Run, users: list[str], tmp_path: Path, cache: Path) -> None:
    bundles = edgefr.export(run, tmp_path / "bundles", with_users=True)
    asked = run.recommend(users[1], 2)["item"].tolist()
    (folder,) = bundles.classes["path"]
    one, other = (edgefr.explain(source, users[1], asked) for source in (run, folder))
    assert one.frame["context"].tolist() == other.frame["context"].tolist()
    np.testing.assert_allclose(one.frame["weight"], other.frame["weight"], atol=1e-5)
    done = command("explain", folder, "--user", users[1], "--items", ",".join(asked), cache=cache)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("asked for") == 2
    newcomer = command("explain", next((run.path / "bundles").iterdir()), cache=cache)
    assert "its user has had no items yet" in refused(newcomer.returncode, newcomer.stdout, newcomer.stderr)


def test_the_items_of_two_users_are_laid_out(run: edgefr.Run, users: list[str], tmp_path: Path, cache: Path) -> None:
    out = tmp_path / "maps"
    done = command("explain", run.path, "--map", *users, "--out", out, cache=cache)
    assert done.returncode == 0, done.stderr
    assert sorted(path.name for path in out.iterdir()) == ["items.json", "items.png", "items.svg"]
    model = open_model(run).model
    maps = edgefr.map_items(run, users)
    with pytest.raises(InputError, match="name users to draw"):
        edgefr.map_items(run, [])
    for one, told in zip(maps, json.loads((out / "items.json").read_text())["users"], strict=True):
        np.testing.assert_allclose(one.at, told["at"])
        number = model.names.users.index(one.user)
        had = model.seen.values[model.seen.offsets[number] : model.seen.offsets[number + 1]]
        own = {item for item, positive in zip(one.items, one.positive, strict=True) if positive}
        assert own == {model.names.items[item] for item in had}
        assert len(one.items) == 2 * len(own) == len(set(one.items))
        assert np.isfinite(one.at).all()
        assert np.ptp(one.at, axis=0).min() > 0


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "name one of the run's users"),
        (("--user", "nobody"), "unknown user 'nobody'"),
        (("--user", "{0}", "--items", "nothing"), "unknown item 'nothing'"),
        (("--map", "{0}", "{1}"), "--out DIR"),
        (("--map", "{0}", "{1}", "--out", "{2}", "--user", "{0}"), "leave --user, --items, -k away"),
        (("--map", "{0}", "nobody", "--out", "{2}"), "unknown user 'nobody'"),
        (("--map", "{0}", "{0}", "--out", "{2}"), "name users to draw, each once"),
        (("--map", "{0}", "{1}", "--out", "{2}", "-k", "5"), "leave --user, --items, -k away"),
        (("--user", "{0}", "--items", "x", "-k", "5"), "leave it away where --items names them"),
        (("--user", "{0}", "--items", " , "), "--items names none"),
    ],
)
def test_refusals(
    arguments: tuple[str, ...], words: str, run: edgefr.Run, users: list[str], tmp_path: Path, cache: Path
) -> None:
    given = [argument.format(*users, tmp_path / "out") for argument in arguments]
    done = command("explain", run.path, *given, cache=cache)
    assert words in refused(done.returncode, done.stdout, done.stderr)
    assert not (tmp_path / "out").exists()


def test_an_item_is_explained_once(run: edgefr.Run, users: list[str]) -> None:
    """Also where the item held out is among the best."""
    found = edgefr.explain(run, users[0], k=150)
    items = [one.item for one in found.found]
    assert len(items) == len(set(items)) > 100
    assert [why for why in found.why if why != "recommended"] == ["recommended, held out"]


def test_titles_are_words_and_no_mathematics(tmp_path: Path) -> None:
    lean = Lean("i1", "Save 10% on $1_2_3$", 1.0)
    found = Explained("$u_", [Explanation("i2", "Make $$ Fast", (lean,))], ["asked for"])
    found.write(tmp_path)
    assert (tmp_path / "explained.png").stat().st_size > 1000
    maps = [ItemMap("$x^", ["a", "b"], np.array([True, False]), np.zeros((2, 2), np.float32))]
    write_maps(maps, tmp_path)
    assert (tmp_path / "items.png").exists()


def test_runs_whose_clients_recommend_from_rows_of_their_own_are_not_explained(tmp_path: Path) -> None:
    chosen = ["method=fedcar", "rounds=1", "model.dim=4", "evaluation.tables=own", TINY, FLEET]
    made = edgefr.simulate(
        edgefr.load_experiment(overrides=chosen), "devices.yaml", out=tmp_path / "run", bundles=False
    )
    user = str(made.users["user"].iloc[0])
    for ask in (lambda: edgefr.explain(made, user), lambda: edgefr.map_items(made, [user])):
        with pytest.raises(InputError, match="item rows of their own"):
            ask()


def test_methods_that_say_nothing_are_refused_and_those_that_do_are_named(tmp_path: Path) -> None:
    chosen = ["method=fedmf", "rounds=1", "model.dim=4", TINY, FLEET]
    plain = edgefr.simulate(
        edgefr.load_experiment(overrides=chosen), "devices.yaml", out=tmp_path / "run", bundles=False
    )
    user = str(plain.users["user"].iloc[0])
    with pytest.raises(InputError, match=r"fedmf does not say what a recommendation leans on; .*: fedcar"):
        edgefr.explain(plain, user)
    with pytest.raises(InputError, match="k is a whole number"):
        edgefr.explain(plain, user, k=0)
