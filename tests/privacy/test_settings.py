import math
import subprocess
import sys

import pytest
from pydantic import ValidationError

from privacy.settings import PrivacySettings


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"clip": -1.0}, "greater than 0"),
        ({"clip": 0.0}, "greater than 0"),
        ({"clip": math.nan}, "finite number"),
        ({"clip": math.inf}, "finite number"),
        ({"mechanism": "gausian"}, "unknown mechanism 'gausian'; did you mean 'gaussian' or 'discrete-gaussian'?"),
        ({"mechanism": "gaussian"}, "exactly one of sigma, epsilon, scale; got none of them"),
        ({"mechanism": "laplace", "clip": 1.0, "sigma": 1.0, "epsilon": 2.0}, "got sigma and epsilon"),
        ({"mechanism": "laplace", "sigma": 1.0}, "sigma needs a clip: set clip"),
        ({"mechanism": "gaussian", "epsilon": 8.0}, "epsilon needs a clip"),
        ({"mechanism": "gaussian", "clip": 1.0, "epsilon": math.nan}, "greater than 0"),
        ({"mechanism": "gaussian", "clip": 1.0, "epsilon": 0.0}, "greater than 0"),
        ({"mechanism": "gaussian", "clip": 1.0, "sigma": math.inf}, "finite number"),
        ({"mechanism": "laplace", "scale": 0.0}, "greater than 0"),
        (
            {"sigma": 1.0, "clip": 1.0},
            "and mechanism is none: drop it",
        ),
        (
            {"scale": 1.0},
            "gaussian, and mechanism is none: drop it, or set mechanism to ",
        ),
        (
            {"mechanism": "discrete-gaussian", "scale": 1.0},
            "draws no discrete-gaussian noise: set sampler to grid, and a",
        ),
        ({"mechanism": "gaussian", "scale": 1.0, "sampler": "grid"}, "sampler grid needs a clip"),
        ({"mechanism": "gaussian", "scale": 1.0, "grid_exponent": -3}, "a grid_exponent is read by sampler grid alone"),
        ({"mechanism": "gaussian", "clip": 1.0, "sigma": 1.0, "sampler": "opendp"}, "unknown sampler 'opendp'"),
        ({"delta": 0.0}, "greater than 0"),
        ({"delta": 1.0}, "less than 1"),
        ({"delta": math.nan}, "less than 1"),
        ({"mechanism": "gaussian", "clip": 1.0, "sigma": 4.0, "budget": 0.0}, "greater than 0"),
        ({"mechanism": "gaussian", "clip": 1.0, "sigma": 4.0, "budget": math.nan}, "finite number"),
        ({"mechanism": "gaussian", "clip": 1.0, "epsilon": math.inf, "budget": 1.0}, "a budget needs a clip and noise"),
        ({"clip": 1.0, "budget": 1.0}, "a budget needs a clip and noise"),
        ({"mechanism": "laplace", "scale": 1.0, "budget": 1.0}, "a budget needs a clip and noise"),
        ({"noise": 1.0}, "unknown key 'noise'"),
    ],
)
def test_refuses_with_a_reason(values, message):
    with pytest.raises(ValidationError) as caught:
        PrivacySettings(**values)
    assert message in str(caught.value)


def test_sensitivity_follows_the_adjacency():
    local = PrivacySettings(trust="local", clip=1.5)
    central = PrivacySettings(trust="central", clip=1.5)
    assert (local.adjacency, local.sensitivity) == ("replace-one", 3.0)
    assert (central.adjacency, central.sensitivity) == ("zero-out", 1.5)
    assert PrivacySettings().sensitivity == math.inf


def test_the_room_imports_without_heavy_libraries():
    code = (
        "import sys\n"
        "for name in ('torch', 'scipy', 'dp_accounting', 'pandas'): sys.modules[name] = None\n"
        "import privacy.clip, privacy.keyed, privacy.files, privacy.mechanism, privacy.accounting\n"
        "import privacy.plan, privacy.report, privacy.settings\n"
        "settings = privacy.settings.PrivacySettings(mechanism='gaussian', clip=1.0, sigma=1.0)\n"
        "privacy.plan.plan(privacy.settings.PrivacySettings(clip=1.0), 1, 1, 1)\n"
        "print(round(privacy.plan.plan(settings, 1, 1, 1).promised.epsilon, 2))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "4.39\n"
