"""Whoever has no history is shown the bundle's own list, or nothing; every list says its basis."""

from __future__ import annotations

import math
import shutil
from pathlib import Path

import numpy as np
import pytest

from edge.catalogue import Recommendations, StartList, ranked
from edge.recommender import Recommender
from privacy.errors import InputError
from tests.contract import bundles
from tests.devices import open_device
from tests.edge.folders import edit_json, resign
from tests.export import worlds

LISTED = StartList("popular", np.array([4, 1, 2]))
FLAT, RISING = np.zeros(6, np.float32), np.arange(6, dtype=np.float32)
NEW, ALIKE = "this device has no history", "the model does not tell items apart for this user"


def shown(
    scores: np.ndarray | None, start: StartList | None, left: tuple[int, ...] = (0, 1, 2, 3, 5), k: int = 2
) -> Recommendations:
    return ranked(np.array(left), k, scores, lambda: start, lambda item, value: (f"i{item}", f"title {item}", value))


@pytest.mark.parametrize(
    ("scores", "start", "basis", "items", "said"),
    [
        (RISING, LISTED, "model", ["i5", "i3"], ""),
        (None, LISTED, "popular", ["i1", "i2"], f"popular, since {NEW}"),
        (FLAT, LISTED, "popular", ["i1", "i2"], f"popular, since {ALIKE}"),
        (None, None, "none", [], f"no ranking yet, since {NEW}"),
        (FLAT, None, "none", [], f"no ranking yet, since {ALIKE}"),
        (None, StartList("popular", np.array([4])), "none", [], f"no ranking yet, since {NEW}"),
        (
            None,
            StartList("mean", np.array([3, 0, 5])),
            "mean",
            ["i3", "i0"],
            f"the model's order for nobody in particular, since {NEW}",
        ),
    ],
)
def test_what_is_shown_and_why(
    scores: np.ndarray | None, start: StartList | None, basis: str, items: list[str], said: str
) -> None:
    found = shown(scores, start)
    assert (found.basis, [item for item, *_ in found], found.said) == (basis, items, said)
    assert all(math.isnan(score) == (basis != "model") for *_, score in found)


def test_one_item_that_is_left_is_no_tie() -> None:
    found = shown(FLAT, None, left=(3,))
    assert (found.basis, list(found)) == ("model", [("i3", "title 3", 0.0)])
    assert repr(found) == "[('i3', 'title 3', 0.0)]"
    assert repr(shown(FLAT, None)) == f"<no ranking yet, since {ALIKE}: []>"


def test_of_what_is_left_all_scores_are_asked() -> None:
    """What a user has had may be all that the model tells apart."""
    one = FLAT.copy()
    one[4] = 1
    assert shown(one, None).basis == "none"
    assert shown(one, None, left=(0, 4)).basis == "model"


@pytest.mark.parametrize(("kind", "basis"), [("fedmf", "none"), ("mean", "mean"), ("fedncf", "mean")])
def test_a_bundle_recommends_to_somebody_new(kind: str, basis: str) -> None:
    device = Recommender(worlds.exported(kind)[0] / "laptop")
    found = device.recommend(1000)
    assert (found.basis, len(found)) == (basis, 0 if basis == "none" else worlds.ITEMS)
    best = [item for item, *_ in found]
    assert [item for item, *_ in device.recommend(3, exclude=best[:2])] == best[2:5]
    with pytest.raises(InputError, match="nothing to recommend"):
        device.recommend(3, exclude=range(worlds.ITEMS))


@pytest.fixture(scope="module")
def counted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bundle of pfedrec, whose items are ranked by people; it is read only."""
    out = tmp_path_factory.mktemp("counted")
    classes = {"laptop": worlds.CLASSES["laptop"]}
    worlds.export(**worlds.arguments("pfedrec", out) | {"classes": classes, "users_of": {}, "counted": True})
    return out / "laptop"


def test_a_new_device_shows_the_list_until_it_has_a_history(counted: Path, tmp_path: Path) -> None:
    device = open_device(counted, tmp_path / "state")
    found = device.recommend(4)
    assert found.basis == "popular"
    first = found[0][0]
    assert first not in {item for item, *_ in device.recommend(4, exclude=[first])}
    device.note([first])
    after = device.recommend(4)
    assert after.basis == "model"
    assert first not in {item for item, *_ in after}
    assert all(math.isfinite(score) for *_, score in after)


def test_a_device_of_a_bundle_without_a_list_says_that_there_is_no_ranking(tmp_path: Path) -> None:
    device = open_device(bundles.bundle("fedmf"), tmp_path / "state")
    assert (device.recommend(4), device.recommend(4).said) == ([], f"no ranking yet, since {NEW}")
    with pytest.raises(InputError, match="k must be a whole number of at least 1"):
        device.recommend(0)
    device.practise(["i1", "i2"])
    assert (device.recommend(4).basis, len(device.recommend(4))) == ("model", 4)


@pytest.mark.parametrize(
    ("items", "message"),
    [
        (np.array([3, 3], np.int32), r"index/start\.npy names items twice or unknown ones; export again"),
        (np.array([3, 60], np.int32), "names items twice or unknown ones"),
        (np.array([-1, 3], np.int32), "names items twice or unknown ones"),
        (np.array([3, 4], np.int64), r"is int64 \[2\] instead of int32 \[2\]"),
        (np.array([3], np.int32), r"is int32 \[1\] instead of int32 \[2\]"),
    ],
)
def test_a_list_that_is_none_is_refused(items: np.ndarray, message: str, counted: Path, tmp_path: Path) -> None:
    def spoil(bundle: Path) -> None:
        np.save(bundle / "index" / "start.npy", items)
        edit_json(bundle / "config.json", lambda config: config["start"].update(count=2))

    bundle = shutil.copytree(counted, tmp_path / "bundle")
    spoil(bundle)
    resign(bundle)
    for opened in (lambda: Recommender(bundle), lambda: open_device(bundle, tmp_path / "state")):
        with pytest.raises(InputError, match=message):
            opened()
