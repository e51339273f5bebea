"""The recipes of experiments/privacy are valid, and each promises what its page says it does."""

from pathlib import Path

import pytest

from edgefr.experiment.experiment import load_experiment

FOLDER = Path(__file__).parents[2] / "experiments" / "privacy"
TRUST = {"cohort-demo": "local", "f3crec-ml-100k": "central", "local-ml-100k": "local"}
TRUST |= {"loo-ml-100k": "central", "pfedrec-ml-100k": "central"}


@pytest.mark.parametrize("name", sorted(path.stem for path in FOLDER.glob("*.yaml")))
def test_a_recipe_loads_and_its_noise_is_calibrated_under_a_clip(name):
    privacy = load_experiment(FOLDER / f"{name}.yaml").privacy
    if name not in TRUST:  # what is attacked gets its noise from the command line
        assert privacy.mechanism == "none"
        return
    assert (privacy.mechanism, privacy.trust, privacy.epsilon) == ("gaussian", TRUST[name], 8.0)
    assert privacy.clip is not None
    assert privacy.sampler == "float", "what the page prints was simulated with noise in floating point"


def test_the_page_names_every_recipe():
    page = (FOLDER / "README.md").read_text()
    assert [path.name for path in FOLDER.glob("*.yaml") if path.name not in page] == []
