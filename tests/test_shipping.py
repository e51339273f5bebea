"""What a run's devices are told about learning."""

from __future__ import annotations

import pytest

from edgefr.experiment.experiment import Experiment, load_experiment
from edgefr.fleet.spec import Rounds
from edgefr.simulation.bundles import learning_of
from edgefr.simulation.resolve import Releases
from export.learning import LearningSpec
from privacy.plan import plan

LOCAL = ["privacy.mechanism=gaussian", "privacy.trust=local", "privacy.clip=1", "privacy.epsilon=8"]


def learning_for(experiment: Experiment) -> LearningSpec | None:
    """What 50 devices of a run are told."""
    return learning_of(experiment, Releases.of(experiment, Rounds.model_validate({}), 50).plan(experiment))


def test_a_devices_noise_is_for_all_rounds_of_all_blocks() -> None:
    """A continual run asks a device for a release in every round of every block: noise for one block is too little."""
    experiment = load_experiment(overrides=["method=f3crec", "rounds=5", *LOCAL])
    spec = learning_for(experiment)
    assert spec is not None
    blocks = experiment.protocol.increments + 1
    assert spec.round == 5 * blocks
    asked = plan(experiment.privacy, 5 * blocks, 50, 50).noise
    assert asked is not None
    release = spec.release
    assert (release.noise, release.scale, release.noised) == ("discrete-gaussian", asked.scale, "here")
    assert release.step == asked.step == 2.0**-15
    once = learning_for(load_experiment(overrides=["method=fedmf", "rounds=5", *LOCAL]))
    assert once is not None
    assert once.release.scale < spec.release.scale


def test_the_servers_noise_is_not_added_on_the_device() -> None:
    experiment = load_experiment(overrides=["method=fedmf", *LOCAL, "privacy.trust=central"])
    spec = learning_for(experiment)
    assert spec is not None
    asked = plan(experiment.privacy, experiment.rounds, 50, 50).noise
    assert asked is not None
    release = spec.release
    assert (release.clip, release.noise, release.noised) == (1.0, "discrete-gaussian", "server")
    assert release.scale == asked.scale  # what the server promises to add


def test_devices_do_not_learn_where_noise_is_in_floating_point() -> None:
    assert learning_for(load_experiment(overrides=["method=fedmf", *LOCAL, "privacy.sampler=float"])) is None


@pytest.mark.parametrize(("strategy", "replays"), [("ft", None), ("kd", "all"), ("f3crec", "adaptive")])
def test_what_devices_replay(strategy: str, replays: str | None) -> None:
    spec = learning_for(load_experiment(overrides=["method=f3crec", f"strategy={strategy}"]))
    assert spec is not None
    assert (spec.replay.picks if spec.replay else None) == replays


@pytest.mark.parametrize("strategy", ["reg", "rlp2", "spp"])
def test_devices_do_not_learn_what_no_bundle_carries(strategy: str) -> None:
    assert learning_for(load_experiment(overrides=["method=f3crec", f"strategy={strategy}"])) is None
