"""Held-out items do not leak into training: others in their place change no byte of what is learned.

Every method that runs on leave-one-out is asked, as the table of methods has it, over every fidelity that differs. A
run whose protocol lets negatives know the held-out items, as two papers' released code does, has to say so and to leak.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import edgefr
from edgefr.data.interactions import Catalogue, Dataset, assemble, item_text
from edgefr.data.splits.leave_one_out import LeaveOneOut
from edgefr.experiment.method import METHODS
from tests.caches import new_cache
from tests.export.worlds import student
from tests.golden.cases import known, ready
from tests.golden.values import NOISE_KEY, learned, tensors

USERS, USED = 24, 60
VALID, TEST = USED, USED + 1
"""Two items that nobody has."""
SAYS = "training knew which items are held out"
"""What a run says whose training knows them."""
ASKED = {name: values for name, values in known().items() if ", leave-one-out, none, " in name}
"""Overrides of every method that learns from sets of items, by method and fidelity."""
ACROSS = {
    name: values
    for name, values in known().items()
    if ", cross-domain, none, " in name and METHODS[name.split(",")[0].split()[0]].central is not None
}
"""Overrides of references on a task of two domains."""


def made() -> Dataset:
    """Return a small data set in which everybody has a taste, so that there is something to learn."""
    draw = np.random.default_rng(5)
    rows = []
    for user in range(USERS):
        liked = np.where(np.arange(USED) % 3 == user % 3, 6.0, 1.0)
        items = draw.choice(USED, draw.integers(5, 14), replace=False, p=liked / liked.sum())
        rows += [(user, int(item), 1_600_000_000 + 100 * place) for place, item in enumerate(items)]
    names = [f"{('red', 'green', 'blue')[item % 3]} thing {item}" for item in range(USED + 2)]
    catalogue = Catalogue(
        np.array([f"i{item}" for item in range(USED + 2)]),
        names,
        [item_text(name.split()[0], name) for name in names],
        np.zeros(USED + 2, np.uint8),
    )
    people = np.array([f"u{user}" for user in range(USERS)])
    columns = np.array(rows).T
    return assemble("made", people, catalogue, (columns[0], columns[1], columns[2]), ("things",), True, {})


def with_others_held_out(dataset: Dataset) -> Dataset:
    """Return the data set with items that nobody has in place of every held-out one."""
    item, last = dataset.item.copy(), dataset.offsets[1:] - 1
    item[last], item[last - 1] = TEST, VALID
    return replace(dataset, item=item)


def in_two_domains(held_out: bool) -> Dataset:
    """Return users with items in two domains, the newest two of each held out: of nobody else where `held_out`."""
    one = with_others_held_out(made()) if held_out else made()
    users, items = np.tile(one.user, 2), np.concatenate([one.item, one.item + len(one.catalogue)])
    names = np.concatenate([one.catalogue.ids, np.char.add(one.catalogue.ids, " too")])
    domain = np.repeat(np.array([0, 1], np.uint8), len(one.catalogue))
    catalogue = Catalogue(names, one.catalogue.title * 2, one.catalogue.text * 2, domain)
    columns = users, items, np.tile(one.time, 2)
    return assemble("made", one.users, catalogue, columns, ("books", "films"), True, {})


def ran(overrides: list[str], dataset: Dataset, folder: Path) -> tuple[dict[str, bytes], dict[str, Any]]:
    """Return what a run has learned, tensor by tensor, and its summary."""
    experiment, keyed = edgefr.load_experiment(overrides=overrides), {}
    if experiment.draws_noise:  # what is relayed, and its noise, must not differ from run to run
        keyed["noise_key"] = folder.with_suffix(".key")
        keyed["noise_key"].write_text(NOISE_KEY)
    edgefr.simulate(experiment, data=dataset, out=folder, bundles=False, page=False, **keyed)
    found = {name: tensor.tobytes() for name, tensor in tensors(folder).items() if learned(name)}
    return found, json.loads((folder / "summary.json").read_text())


def overrides_of(case: str) -> list[str]:
    own = [
        text
        for text in ready((ASKED | ACROSS)[case], student())
        if not text.startswith(("data_options", "clients_per_round"))
    ]
    row = edgefr.load_experiment(overrides=own).row
    central, batches = row.central, ["batch_size=16"] if row.batches and row.reads == "items" else []
    if central is not None:  # validation decides which epoch is kept, so there is one
        return [*own, "protocol.negatives=20", *(["model.epochs=1", "batch_size=16"] if central.batches else [])]
    return [*own, "rounds=2", "clients_per_round=1.0", "protocol.negatives=20", *batches]


def test_others_in_place_of_the_held_out_items_are_held_out_and_nothing_else_changes() -> None:
    before, after = (LeaveOneOut(negatives=20).apply(data, 0)[0] for data in (made(), with_others_held_out(made())))
    assert not np.isin(made().item, (VALID, TEST)).any()
    assert (after.valid.tolist(), after.test.tolist()) == ([VALID] * USERS, [TEST] * USERS)
    assert not np.isin(before.test, (VALID, TEST)).any()
    assert before.train.values.tolist() == after.train.values.tolist()
    assert before.train.offsets.tolist() == after.train.offsets.tolist()


def test_every_method_on_leave_one_out_is_asked() -> None:
    """One that a new row of the table brings is asked without being named here."""
    own = [row for row in METHODS.values() if row.reads != "sessions" and "backbone" not in row.defaults]
    assert {name.split(",")[0].split()[0] for name in ASKED | ACROSS} >= {row.name for row in own}


@pytest.mark.parametrize("case", ASKED)
def test_held_out_items_do_not_leak(case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EDGEFR_CACHE", str(new_cache(tmp_path / "cache")))
    overrides = overrides_of(case)
    one, summary = ran(overrides, made(), tmp_path / "one")
    two, other = ran(overrides, with_others_held_out(made()), tmp_path / "two")
    assert one.keys() == two.keys()
    assert summary["metrics"] != other["metrics"], "what is asked for has changed"
    differ = [name for name in one if one[name] != two[name]]
    if getattr(edgefr.load_experiment(overrides=overrides).protocol, "negatives_avoid_held_out", False):
        assert SAYS in summary["protocol"]
        assert differ, "the run says that training knew the held-out items, and it did not"
    else:
        assert differ == []
        assert SAYS not in summary["protocol"]


def all_tied(stages: dict[str, dict[str, float]]) -> bool:
    """Whether a reference knows none of 21 candidates, so that its metrics are what is expected of any order."""
    return all(found["HR@5"] == pytest.approx(5 / 21, abs=1e-12) for found in stages.values())


@pytest.mark.parametrize("case", ACROSS)
def test_held_out_items_of_either_domain_do_not_leak(case: str, tmp_path: Path) -> None:
    overrides = overrides_of(case)
    one, summary = ran(overrides, in_two_domains(False), tmp_path / "one")
    two, other = ran(overrides, in_two_domains(True), tmp_path / "two")
    for split in ("source", "target"):
        if split == "source" or not all_tied(summary["stages"][split]):
            assert summary["stages"][split] != other["stages"][split], "what is asked for has changed"
    assert one
    assert one.keys() == two.keys()
    assert [name for name in one if one[name] != two[name]] == []


def test_users_with_few_items_are_no_clients_where_they_are_dropped(tmp_path: Path) -> None:
    data = made()
    many = int((np.diff(data.offsets) >= 9).sum())
    assert 0 < many < USERS
    asked = ["method=fedmf", "rounds=2", "protocol.negatives=20", "evaluation.k=[5]", "protocol.min_interactions=9"]
    _, kept = ran(asked, data, tmp_path / "train")
    _, dropped = ran([*asked, "protocol.few=drop"], data, tmp_path / "drop")
    assert (kept["dataset"]["users"], dropped["dataset"]["users"]) == (USERS, many)
    assert "users under 9 items only train" in kept["protocol"]
    assert "users under 9 items are dropped whole" in dropped["protocol"]


def test_only_a_released_code_may_let_training_know_them() -> None:
    """By default, and as the papers have it, no method's training knows what is held out."""
    for name, values in ASKED.items():
        knows = getattr(edgefr.load_experiment(overrides=values).protocol, "negatives_avoid_held_out", False)
        assert not knows or name.endswith(", released"), name
