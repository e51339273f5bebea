"""Base blocks: which experiments share one."""

from edgefr.studies.reproductions.f3crec.recipes import experiment_of
from edgefr.studies.reproductions.runs import base_of


def test_bases_differ_by_what_happens_in_the_base_block():
    def base(**extra: object) -> str:
        values = {name.replace("__", "."): value for name, value in extra.items()}
        return base_of(experiment_of("ml-100k", "fedmf", "f3crec", "released", 0, values)).model_dump_json()

    same = {"aggregation__beta": 0.5, "continual__kd_weight": 1.0, "evaluation__keep_blocks": False}
    assert all(base(**{name: value}) == base() for name, value in same.items())
    noise = {"privacy__mechanism": "laplace", "privacy__trust": "local", "privacy__scale": 0.1}
    others = {base(rounds=7), base(**noise), base(model__lr=0.123), base(continual__patience=7), base()}
    assert len(others) == 5
