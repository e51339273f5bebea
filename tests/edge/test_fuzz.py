"""Damaged files end in one line or in what they said: a share of `tests.edge.fuzz`."""

import json
import re
import shutil
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from edge import Recommender, open_bundle
from export.sign import generate, sign_bundle
from privacy.errors import InputError
from tests.contract import bundles
from tests.edge.folders import resign
from tests.edge.fuzz import World, fuzz, one, table
from tests.export import worlds


def test_broken_files_end_in_one_line_or_in_what_they_said() -> None:
    found = fuzz(0.04)
    print(table(found))
    assert not any(counts["faults"] or counts["hangs"] for counts in found.values())
    assert all(counts["refused"] > counts["rules"] for name, counts in found.items() if "signed" not in name)
    assert not any(found[name]["rules"] for name in ("zips", "states")), "what has a digest says what it said"


def test_a_damaged_archive_opens_as_packed_or_not_at_all(tmp_path: Path) -> None:
    zips = World(tmp_path).kinds()[0]
    found = Counter(one(zips, number) for number in range(1000, 1150))
    assert not found.keys() - {"refused", "same"}
    assert found["refused"] > 100


@pytest.mark.parametrize("name", ["\r", "\x85", "\u2028", "\x1b[2J"])
def test_a_refusal_names_a_key_as_no_terminal_obeys_it(tmp_path: Path, name: str) -> None:
    bundle = shutil.copytree(bundles.bundle("fedmf"), tmp_path / "bundle")
    resign(bundle, lambda record: record.update({name: 1}))
    with pytest.raises(InputError, match=re.escape(f"({ascii(name)[1:-1]}: Extra inputs are not permitted)")):
        open_bundle(bundle)


FUZZ = settings(max_examples=150, deadline=5000, suppress_health_check=[HealthCheck.too_slow])


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A signed bundle that a test may change if it changes it back."""
    folder = tmp_path_factory.mktemp("fuzz")
    generate(folder)
    copy = shutil.copytree(worlds.exported("pfedrec")[0] / "speaker", folder / "speaker")
    sign_bundle(copy, folder / "private.pem")
    return copy


@st.composite
def damages(draw: st.DrawFn, size: int) -> list[tuple[str, int, bytes]]:
    """Some edits: overwrite, insert or cut out bytes at a place, or end there. Often near the end, where a zip's
    headers are."""
    places = st.integers(0, size) | st.integers(max(0, size - 1500), size)
    edit = st.tuples(st.sampled_from(["over", "in", "out", "end"]), places, st.binary(min_size=1, max_size=8))
    return draw(st.lists(edit, min_size=1, max_size=3))


def damaged(content: bytes, edits: list[tuple[str, int, bytes]]) -> bytes:
    for kind, at, some in edits:
        if kind == "end":
            content = content[:at]
        else:
            kept = content[at + (len(some) if kind != "in" else 0) :]
            content = content[:at] + (some if kind != "out" else b"") + kept
    return content


values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats()
    | st.text(max_size=12)
    | st.sampled_from(
        ["../x", "", "edgefr.bundle/9", "9999-12-31T23:59:59-23:59", "config.json", "onnx/score.onnx", "i8"]
    ),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=6,
)


def mutate(draw: Any, record: Any) -> None:
    """Change something somewhere in a JSON tree: put another value, drop a part, add one, or repeat one."""
    spots = []
    todo = [record]
    while todo:
        node = todo.pop()
        pairs = list(node.items()) if isinstance(node, dict) else list(enumerate(node))
        spots += [(node, key) for key, _ in pairs]
        todo += [value for _, value in pairs if isinstance(value, dict | list)]
    node, key = draw(st.sampled_from(spots))
    kind = draw(st.sampled_from(["put", "put", "drop", "add", "repeat"]))
    if kind == "put":
        node[key] = draw(values)
    elif kind == "drop":
        del node[key]
    elif isinstance(node, dict):
        node[draw(st.text(max_size=6))] = node[key] if kind == "repeat" else draw(values)
    else:
        node.append(node[key] if kind == "repeat" else draw(values))


def recommends_or_refuses(bundle: Path, catalogue: list[str]) -> None:
    """Three items of the catalogue, best first, or one line that says what is wrong; to somebody new, no more."""
    refusal = None
    try:
        device = Recommender(bundle)
        found, first = device.recommend(3, history=[0]), device.recommend(3)
    except InputError as error:
        refusal = str(error)
    if refusal is not None:
        assert refusal
        assert refusal.isprintable()
        return
    assert len({item for item, _, _ in first} & set(catalogue)) == len(first) == (0 if first.basis == "none" else 3)
    if found.basis != "model":  # all scores are the same
        assert list(found) == list(first)
        return
    assert len({item for item, _, _ in found} & set(catalogue)) == len(found) == 3
    scores = [score for _, _, score in found]
    assert np.isfinite(scores).all()
    assert scores == sorted(scores, reverse=True)


@pytest.fixture(scope="module")
def catalogue(bundle: Path) -> list[str]:
    """What the undamaged bundle knows."""
    return Recommender(bundle).catalogue.ids


@FUZZ
@given(st.data())
def test_a_damaged_manifest_or_signature_opens_as_written_or_not_at_all(bundle: Path, data: st.DataObject) -> None:
    path = bundle / data.draw(st.sampled_from(["manifest.json", "manifest.sig.json"]))
    good = path.read_bytes()
    path.write_bytes(damaged(good, data.draw(damages(len(good)))))
    try:
        manifest = None
        with suppress(InputError):
            manifest = open_bundle(bundle, trusted=[bundle.parent / "public.pem"]).manifest
        same = json.loads(path.read_bytes()) == json.loads(good) if manifest else False
    finally:
        path.write_bytes(good)
    assert (manifest is None) or (same and manifest == open_bundle(bundle).manifest)


@FUZZ
@given(st.data())
def test_manifests_that_make_sense_to_nobody(bundle: Path, catalogue: list[str], data: st.DataObject) -> None:
    """Another tree of values, with true digests where the schema allows it: accepted by the rules or refused."""
    path = bundle / "manifest.json"
    good = path.read_bytes()
    try:
        resign(bundle, lambda record: mutate(data.draw, record))
        recommends_or_refuses(bundle, catalogue)
    finally:
        path.write_bytes(good)


@FUZZ
@given(st.data())
def test_configs_that_make_sense_to_nobody(bundle: Path, catalogue: list[str], data: st.DataObject) -> None:
    """The same for config.json, whose digest is true again: signed nonsense is refused as well."""
    manifest, path = bundle / "manifest.json", bundle / "config.json"
    good = manifest.read_bytes(), path.read_bytes()
    record = json.loads(good[1])
    try:
        mutate(data.draw, record)
        path.write_text(json.dumps(record))
        resign(bundle)
        recommends_or_refuses(bundle, catalogue)
    finally:
        manifest.write_bytes(good[0])
        path.write_bytes(good[1])
