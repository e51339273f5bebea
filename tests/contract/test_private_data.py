"""Nobody's private data is in a bundle for devices: every method's bundle is searched, byte by byte."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from edge.bundle import open_bundle
from edge.ragged import Ragged
from edge.recommender import Recommender
from export.archive import pack
from export.cold_start import start_list
from export.learning import LearningSpec
from export.model import Names, TrainedModel
from privacy import keyed
from privacy.errors import InputError
from privacy.files import packed
from tests.contract import bundles, programs, session_bundles, sessions
from tests.devices import open_device
from tests.mostly_slow import mostly_slow

METHODS = [*bundles.SHIPPED, *session_bundles.SHIPPED]
QUICK = ("fedmf", "fedcar", "transfr mean by softmax", "fcucr")
"""One of each kind: rows alone, messages, vectors of texts, sessions."""
LONGEST = 64
"""Values of each tensor that are searched for."""


def model(variant: str) -> TrainedModel:
    """A method's model whose clients' tensors, items and names are like nothing else in a bundle."""
    windowed = variant in session_bundles.SHIPPED
    program = sessions.program(variant) if windowed else programs.program(variant)
    catalogue, count = (
        (sessions.ITEMS if windowed else programs.ITEMS),
        (sessions.CLIENTS if windowed else programs.CLIENTS),
    )
    items, times = sessions.sessions() if windowed else (programs.interactions(), None)
    first = program.init_private(3, torch.arange(count))
    private = {name: drawn(name, value.shape) for name, value in first.items()}
    names = Names(
        [f"somebody-{keyed.key(7, str(n)):x}" for n in range(count)], *([f"i{n}" for n in range(catalogue)],) * 2
    )
    seen = Ragged.from_lists([np.unique(items[client]).tolist() for client in range(count)])
    history = items if windowed or program.needs_history else None
    return TrainedModel(program, program.init_shared(3), private, names, seen, history=history, times=times)


def drawn(name: str, shape: torch.Size) -> torch.Tensor:
    values = keyed.normal(keyed.key(11, name), np.arange(int(np.prod(shape))))
    return torch.from_numpy(values.reshape(shape).astype(np.float32))


def exported(variant: str, out: Path, learning: LearningSpec | None = None, with_users: bool = False) -> Path:
    return bundles.ship(out, model(variant), learning, with_users=with_users)


def traces(users: TrainedModel) -> Iterator[tuple[str, bytes]]:
    """What would tell of somebody: names, pairs of neighbours in a vector, and runs of items and of times."""
    for number, name in enumerate(users.names.users):
        yield f"name of {number}", name.encode()
        for tensor in users.private:
            values = users.private[tensor][number].numpy().ravel()[:LONGEST]
            for kind, least in ((np.float32, 2), (np.float16, 4)):
                for start in range(0, max(1, len(values) - least + 1), least):
                    trace = values[start : start + least].astype(kind).tobytes()
                    if len(trace) >= 4:  # two bytes of a number are anywhere
                        yield f"{tensor} of {number}", trace
        for what, rows in (("history", users.history), ("seen", users.seen), ("times", users.times)):
            own = (
                np.empty(0, np.int64)
                if rows is None
                else np.asarray(rows.values[slice(*rows.offsets[number : number + 2])])
            )
            if len(own) < 4:
                continue
            for kind in (np.int64, np.int32):
                yield f"{what} of {number}", own.astype(kind)[:6].tobytes()
            yield f"{what} of {number}, as text", json.dumps(own[:6].tolist())[1:-1].encode()


def content_of(folder: Path) -> bytes:
    """All files of a bundle, as a folder and in a zip, packed and unpacked."""
    archive = pack(folder, folder.with_suffix(".zip"))
    with zipfile.ZipFile(archive) as archived:
        zipped = [archived.read(name) for name in archived.namelist()]
    files = [path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()]
    return b"\0".join([*files, archive.read_bytes(), *zipped])


def found(content: bytes, users: TrainedModel) -> set[str]:
    return {what for what, trace in traces(users) if trace in content}


@pytest.mark.parametrize("variant", mostly_slow(METHODS, QUICK))
def test_no_bundle_for_devices_has_anybodys_data(variant: str, tmp_path: Path) -> None:
    made = model(variant)
    bundle = exported(variant, tmp_path, bundles.LEARNING)
    assert found(content_of(bundle), made) == set()
    everyone = list(range(len(made.names.users)))
    told = found(packed(made.columns(everyone)) + "".join(made.names.users).encode(), made)
    assert {f"{name} of {n}" for name in ("name", *made.private) for n in everyone} <= told, "it finds what is there"


@pytest.mark.parametrize("variant", mostly_slow(METHODS, QUICK))
def test_a_list_for_nobody_is_of_the_model_alone(variant: str) -> None:
    """Of a run that promises something a new device is shown the same, whoever the clients are and had."""
    made = model(variant)
    others = {name: 2 * value[:1] for name, value in made.private.items()}
    one = {"names": replace(made.names, users=["other"]), "seen": Ragged.from_lists([[4, 9, 2]])}
    history = None if made.history is None else Ragged.from_lists([[4, 9]])
    times = None if made.times is None else Ragged.from_lists([[7, 8]])
    another = replace(made, private=others, **one, history=history, times=times)
    first, second = start_list(made, 3, counted=False), start_list(another, 3, counted=False)
    if first is None or second is None:
        assert (first, second) == (None, None)
        return
    assert first.basis == "mean"
    np.testing.assert_array_equal(first.items, second.items)


@pytest.mark.parametrize("variant", ["fedmf", "transfr mean by softmax", "fcucr"])
def test_a_bundle_without_users_scores_a_user_that_is_given_beside_it(variant: str, tmp_path: Path) -> None:
    made = model(variant)
    carried, bare = (Recommender(exported(variant, tmp_path / str(n), with_users=n)) for n in (True, False))
    assert bare.users == []
    for number, name in enumerate(made.names.users[:4]):
        state = made.state(number)
        np.testing.assert_array_equal(bare.scores(state), carried.scores(name))
        assert bare.recommend(5, state) == carried.recommend(5, name)
    with pytest.raises(InputError, match=r"carries no users, so it does not know 'u3'.*--with-users"):
        bare.recommend(5, "u3")


def test_a_device_of_a_bundle_without_users_is_a_new_one_by_that_name(tmp_path: Path) -> None:
    bundle = exported("fedmf", tmp_path / "bundle", bundles.LEARNING)
    named, unnamed = open_device(bundle, tmp_path / "named", user="u3"), open_device(bundle, tmp_path / "unnamed")
    assert (named.state.facts["user"], unnamed.state.facts["user"]) == ("u3", None)
    assert named.state.facts["number"] != unnamed.state.facts["number"]
    assert named.state.tensors.keys() == unnamed.state.tensors.keys()
    for name, value in named.state.tensors.items():
        np.testing.assert_array_equal(value, unnamed.state.tensors[name], err_msg=name)
    named.learn(["i1", "i2"])
    with pytest.raises(InputError, match="is the state of user 'u3', not 'u4'"):
        open_device(bundle, tmp_path / "named", user="u4")
    for odd in ("", "two\nlines", "x" * 201):
        with pytest.raises(InputError, match="a device's name is one line of 1 to 200 characters"):
            open_device(bundle, tmp_path / "odd", user=odd)
    assert not (tmp_path / "odd").exists()


def test_a_config_has_users_wholly_or_not_at_all(tmp_path: Path) -> None:
    from tests.edge.folders import edit_json, resign

    bundle = exported("fedmf", tmp_path, with_users=True)
    edit_json(bundle / "config.json", lambda config: config.update(users=None))
    resign(bundle)
    with pytest.raises(InputError, match="users' ids and no state of theirs"):
        open_bundle(bundle)
