"""Devices that stop, come back or stay away; rounds go on without them and count nothing twice."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from dataclasses import replace
from pathlib import Path
from threading import Thread

import numpy as np
import pytest
import torch

from edge.bundle import open_bundle
from edge.connection import Patience, Server
from edge.identity import Identity
from edge.remote import join
from edge.sampling import Sampler
from edge.update import ClientUpdate
from edgefr.engine.aggregate import ReleaseTerms, release
from edgefr.engine.backends.backend import InProcess
from edgefr.engine.executors.inline import run as inline
from edgefr.serving.broker import RoundBroker
from edgefr.serving.devices import Devices, released, updates_of
from edgefr.serving.origin import Origin, Origins
from edgefr.serving.serve import origins_of, serve
from edgefr.serving.training import training_of
from edgefr.simulation.runs.run import Run
from export.learning import trained_tables
from export.shared_files import stage_tables
from export.sign import generate, sign_bundle
from export.staged_files import Staging
from privacy.errors import InputError
from privacy.machine import hold
from tests.cli.commands import COMMAND, ROOT, edgefr, refused
from tests.closeness import after_training, assert_same
from tests.contract import bundles
from tests.contract.programs import interactions, program, work
from tests.devices import open_device, policy_file
from tests.remote.worlds import CLASS, ROUNDS, Twins, fedmf, known, noisy, serving, take_part, time_up


@pytest.fixture
def twins(tmp_path: Path) -> Twins:
    return fedmf().own(tmp_path)


def reached(twins: Twins, shared: dict[str, torch.Tensor]) -> None:
    """The server's tensors are the simulator's."""
    simulated = twins.simulated.read_tensors("model")
    for name, value in shared.items():
        assert_same(value, simulated[f"shared.{name}"], name=name)


def test_a_device_whose_training_fails_answers_with_noise(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where something is promised no server learns from who stays away what a graph has met; the owner is told."""

    def fails(*given: object) -> None:
        raise InputError("the graph fails")

    twins = noisy(tmp_path, privacy__trust="local")
    monkeypatch.setattr("edge.local_work.train", fails)
    with serving(twins.begun, tmp_path / "served") as (url, future):
        counts = take_part(twins, url, tmp_path / "states", list(twins.users))
        future.result(30)
    found = {(each.taken, each.failed, each.failure) for each in counts.values()}
    assert found == {(ROUNDS, ROUNDS, "the graph fails")}
    user = next(iter(twins.users))
    assert open_device(twins.bundle_of(user), tmp_path / "states" / user).status()["releases"] == ROUNDS


@pytest.mark.parametrize("limits", [[], ["--max-ram-mb", "1000", "--max-seconds", "60"]])
def test_a_device_that_is_killed_goes_on_and_counts_once(twins: Twins, tmp_path: Path, limits: list[str]) -> None:
    first, *others = twins.users
    own = tmp_path / "own.txt"
    own.write_text("\n".join(twins.items(first)))
    with serving(twins.begun, tmp_path / "served") as (url, future):
        command = [*COMMAND, "device", "join", str(twins.bundle), "--state", str(tmp_path / "states" / first)]
        known(twins.begun, tmp_path / "states" / first, first)
        command += ["--url", url, "--interactions", str(own), "--policy", str(policy_file(tmp_path)), *limits]
        surroundings = {**os.environ, "PYTHONPATH": str(ROOT)}
        victim = subprocess.Popen(command, env=surroundings, stdout=subprocess.DEVNULL)
        state = tmp_path / "states" / first / "state.safetensors"
        try:
            deadline = time.monotonic() + 60
            while not (state.exists() and open_device(twins.bundle, state.parent).status()["waiting_release"] == 1):
                assert time.monotonic() < deadline
                time.sleep(0.01)
        finally:
            victim.send_signal(signal.SIGKILL)  # it has learned; its release may be sent or not
            victim.wait()
            os.close(hold(state.parent / "lock", 20))  # its child may still be at work
        done = take_part(twins, url, tmp_path / "states", [first, *others])
        result = future.result(60)
    assert result.summary["uploads"] == ROUNDS * len(twins.users)
    assert result.summary["missing"] == [0] * ROUNDS
    assert open_device(twins.bundle, state.parent).status()["releases"] == ROUNDS
    assert done[first].taken == ROUNDS
    reached(twins, result.shared)


def test_an_answer_that_is_lost_costs_nothing(twins: Twins, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every release is sent, and the device dies before it hears that it was taken."""
    send, first = Server.send, next(iter(twins.users))

    def dies(self: Server, number: int, content: bytes) -> bool:
        taken = send(self, number, content)
        if self.identity.record.user == first and number not in deaths:
            deaths.append(number)
            raise KeyboardInterrupt
        return taken

    deaths: list[int] = []
    with serving(twins.begun, tmp_path / "served") as (url, future):
        monkeypatch.setattr(Server, "send", dies)
        others = Thread(target=take_part, args=(twins, url, tmp_path / "states", list(twins.users)[1:]))
        others.start()
        known(twins.begun, tmp_path / "states" / first, first)
        for _ in range(ROUNDS + 1):
            device = open_device(twins.bundle, tmp_path / "states" / first, user=first)
            try:
                join(device, url, twins.items(first))
                break
            except KeyboardInterrupt:
                continue
        others.join(60)
        result = future.result(60)
    assert deaths == [1, 2, 3]
    assert result.summary["uploads"] == ROUNDS * len(twins.users)
    reached(twins, result.shared)


def test_a_device_that_stays_away_is_left_out_as_if_it_had_dropped_out(
    twins: Twins, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, *present = twins.users
    progress = time_up(monkeypatch, dict.fromkeys(range(1, ROUNDS + 1), len(present)))
    with serving(twins.begun, tmp_path / "served", progress=progress) as (url, future):
        take_part(twins, url, tmp_path / "states", present)
        result = future.result(60)
    assert result.summary["missing"] == [1] * ROUNDS
    assert result.summary["uploads"] == ROUNDS * len(present)
    simulated = alone(twins, [twins.users[user] for user in present])
    assert_same(result.shared["item"], simulated["item"])
    everyone = alone(twins, list(twins.users.values()))
    assert float((everyone["item"] - simulated["item"]).abs().max()) > 1e-2


def alone(twins: Twins, clients: list[int]) -> dict[str, torch.Tensor]:
    """The same rounds simulated with these clients alone."""
    run, origin = twins.begun, origins_of(twins.begun, CLASS)
    federation = training_of(run, Devices(None, origin, 1.0), ROUNDS).federation  # type: ignore[arg-type]
    federation.backend = InProcess(inline)
    e, train = run.experiment, twins.train
    sampler = Sampler(train, np.arange(origin.items), origin.items, e.negatives, e.batch_size, e.seed)
    for number in range(1, ROUNDS + 1):
        federation.round(number, np.array(clients), sampler, train)
    return dict(federation.shared)


def test_nobody_at_all_ends_the_server_with_one_line(twins: Twins, tmp_path: Path) -> None:
    asked = ("--bundle-class", CLASS, "--rounds", "1", "--timeout", "0.2", "--out", tmp_path / "served")
    done = edgefr("serve", twins.begun.path, *asked, cache=tmp_path)
    line = refused(done.returncode, "", done.stderr)
    assert "in none of 1 rounds did 3 devices send a release" in line
    assert done.stdout.startswith("the server sees uploads; listening on http://127.0.0.1:")
    assert not (tmp_path / "served").exists()


def test_what_cannot_be_served_says_so(twins: Twins, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="unknown device class 'laptop'"):
        serve(twins.begun, "laptop", 1, out=tmp_path / "new")
    with pytest.raises(InputError, match="has no bundles"):
        serve(twins.simulated, CLASS, 1, out=tmp_path / "new")
    with pytest.raises(InputError, match="is there already"):
        serve(twins.begun, CLASS, 1, out=tmp_path)
    with pytest.raises(InputError, match="rounds must be at least 1"):
        serve(twins.begun, CLASS, 0, out=tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_join_says_what_is_wrong_in_one_line(twins: Twins, tmp_path: Path) -> None:
    own, user = tmp_path / "own.txt", next(iter(twins.users))
    own.write_text("i0000001\n")
    common = ("device", "join", twins.bundle, "--state", tmp_path / "state", "--interactions", own)
    done = edgefr(*common, "--url", "http://127.0.0.1:9", cache=tmp_path)
    assert "has no key for a server yet" in refused(done.returncode, done.stdout, done.stderr)
    assert not (tmp_path / "state").exists()
    known(twins.begun, tmp_path / "state", user)
    common += ("--policy", policy_file(tmp_path))
    for more, words in (
        (("--url", "ftp://x"), "no server's address"),
        (("--url", "http://192.0.2.1:9"), "in the clear"),
        (("--url", "https://127.0.0.1:9", "--ca", tmp_path / "none"), "is not there"),
    ):
        done = edgefr(*common, *more, cache=tmp_path)
        assert words in refused(done.returncode, done.stdout, done.stderr)


# --- from releases to a shard's partial sum ---------------------------------------------------------------------------


@pytest.mark.parametrize("variant", ["fedmf", "transfr vector"])
@pytest.mark.parametrize("each", [False, True])
def test_a_shards_releases_sum_as_the_simulators_updates(variant: str, each: bool, tmp_path: Path) -> None:
    clients, train, local = np.array([0, 7, 20]), interactions(), program(variant)
    shared, private = local.init_shared(bundles.SEED), local.init_private(bundles.SEED, torch.from_numpy(clients))
    origin = Origin.of(open_bundle(bundles.bundle(variant)), bundles.USERS)
    uploads, steps = [], 0
    for client in clients.tolist():
        device = open_device(bundles.bundle(variant), tmp_path / str(client), user=bundles.user(client))
        uploads.append(device.learn(train[client]))
        steps = max(steps, device.work["steps"])
    terms = ReleaseTerms(0.5, "l2", by_size=False, count_everyone=False, each=each)
    got = released(uploads, origin.learning, terms)
    want = release(inline(work(local), shared, private, clients), train.counts[clients], terms)
    assert got.dense.keys() == want.dense.keys()
    assert got.rows.keys() == want.rows.keys()
    allowed = after_training(local.phases, steps, shared, private)
    for name, value in want.dense.items():
        assert_same(got.dense[name].float(), value, **allowed, name=name)
    for name, (rows, values) in want.rows.items():
        assert torch.equal(got.rows[name][0], rows)
        assert_same(got.rows[name][1].float(), values, **allowed, name=name)
    assert (got.weight, got.clients, got.dropped, got.private) == (3.0, 3, 0, {})
    assert (got.each is None) is not each


def test_a_device_that_had_diverged_counts_as_a_dropped_client() -> None:
    learning = Origin.of(open_bundle(bundles.bundle("fedmf")), bundles.USERS).learning
    rows = {"item": (np.array([2, 4]), np.ones((2, 8), np.float32))}
    none = {"item": (np.empty(0, np.int64), np.empty((0, 8), np.float32))}
    sound = ClientUpdate("0" * 64, 2, np.zeros(0, np.float32), rows, examples=5)
    gone = replace(sound, rows=none, examples=9, dropped=True)
    for by_size, everyone, weight in ((False, False, 1.0), (True, False, 5.0), (False, True, 2.0)):
        part = released([gone, sound], learning, ReleaseTerms(None, "l2", by_size, everyone))
        assert (part.weight, part.clients, part.dropped) == (weight, 1, 1)
        assert part.rows["item"][1].tolist() == [[5.0 if by_size else 1.0] * 8] * 2
    nothing = released([gone], learning, ReleaseTerms(None, "l2", False, True))
    assert (nothing.weight, nothing.clients, nothing.dropped, nothing.rows) == (1.0, 0, 1, {})
    assert updates_of([sound, sound], learning).rows["item"].client.tolist() == [0, 0, 1, 1]


def test_an_update_under_its_devices_noise_counts_however_long_it_is() -> None:
    """Whoever adds much noise to a long vector sends a long one, and leaving it out would tell so."""
    noised = {"clip": 100.0, "noise": "discrete-gaussian", "scale": 2.0**14, "step": 2.0**-9, "noised": "here"}
    learning = Origin.of(open_bundle(bundles.bundle("fedmf", **noised)), bundles.USERS).learning
    far = ClientUpdate("0" * 64, 2, np.full(learning.uploaded, 2**30, np.int32), {})
    part = released([far, far], learning, ReleaseTerms(None, "l2", False, True))
    assert (part.clients, part.dropped, part.weight) == (2, 0, 2.0)
    assert float(part.dense["item"].min()) == 2.0 * 2**30 * 2**-9


def test_an_old_upload_is_weighed_and_then_rounded_where_its_server_adds_the_noise() -> None:
    """A server's noise is of whole steps, and hides nothing of what lies between two of them."""
    whole = {"clip": 100.0, "noise": "discrete-gaussian", "scale": 2.0**14, "step": 2.0**-9, "noised": "server"}
    learning = Origin.of(open_bundle(bundles.bundle("fedmf", **whole)), bundles.USERS).learning
    steps = np.arange(learning.uploaded, dtype=np.int32) - 40
    old = ClientUpdate("0" * 64, 2, steps, {})
    terms = ReleaseTerms(None, "l2", False, True, step=2.0**-9, share=3**-0.5)
    part = released([old, old], learning, terms)
    found = part.dense["item"].flatten().numpy() / 2.0**-9
    np.testing.assert_array_equal(found, 2 * np.trunc(steps * 3**-0.5))


def test_the_crew_takes_no_work_that_belongs_on_devices() -> None:
    origin = Origin.of(open_bundle(bundles.bundle("fedmf")), bundles.USERS)
    backend = Devices(RoundBroker({}, origin.learning, origin.items), Origins({"phone": origin}), 0.1)
    with pytest.raises(ValueError, match="stays on the devices"):
        backend.updates(work(program("fedmf")), {}, {}, [])


def test_patience_ends(tmp_path: Path) -> None:
    device = open_device(bundles.bundle("fedmf"), tmp_path, user=bundles.user(0))
    with pytest.raises(InputError, match="has no key for a server yet"):
        join(device, "http://127.0.0.1:9")
    Identity.made(tmp_path)
    with pytest.raises(InputError, match=r"cannot reach http://127\.0\.0\.1:9 in 3 tries"):
        join(device, "http://127.0.0.1:9", patience=Patience(tries=3, pause_s=0.01))


def test_tables_that_devices_train_are_shipped_as_they_are(tmp_path: Path) -> None:
    """In every variant: a device that started from rounded rows would not do what was simulated."""
    tables = {name: np.random.default_rng(0).standard_normal((9, 4)).astype(np.float32) for name in ("item", "text")}
    stage = Staging(tmp_path)
    staged = stage_tables(stage, tables, trained_tables(program("fedmf")))
    for dtype in ("f32", "f16", "i8"):
        found = {table.name: table for table in staged[dtype]}  # type: ignore[index]
        assert (found["item"].dtype, found["text"].dtype) == ("f32", dtype)
        np.testing.assert_array_equal(np.load(stage.root / found["item"].path), tables["item"])


def test_a_bundle_that_another_key_signed_is_not_served(twins: Twins, tmp_path: Path) -> None:
    run = Run(shutil.copytree(twins.begun.path, tmp_path / "run"))
    generate(tmp_path / "keys")
    sign_bundle(run.path / "bundles" / CLASS, tmp_path / "keys" / "private.pem")
    with pytest.raises(InputError, match=r"signed by another key than the run's own, .* --key .*signing\.pem"):
        serve(run, CLASS, 1, out=tmp_path / "served")
    assert not (tmp_path / "served").exists()
    sign_bundle(run.path / "bundles" / CLASS, run.path / "private" / "signing.pem")
    assert origins_of(run, CLASS).classes[CLASS].key is not None
