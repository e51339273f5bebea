"""`edgefr explain` as a user runs it: a run and its bundle say the same, in words, in files and in pictures."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import edgefr
from edge.explain import Explanation, Lean
from edgefr.report.explanations import Explained, ItemMap
from edgefr.simulation.explain import write_maps
from edgefr.simulation.runs.saved_model import open_model
from privacy.errors import InputError
from tests.cli.commands import done
from tests.cli.conftest import Cli

TINY = "data_options={users: 40, items: 160, interactions: 12}"
FLEET = "fleet.share={laptop_x86: 1.0}"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> edgefr.Run:
    """A small finished run of FedCAR, with the bundle of everybody's device."""
    home = tmp_path_factory.mktemp("car")
    settings = ("method=fedcar", "rounds=2", "model.dim=6", TINY, FLEET)
    chosen = [part for setting in settings for part in ("--set", setting)]
    done("simulate", "--devices", "devices.yaml", *chosen, "--out", home / "run", cache=home / "cache")
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
    said = done("explain", run.path, "--user", users[0], "-k", "2", "--out", tmp_path / "out", cache=cache)
    assert f"what recommendations for {users[0]} lean on, of the last 5 items" in said.replace("\n", " ")
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
            assert f"{lean['weight']:.1%}" in said
    again = edgefr.explain(run, users[0], k=2, out=tmp_path / "again")
    for kind in ("json", "png", "svg"):
        one, other = ((tmp_path / folder / f"explained.{kind}").read_bytes() for folder in ("out", "again"))
        assert one == other, kind
    assert again.frame.groupby("item", sort=False)["weight"].sum().tolist() == pytest.approx([1, 1, 1], abs=1e-5)


def test_a_bundle_says_what_its_run_says(run: edgefr.Run, users: list[str], tmp_path: Path, cli: Cli) -> None:
    bundles = edgefr.export(run, tmp_path / "bundles", with_users=True)
    asked = run.recommend(users[1], 2)["item"].tolist()
    (folder,) = bundles.classes["path"]
    one, other = (edgefr.explain(source, users[1], asked) for source in (run, folder))
    assert one.frame["context"].tolist() == other.frame["context"].tolist()
    np.testing.assert_allclose(one.frame["weight"], other.frame["weight"], atol=1e-5)
    assert cli.done("explain", folder, "--user", users[1], "--items", ",".join(asked)).count("asked for") == 2
    assert "its user has had no items yet" in cli.refused("explain", next((run.path / "bundles").iterdir()))


def test_the_items_of_two_users_are_laid_out(run: edgefr.Run, users: list[str], tmp_path: Path, cli: Cli) -> None:
    out = tmp_path / "maps"
    cli.done("explain", run.path, "--map", *users, "--out", out)
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


def test_refusals(run: edgefr.Run, users: list[str], tmp_path: Path, cli: Cli) -> None:
    one, two = users
    out, drawn = ("--out", tmp_path / "out"), ("--map", one, two)
    for arguments, words in (
        ((), "name one of the run's users"),
        (("--user", "nobody"), "unknown user 'nobody'"),
        (("--user", one, "--items", "nothing"), "unknown item 'nothing'"),
        (drawn, "--out DIR"),
        ((*drawn, *out, "--user", one), "omit --user, --items and -k"),
        (("--map", one, "nobody", *out), "unknown user 'nobody'"),
        (("--map", one, one, *out), "name users to draw, each once"),
        ((*drawn, *out, "-k", "5"), "omit --user, --items and -k"),
        (("--user", one, "--items", "x", "-k", "5"), "omit it where --items names them"),
        (("--user", one, "--items", " , "), "--items names none"),
    ):
        assert words in cli.refused("explain", run.path, *arguments)
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


def made(out: Path, *changes: str) -> tuple[edgefr.Run, str]:
    """A run of one round without bundles, and one of its users."""
    experiment = edgefr.load_experiment(overrides=["rounds=1", "model.dim=4", TINY, FLEET, *changes])
    run = edgefr.simulate(experiment, "devices.yaml", out=out, bundles=False)
    return run, str(run.users["user"].iloc[0])


def test_runs_whose_clients_recommend_from_rows_of_their_own_are_not_explained(tmp_path: Path) -> None:
    run, user = made(tmp_path / "run", "method=fedcar", "evaluation.tables=own")
    for ask in (lambda: edgefr.explain(run, user), lambda: edgefr.map_items(run, [user])):
        with pytest.raises(InputError, match="item rows of their own"):
            ask()


def test_methods_that_say_nothing_are_refused_and_those_that_do_are_named(tmp_path: Path) -> None:
    plain, user = made(tmp_path / "run", "method=fedmf")
    with pytest.raises(InputError, match=r"fedmf does not say what a recommendation leans on; .*: fedcar"):
        edgefr.explain(plain, user)
    with pytest.raises(InputError, match="k is a whole number"):
        edgefr.explain(plain, user, k=0)
