"""Jobs in worker processes: one that fails, one whose process dies, the others, and who started them killed."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from edgefr.studies.jobs import Failed, in_processes

ROOT = Path(__file__).resolve().parents[1]


def act(job: str, folder: Path) -> str:
    """What a job's name asks for."""
    if job == "fails":
        raise ValueError("on\npurpose")
    if job == "dies":
        os._exit(1)
    if job == "sleeps":
        (folder / "started").write_text(str(os.getpid()))
        time.sleep(60)
    (folder / f"{job} was here").touch()
    return job.upper()


def test_neither_a_failure_nor_a_dead_worker_stops_the_others(tmp_path: Path):
    found = list(in_processes(act, ["first", "fails", "dies", "last"], tmp_path))
    assert found == [
        ("first", "FIRST"),
        ("fails", Failed("ValueError: on purpose")),
        ("dies", Failed("a worker process was killed, perhaps for lack of memory; run it again with fewer workers")),
        ("last", "LAST"),
    ]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["first was here", "last was here"]


def test_a_worker_ends_with_who_started_it(tmp_path: Path):
    script = (
        "from pathlib import Path; from edgefr.studies.jobs import in_processes; from tests.test_jobs import act\n"
        "if __name__ == '__main__': list(in_processes(act, ['sleeps'], Path('.').absolute()))"
    )
    path = tmp_path / "start.py"
    path.write_text(script)
    with subprocess.Popen(
        [sys.executable, path], cwd=tmp_path, env=os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    ) as parent:
        started = tmp_path / "started"
        _until(lambda: started.exists() and started.read_text())
        worker = int(started.read_text())
        assert _alive(worker)
        os.kill(parent.pid, signal.SIGKILL)
        parent.wait()
        _until(lambda: not _alive(worker))


def _alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def _until(there) -> None:
    limit = time.monotonic() + 60
    while not there():
        assert time.monotonic() < limit
        time.sleep(0.01)
