"""Recommending and encoding from bundles, and bundles whose parts do not fit together."""

import math
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import edge.scorer
from edge import Recommender
from edge.catalogue import Recommendations, StartList, ranked, top
from privacy.errors import InputError
from tests.closeness import assert_same
from tests.devices import open_device
from tests.edge.folders import edit_json, edit_tensors, resign
from tests.export import worlds


@pytest.fixture(scope="module")
def device() -> Recommender:
    """A device with an fp32 encoder; its users are u0, u4 and u8."""
    return Recommender(worlds.exported("transfr")[0] / "laptop")


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    """A copy of a good bundle with int8 vectors and histories; its users are u3, u7 and u11."""
    return shutil.copytree(worlds.exported("mean")[0] / "speaker", tmp_path / "speaker")


def test_recommendations_are_the_best_items_not_seen(device: Recommender) -> None:
    scores, seen = device.scores("u4"), set(worlds.column("seen").of(4).tolist())
    order = sorted((i for i in range(device.items) if i not in seen), key=lambda i: (-scores[i], i))
    expected = [(f"i{i}", worlds.titles()[i], pytest.approx(float(scores[i]))) for i in order]
    assert device.recommend(7, user="u4") == expected[:7]
    assert device.recommend(1000, user="u4") == expected
    left = device.recommend(5, user="u4", exclude=[order[0], f"i{order[2]}", np.int32(order[3])])
    assert [item for item, _, _ in left] == [f"i{order[n]}" for n in (1, 4, 5, 6, 7)]


def test_blocks_do_not_change_scores(device: Recommender, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = device.scores("u0")
    monkeypatch.setattr(edge.scorer, "BLOCK", 7)
    assert_same(device.scores("u0"), whole)


@given(
    hnp.arrays(np.float32, st.integers(1, 40), elements=st.sampled_from([-1.5, 0.0, 0.25, 2.0])),
    st.integers(1, 50),
)
def test_top_is_a_stable_sort(scores: np.ndarray, k: int) -> None:
    assert top(scores, k).tolist() == sorted(range(len(scores)), key=lambda i: (-scores[i], i))[:k]


def test_a_new_device_starts_without_a_past_and_takes_one() -> None:
    device = Recommender(worlds.exported("mean")[0] / "laptop")
    assert np.ptp(device.scores()) == 0  # a mean over nothing is zero, and so is every score
    past = worlds.column("history").of(4).tolist()
    program, shared, _ = worlds.trained("mean")
    fresh = {n: t[0] for n, t in program.init_private(0, torch.tensor([worlds.USERS])).items()}
    expected = worlds.literal(program, shared | fresh, np.asarray(past))
    assert_same(device.scores(history=past), expected)
    names = [f"i{n}" for n in past]
    np.testing.assert_array_equal(device.scores(history=names), device.scores(history=past))
    assert np.ptp(device.scores(history=past)) > 0


def test_encoding_gives_the_cached_vectors(device: Recommender) -> None:
    assert_same(device.encode(worlds.titles()), worlds.text())
    one = device.encode(worlds.titles()[5])
    assert one.shape == (1, worlds.WIDTH)
    np.testing.assert_array_equal(one[0], device.encode(worlds.titles())[5])
    assert not device.encode(["", "  "]).any()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda d: d.recommend(0, user="u0"), "k must be a whole number of at least 1, got 0"),
        (lambda d: d.recommend(2.5, user="u0"), "k must be a whole number"),
        (lambda d: d.recommend(3, user="u44"), "unknown user 'u44'; did you mean 'u4'"),
        (lambda d: d.scores("nobody"), "unknown user 'nobody'"),
        (lambda d: d.recommend(3, user="u0", exclude=["i5", "i99"]), "unknown item 'i99' .*60 items"),
        (
            lambda d: d.recommend(3, user="u0", exclude=[60]),
            r"item number 60 is outside the catalogue \(0 to 59\)",
        ),
        (lambda d: d.recommend(3, user="u0", exclude=[-1]), "item number -1 is outside"),
        (lambda d: d.recommend(3, user="u0", exclude="i5"), r"write \['i5'\]"),
        (lambda d: d.recommend(3, user="u0", exclude=[1.5]), "an item is an id .* got 1.5"),
        (lambda d: d.recommend(3, user="u0", exclude=range(60)), "nothing to recommend: all 60 items"),
        (lambda d: d.encode([3]), "a text must be a string, got int"),
    ],
)
def test_wrong_questions_get_one_line(call, message: str, device: Recommender) -> None:
    with pytest.raises(InputError, match=message) as caught:
        call(device)
    assert "\n" not in str(caught.value)


def test_a_bundle_of_cached_vectors_says_who_can_encode() -> None:
    with pytest.raises(InputError, match=r"variant i8\) has cached item vectors only.*: laptop, phone"):
        Recommender(worlds.exported("transfr")[0] / "speaker").encode("x")
    with pytest.raises(InputError, match="no class of its export has one"):
        Recommender(worlds.exported("fedmf")[0] / "laptop").encode("x")


def widen(bundle: Path) -> None:
    np.save(bundle / "index" / "text.i8.npy", np.zeros((worlds.ITEMS, worlds.WIDTH + 1), np.int8))
    edit_json(bundle / "config.json", lambda c: c["tables"][0].update(width=worlds.WIDTH + 1))


USERS, SHARED = Path("private", "users.safetensors"), Path("adapters", "shared.safetensors")


def edited(path: str, change: Callable[[Any], object]) -> Callable[[Path], object]:
    return lambda bundle: edit_json(bundle / path, change)


def config(change: Callable[[Any], object]) -> Callable[[Path], object]:
    return edited("config.json", change)


def ids(change: Callable[[Any], object]) -> Callable[[Path], object]:
    return edited("index/ids.json", change)


def tensors(path: Path, change: Callable[[Any], object]) -> Callable[[Path], object]:
    return lambda bundle: edit_tensors(bundle / path, change)


def saved(name: str, array: np.ndarray, **how: bool) -> Callable[[Path], object]:
    return lambda bundle: np.save(bundle / "index" / name, array, **how)


def written(path: Path | str, raw: bytes) -> Callable[[Path], object]:
    return lambda bundle: (bundle / path).write_bytes(raw)


def sign(key: str, odd: str) -> tuple[Callable[[Path], object], str]:
    return ids(lambda c: c[key].append(c[key].pop(0) + odd)), rf"ids\.json is no file of ids \({key}\.59: .* be shown"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (saved("text.i8.npy", np.zeros((59, 48), np.int8)), r"int8 \[59, 48\] instead of"),
        (saved("text.i8.npy", np.zeros((60, 48))), "float64 .* instead of int8"),
        (saved("text.scale.npy", np.zeros(59, np.float32)), r"text\.scale\.npy is float32"),
        (written("index/text.i8.npy", b"\x93NUMPY"), r"text\.i8\.npy is not a \.npy array"),
        (saved("text.i8.npy", np.array([{}]), allow_pickle=True), r"text\.i8\.npy is not a \.npy array"),
        (widen, r"items\.text is float32 .* instead of"),
        (config(lambda c: c["tables"].clear()), "reads table 'text', which the bundle"),
        (config(lambda c: c["tables"][0].update(scale=None)), "has no scale file"),
        (config(lambda c: c.update(score="onnx/other.onnx")), r"other\.onnx is missing"),
        (config(lambda c: c.update(score="../x")), r"config\.json is not a bundle config"),
        (ids(lambda c: c["ids"].pop()), "'ids' has 59 entries instead of 60"),
        (ids(lambda c: c.pop("titles")), r"no file of ids \(titles: Field required"),
        (ids(lambda c: c.update(offered=None)), r"no file of ids \(offered: Input should be a valid array"),
        (ids(lambda c: c["ids"].insert(0, 4)), r"no file of ids \(ids\.0: Input should be a valid string"),
        *(sign(*odd) for odd in (("titles", "\x1b]0;a\x07"), ("titles", "\u202e"), ("ids", "\n"))),
        (ids(lambda c: c["titles"].append(c["titles"].pop(0) + "\ud800")), r"no file of ids \(Invalid JSON"),
        (ids(lambda c: c["ids"].append(c["ids"].pop(0) and c["ids"][3])), "ids repeat"),
        (edited("private/users.json", lambda c: c["users"].append(4)), r"no file of ids \(users\.3: Input"),
        (
            edited("private/users.json", lambda c: (c["users"].append("v"), c["numbers"].append(9))),
            "do not cut .* into 4 users",
        ),
        (written("onnx/score.onnx", b""), r"score\.onnx does not load in onnxruntime"),
        (written(SHARED, b""), r"shared\.safetensors is not a safetensors"),
        (written(USERS, b"\xff" * 20), r"users\.safetensors is not a safetensors"),
        (tensors(SHARED, lambda t: t.pop("adapter.0.bias")), r"needs input shared\.adapter\.0\.bias"),
        (tensors(SHARED, lambda t: t["adapter.0.bias"].fill(np.nan)), "not finite"),
        (tensors(USERS, lambda t: t["seen.values"].fill(60)), "seen of user 'u7' has items outside"),
        (tensors(USERS, lambda t: t.pop("history.offsets")), r"history\.offsets is missing"),
        (tensors(USERS, lambda t: t["seen.offsets"].fill(2)), r"seen\.offsets do not cut"),
    ],
)
def test_parts_that_do_not_fit_together_are_named(change, message: str, bundle: Path) -> None:
    change(bundle)
    resign(bundle)
    with pytest.raises(InputError, match=message) as caught:
        Recommender(bundle).recommend(5, user="u7")
    assert "\n" not in str(caught.value)


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
            f"the model's default order for a new user, since {NEW}",
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
