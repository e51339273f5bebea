"""Jobs on a Ray cluster: the results of this machine, whoever dies, and only where machines share the folder."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

import edgefr
from edgefr.studies import jobs_on_ray
from edgefr.studies.jobs import Failed, Where
from edgefr.studies.jobs_on_ray import There, check, run_jobs
from privacy.errors import InputError
from tests.cli.commands import COMMAND, ROOT, environment, hear_interrupts
from tests.clusters import at_work, is_at_work, lent, two_nodes
from tests.durable.runs import differences, result
from tests.noises import KEY
from tests.sweep.test_resume import SETTINGS

ray = pytest.importorskip("ray", reason="the extra `ray` is not installed")

pytestmark = pytest.mark.slow  # starting a cluster takes long


@pytest.fixture(scope="module")
def nodes() -> Iterator[Any]:
    with two_nodes() as made:
        yield made


@pytest.fixture
def cluster(nodes: Any) -> Iterator[Any]:
    with lent(nodes):
        yield nodes
        ray.shutdown()  # what a test left connected, if it failed


def act(job: str, folder: Path) -> str:
    """What a job's name asks for."""
    with (folder / f"{job}.pids").open("a", encoding="utf-8") as file:
        file.write(f"{os.getpid()}\n")
    if job == "fails":
        raise ValueError("on\npurpose")
    if job == "dies once" and len(pids(folder, job)) == 1:
        os._exit(1)
    if job == "dies":
        os._exit(1)
    if job == "sleeps":
        time.sleep(60)
    if job.startswith("waits"):
        until(lambda: (folder / "go").exists())
    return job.upper()


def pids(folder: Path, job: str) -> list[int]:
    path = folder / f"{job}.pids"
    return [int(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []


def test_neither_a_failure_nor_a_dead_worker_stops_the_others(cluster: Any, tmp_path: Path) -> None:
    where = Where(2, cluster.address)
    found = dict(run_jobs(act, ["first", "fails", "dies once", "dies", "last"], tmp_path, where, tmp_path))
    given_up = found.pop("dies")
    assert isinstance(given_up, Failed)
    assert given_up.why.startswith("its worker or machine died 4 times")
    assert len(pids(tmp_path, "dies")) == 4
    assert found == {
        "first": "FIRST",
        "fails": Failed("ValueError: on purpose"),
        "dies once": "DIES ONCE",
        "last": "LAST",
    }
    assert len(pids(tmp_path, "dies once")) == 2
    assert os.getpid() not in pids(tmp_path, "first")
    assert [path for path in tmp_path.iterdir() if path.suffix != ".pids"] == []  # the mark is gone


@contextmanager
def meanwhile(act: Callable[[], None]) -> Iterator[None]:
    """Act in a thread while the block runs."""
    thread = threading.Thread(target=act)
    thread.start()
    yield
    thread.join()


def test_jobs_of_a_machine_that_dies_are_done_again_elsewhere(cluster: Any, tmp_path: Path) -> None:
    late = cluster.add_node(num_cpus=1)
    jobs = [f"waits {number}" for number in range(3)]  # one on each machine

    def kill() -> None:
        until(lambda: all(pids(tmp_path, job) for job in jobs))
        cluster.remove_node(late, allow_graceful=False)
        (tmp_path / "go").touch()

    with meanwhile(kill):
        found = dict(run_jobs(act, jobs, tmp_path, Where(3, cluster.address), tmp_path))
    assert found == {job: job.upper() for job in jobs}
    assert sorted(len(pids(tmp_path, job)) for job in jobs) == [1, 1, 2]


@pytest.mark.parametrize("connected", [False, True], ids=["our own connection", "somebody's"])
def test_who_stops_taking_results_ends_the_workers(cluster: Any, tmp_path: Path, connected: bool) -> None:
    if connected:
        ray.init(cluster.address, log_to_driver=False)
    running = run_jobs(act, ["first", "sleeps"], tmp_path, Where(2, cluster.address), tmp_path)
    assert next(running) == ("first", "FIRST")
    until(lambda: pids(tmp_path, "sleeps"))
    running.close()  # type: ignore[attr-defined]
    until(lambda: not at_work("run_job"))
    assert ray.is_initialized() == connected


def test_a_machine_that_does_not_share_the_folder_is_refused_before_any_job(
    cluster: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    @contextmanager
    def elsewhere(folder: Path) -> Iterator[Path]:
        yield folder / "not there"

    monkeypatch.setattr(jobs_on_ray, "_marked", elsewhere)
    with pytest.raises(InputError, match=r"^machine \S+ of the Ray cluster cannot do .* not see what is written to "):
        list(run_jobs(act, ["first"], tmp_path, Where(1, cluster.address), tmp_path))
    assert pids(tmp_path, "first") == []


def check_in_time(there: There) -> str | None:
    """Answer once the test lets it, as a machine that has much to do would."""
    until(lambda: (there.mark.parent / "go").exists())
    return check(there)


def test_a_machine_that_dies_before_it_answers_gets_no_job_and_stops_none(
    cluster: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jobs_on_ray, "check", check_in_time)
    late = cluster.add_node(num_cpus=1)

    def kill() -> None:
        until(lambda: len(at_work("check_in_time")) == 3)
        asked = at_work("check_in_time")
        cluster.remove_node(late, allow_graceful=False)
        until(lambda: [is_at_work(pid, "check_in_time") for pid in asked].count(True) == 2)
        (tmp_path / "go").touch()

    with meanwhile(kill):
        found = dict(run_jobs(act, ["first", "last"], tmp_path, Where(2, cluster.address), tmp_path))
    assert found == {"first": "FIRST", "last": "LAST"}


def test_a_machine_needs_the_working_directory_and_the_modules_of_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    mark = tmp_path / "mark"
    mark.touch()
    assert check(There(ROOT, mark, ())) is None
    assert (
        check(There(tmp_path / "gone", mark, ())) == f"it has no folder {tmp_path}/gone, where this command was given"
    )
    assert check(There(ROOT, mark, ("nobody.s",))) == "ModuleNotFoundError: No module named 'nobody'"
    mark.unlink()
    assert check(There(ROOT, mark, ())) == f"it does not see what is written to {tmp_path}"


def test_no_mark_of_another_command_passes_for_this_ones(tmp_path: Path) -> None:
    """One that was left behind, or copied with the folder to a machine that does not share it, says nothing."""
    with jobs_on_ray._marked(tmp_path) as one, jobs_on_ray._marked(tmp_path) as other:
        assert one != other
        assert {one, other} == set(tmp_path.iterdir())
    assert list(tmp_path.iterdir()) == []


def named(there: There) -> str | None:
    """Refuse machines that no file in the folder is named after."""
    return None if (there.mark.parent / ray.get_runtime_context().get_node_id()).exists() else "it has no name"


@pytest.mark.parametrize("one", [0, 1])
def test_every_machine_is_asked(cluster: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, one: int) -> None:
    monkeypatch.setattr(jobs_on_ray, "check", named)
    ray.init(cluster.address, log_to_driver=False)
    machines = [node.node_id for node in cluster.list_all_nodes()]
    (tmp_path / machines[one]).touch()
    with pytest.raises(InputError, match="it has no name"):
        list(run_jobs(act, ["first"], tmp_path, Where(1, cluster.address), tmp_path))
    assert pids(tmp_path, "first") == []
    (tmp_path / machines[1 - one]).touch()
    assert list(run_jobs(act, ["first"], tmp_path, Where(1, cluster.address), tmp_path)) == [("first", "FIRST")]


def swept(out: Path, **options: Any) -> Path:
    """A sweep of two runs; returns its folder."""
    key = out.with_suffix(".key")
    KEY.write(key)
    edgefr.sweep(None, {"rounds": [3, 4]}, overrides=SETTINGS, noise_key=key, out=out, checkpoint_every=1, **options)
    return out


def assert_same_runs(one: Path, other: Path) -> None:
    places = sorted(path.parent.relative_to(one) for path in one.rglob("summary.json"))
    assert len(places) == 2
    for place in places:
        assert differences(other / place, result(one / place)) == []


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sweep on this machine."""
    return swept(tmp_path_factory.mktemp("here") / "sweep")


def test_a_sweep_comes_to_the_same_through_a_worker_that_is_killed(cluster: Any, here: Path, tmp_path: Path) -> None:
    out, killed = tmp_path / "sweep", list[int]()

    def kill() -> None:
        until(lambda: any(out.glob("runs/*/*/checkpoint/round-*")))
        for pid in at_work("run_job")[:1]:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
                killed.append(pid)

    with meanwhile(kill):
        swept(out, workers=2, ray_address=cluster.address)
    assert len(killed) == 1
    assert_same_runs(here, out)


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_a_sweep_that_is_stopped_goes_on(cluster: Any, here: Path, tmp_path: Path, how: signal.Signals) -> None:
    out, key = tmp_path / "sweep", tmp_path / "key"
    KEY.write(key)
    asked = ["--grid", "rounds=[3,4]", *(word for text in SETTINGS for word in ("--set", text)), "--noise-key", key]
    command = [*COMMAND, "sweep", *asked, "--checkpoint-every", "1", "--ray-address", cluster.address, "--workers", "2"]
    with subprocess.Popen(
        [*command, "--out", out],
        cwd=ROOT,
        env=environment(tmp_path),
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=hear_interrupts,
    ) as stopped:
        until(lambda: any(out.glob("runs/*/*/checkpoint/round-*")))
        stopped.send_signal(how)
        _, err = stopped.communicate()
    until(lambda: not at_work("run_job"))
    if how == signal.SIGINT:
        assert stopped.returncode == 130, err
        assert f"--resume {out}" in " ".join(err.split())
        assert [path for path in out.iterdir() if path.name.startswith(".shared")] == []
    subprocess.run([*command, "--resume", out], cwd=ROOT, env=environment(tmp_path), check=True)
    assert_same_runs(here, out)


def until(there: Any) -> None:
    limit = time.monotonic() + 120
    while not there():
        assert time.monotonic() < limit
        time.sleep(0.05)
