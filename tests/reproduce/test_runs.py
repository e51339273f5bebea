"""Jobs in worker processes: one that fails, one whose process dies, and the others."""

import os
from pathlib import Path

from edgefr.reproduce.f3crec.recipes import experiment_of
from edgefr.reproduce.runs import Job, Setting, _each, base_of


def act(job: Job, setting: Setting) -> str:
    """What a job's name asks for."""
    if job.out.name == "fails":
        raise ValueError("on\npurpose")
    if job.out.name == "dies":
        os._exit(1)
    (job.out.parent / f"{job.out.name} was here").touch()
    return ""


def test_neither_a_failure_nor_a_dead_worker_stops_the_others(tmp_path: Path):
    experiment = experiment_of("ml-100k", "fedmf", "ft", "released", 0)
    jobs = [Job(experiment, tmp_path / name) for name in ("first", "fails", "dies", "last")]
    told: list[tuple[int, int, str]] = []
    found = _each(
        act, jobs, Setting(None, None, tmp_path), 1, "runs", lambda _, done, n, note: told.append((done, n, note))
    )
    problems = {job.out.name: problem for job, problem in found}
    assert problems == {
        "fails": "ValueError: on purpose",
        "dies": "a worker process was killed, perhaps for lack of memory; run it again with fewer workers",
    }
    assert sorted(path.name for path in tmp_path.iterdir()) == ["first was here", "last was here"]
    assert told == [(1, 4, "first"), (2, 4, "fails"), (3, 4, "dies"), (4, 4, "last")]


def test_bases_differ_by_what_happens_in_the_base_block():
    def base(**extra: object) -> str:
        values = {name.replace("__", "."): value for name, value in extra.items()}
        return base_of(experiment_of("ml-100k", "fedmf", "f3crec", "released", 0, values)).model_dump_json()

    same = {"aggregation__beta": 0.5, "continual__kd_weight": 1.0, "evaluation__keep_blocks": False}
    assert all(base(**{name: value}) == base() for name, value in same.items())
    noise = {"privacy__mechanism": "laplace", "privacy__trust": "local", "privacy__scale": 0.1}
    others = {base(rounds=7), base(**noise), base(model__lr=0.123), base(continual__patience=7), base()}
    assert len(others) == 5
