import json
import math

import pytest

from privacy.plan import plan
from privacy.report import ClipFacts, in_words, label, report
from privacy.report_rows import render
from privacy.settings import PrivacySettings

EPSILONS = ("eps_nominal", "eps_guaranteed", "eps_hypothetical")


def made(settings, rounds=40, releases=(40, 12.5), clients=943, **measured):
    return report(settings, plan(settings, rounds, 94, clients), *releases, clients, **measured)


def test_no_mechanism_says_infinity_in_words():
    out = made(PrivacySettings())
    assert [out[name] for name in EPSILONS] == ["inf"] * 3
    assert (out["method"], out["label"]) == ("no noise", "no meaningful guarantee")
    assert out["not_covered"][4:] == ["everything: no noise was added to what a client releases"]
    rows = dict(render(out))
    assert rows["eps GUARANTEED (delta=1e-05)"] == "inf (no noise, no meaningful guarantee)"
    assert (rows["Clip"], rows["Noise / sampler"]) == ("none", "none")


def test_a_run_without_noise_names_nobody_who_is_trusted_and_no_noise():
    """It has no adversary that anything is hidden from, and no secret that noise is drawn from."""
    out = made(PrivacySettings(clip=1.0))
    assert (out["trust"], out["adversary"], out["sampler"], out["seed"]) == (None, None, None, "known")
    rows = dict(render(out))
    assert rows["Unit"] == "client"
    assert {"Adversary", "Unit / adjacency / trust"}.isdisjoint(rows)
    assert "noise is drawn" not in str(rows)


def test_the_chance_of_a_larger_loss_is_in_the_report_where_it_is_known():
    gaussian = {"mechanism": "gaussian", "clip": 1.0, "sigma": 2.0}
    floats = made(PrivacySettings(**gaussian, sampler="float"))
    mu = math.sqrt(40 * (1 + 2 / 20**2)) / 2
    normal = 0.5 * math.erfc((floats["eps_guaranteed"] / mu - mu / 2) / math.sqrt(2))
    assert floats["chance_above"] == pytest.approx(normal, rel=1e-9)
    assert floats["chance_above"] > 2 * floats["delta"]
    assert made(PrivacySettings(**gaussian))["chance_above"] == pytest.approx(normal, rel=1e-6)
    assert made(PrivacySettings())["chance_above"] is None


def test_paper_noise_keeps_the_four_columns_apart():
    std = 0.1
    out = made(PrivacySettings(mechanism="laplace", trust="local", scale=std / math.sqrt(2)), p90_norm=1.0)
    assert out["eps_nominal"] == pytest.approx(48.45, abs=5e-3)
    assert out["eps_guaranteed"] == "inf"
    assert out["eps_hypothetical"] == pytest.approx(16859, rel=1e-3)  # 40 rounds, replace-one, zCDP
    assert out["eps_lb95"] is None
    assert any(line.startswith("everything: without a clip") for line in out["not_covered"])
    assert "[1 round, assumed sensitivity 1] NOT A GUARANTEE" in dict(render(out))["eps NOMINAL"]


def test_guarantee_is_that_of_the_client_with_most_releases():
    on_grid = PrivacySettings(mechanism="gaussian", trust="central", clip=1.0, sigma=4.0)
    assert made(on_grid)["eps_guaranteed"] == pytest.approx(7.5338, abs=6e-5)
    settings = on_grid.model_copy(update={"sampler": "float"})
    assert made(settings)["eps_guaranteed"] == pytest.approx(7.5338, abs=6e-5)
    assert made(settings, releases=(10, 3.0))["eps_guaranteed"] == pytest.approx(3.3509, abs=6e-5)
    assert made(settings, releases=(0, 0.0))["eps_guaranteed"] == 0.0
    with pytest.raises(ValueError, match="cannot release 41 times in 40 rounds"):
        made(settings, releases=(41, 1.0))


def test_hypothetical_is_the_guarantee_with_the_clip_at_p90():
    settings = PrivacySettings(mechanism="laplace", trust="local", scale=0.5)
    clipped = PrivacySettings(mechanism="laplace", trust="local", scale=0.5, clip=2.71)
    assert made(settings, p90_norm=2.71)["eps_hypothetical"] == made(clipped)["eps_guaranteed"]
    assert made(settings, p90_norm=math.inf)["eps_hypothetical"] == "inf"
    assert made(settings, p90_norm=0.0)["eps_hypothetical"] == 0.0
    assert made(settings)["eps_hypothetical"] is None
    assert dict(render(made(settings)))["eps if clipped at p90"].startswith("not measured")


def test_everything_a_reader_needs_is_there_and_is_json():
    settings = PrivacySettings(mechanism="gaussian", trust="local", clip=1.0, epsilon=8.0, delta=1e-5)
    out = made(settings, p90_norm=1.7, clip=ClipFacts(0.63, 0.8, 0.01))
    assert json.loads(json.dumps(out, allow_nan=False)) == out
    assert out["eps_guaranteed"] == pytest.approx(8.0, rel=1e-4)
    assert out["label"] == ""
    expected = {
        "delta": 1e-5,
        "unit": "client",
        "adjacency": "replace-one",
        "trust": "local",
        "sampler": "grid; simulated here, exact with the system's secure bits on real devices",
        "rounds": 40,
        "releases_per_client": {"max": 40, "median": 12.5},
        "method": "GDP closed form",
        "amplification": "none",
    }
    assert {name: out[name] for name in expected} == expected
    assert out["clip"] == {
        "norm": "l2",
        "bound": 1.0,
        "sensitivity": 2.0,
        "clipped_share": 0.63,
        "kept_length": 0.8,
        "std": 0.01,
        "last": None,
        "server_lr": None,
        "p90_norm": 1.7,
    }
    rows = dict(render(out))
    assert rows["Clip"] == (
        "L2 C=1; shortened 63 % of the updates, to 80 % of their length on average (measured with noise: ± 2.0 %)"
    )
    assert rows["Noise / sampler"].startswith("discrete-gaussian sigma=7.592 on each upload")
    assert all(name and value for name, value in render(out))


def test_labels_and_words():
    assert [label(e) for e in (0.0, 10.0, 10.1, 50.0, 50.1, math.inf)] == [
        "",
        "",
        "weak",
        "weak",
        "no meaningful guarantee",
        "no meaningful guarantee",
    ]
    assert [in_words(v) for v in (None, math.nan, math.inf, 1.5)] == [None, None, "inf", 1.5]


def test_what_is_released_is_said() -> None:
    settings = PrivacySettings(mechanism="gaussian", clip=1.0, sigma=1.0, project=64, tensors=["a", "b"], at_least=3)
    resolved = plan(settings, 5, 4, 10, values=64)
    found = report(settings, resolved, 5, 5.0, 10, closed=2)
    words = "64 values, a public random projection of the update of a, b as one vector, and taking part"
    assert (found["release"], found["values"], found["closed_rounds"]) == (words, 64, 2)
    shown = dict(render(found))["Sealed sum"]
    assert shown == "sums of at least 3 clients alone; 2 rounds stayed closed (simulated, no cryptography)"


@pytest.mark.parametrize(("mechanism", "norm"), [("gaussian", "l2"), ("laplace", "l1")])
def test_hypothetical_keeps_the_noise_and_the_grid_it_lies_on(mechanism, norm) -> None:
    chosen = PrivacySettings(mechanism=mechanism, norm=norm, clip=1.0, sigma=1.0)
    resolved = plan(chosen, 5, 4, 10, values=256)
    found = report(chosen, resolved, 5, 5.0, 10, p90_norm=0.5)
    assert (found["clip"]["sensitivity"], found["values"]) == (1.0, 256)
    same = chosen.model_copy(update={"clip": 0.5, "grid_exponent": -15, "sigma": 2.0})
    assert found["eps_hypothetical"] == report(same, plan(same, 5, 4, 10), 5, 5.0, 10)["eps_guaranteed"]
