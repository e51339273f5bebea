"""This is what example-level DP-SGD means for a run: how much noise, how often an example is used, its guarantee.

Adjacency is zero-out: an interaction is there, or its gradient is zeros in the place it had. So its clipped gradient
moves a step's sum by at most the clip, and nothing else of the step changes: not the batches, not their sizes, not the
negatives of other interactions. Batches are a shuffled partition of an epoch, not a Poisson sample: nothing is
amplified, and an example's releases are one Gaussian per epoch and phase of every round its client takes part in.
"""

import math
from dataclasses import dataclass
from typing import Any

from privacy.accounting import Guarantee, composed, noise_for, nominal_epsilon
from privacy.errors import InputError
from privacy.guarantee import Event
from privacy.mechanism import SAMPLERS
from privacy.mechanisms.gaussian import GaussianSettings
from privacy.report import composed_row, in_words, label
from privacy.report_rows import shown
from privacy.settings import ExampleSettings

NOT_COVERED = (
    "how many interactions a client has, and whether it takes part",
    "a client's interactions together: that is a guarantee about a client",
    "local training after the rounds, which leaves no device",
    "metrics of the run, early stopping and settings chosen by them",
    "floating-point rounding of the noise",
)


@dataclass(frozen=True)
class ExamplePlan:
    """The numbers a run uses: `sigma` is noise / clip (0: none), `uses` how often a round uses an example.

    `event`: one use of one example. `promised`: the guarantee of an example whose client takes part in all `rounds`.
    """

    clip: float
    sigma: float
    uses: int
    rounds: int
    delta: float
    event: Event
    promised: Guarantee

    def after(self, rounds: int) -> Guarantee:
        """Return what is guaranteed to the examples of a client that took part in `rounds` rounds."""
        return composed([(self.event, rounds * self.uses)], self.delta)


def plan_examples(settings: ExampleSettings, delta: float, rounds: int, uses: int) -> ExamplePlan:
    """Resolve `settings` for `rounds` rounds, each of which uses an example `uses` times (epochs of all its phases).

    Raises `InputError` for impossible counts, and when dp-accounting or scipy is not installed.

    >>> resolved = plan_examples(ExampleSettings(clip=0.5, epsilon=8.0), delta=1e-5, rounds=20, uses=2)
    >>> round(resolved.sigma, 3), round(resolved.promised.epsilon, 3)
    (3.796, 8.0)
    """
    for name, value in (("rounds", rounds), ("epochs of a round", uses)):
        if value < 1:
            raise InputError(f"{name} must be at least 1, got {value}")
    sigma = settings.sigma
    if sigma is None:
        assert settings.epsilon is not None
        unit = GaussianSettings(clip=1.0, epsilon=settings.epsilon, delta=delta, sampler="float")
        sigma = 0.0 if settings.epsilon == math.inf else noise_for(settings.epsilon, unit, rounds * uses) / unit.stretch
    event = Event("gaussian", multiplier=sigma) if sigma else Event("none")
    return ExamplePlan(settings.clip, sigma, uses, rounds, delta, event, composed([(event, rounds * uses)], delta))


def report_examples(plan: ExamplePlan, rounds_max: int, rounds_median: float, negatives: int) -> dict[str, Any]:
    """Report the privacy of a finished run's interactions, ready for JSON. `rounds_*`: in how many a client took part.

    The guarantee is that of an interaction of the client with most. `eps_hypothetical` is None: gradients are clipped,
    so there is nothing to suppose. `negatives`: drawn per interaction.

    >>> plan = plan_examples(ExampleSettings(clip=1.0, sigma=4.0), delta=1e-5, rounds=100, uses=1)
    >>> out = report_examples(plan, 40, 12.0, negatives=4)
    >>> round(out["eps_guaranteed"], 4), round(out["eps_planned"], 4), out["unit"]
    (7.5113, 13.2067, 'interaction')
    """
    guaranteed = plan.after(rounds_max)
    return {
        "eps_nominal": in_words(nominal_epsilon(plan.sigma, plan.delta) if plan.sigma else math.inf),
        "eps_guaranteed": in_words(guaranteed.epsilon),
        "eps_planned": in_words(plan.promised.epsilon),
        "eps_hypothetical": None,
        "eps_lb95": None,
        "delta": plan.delta,
        "method": guaranteed.method,
        "composed": [composed_row(plan.event, rounds_max * plan.uses)],
        "label": label(guaranteed.epsilon),
        "unit": "interaction",
        "example": f"an interaction with the {negatives} negatives drawn for it, from all items but its own",
        "adjacency": "zero-out",
        "adversary": "the server, which sees each upload",
        "clip": plan.clip,
        "sigma": plan.sigma,
        "std": plan.sigma * plan.clip,
        "sampler": SAMPLERS["float"].trust,
        "uses_per_round": plan.uses,
        "rounds": {"max": rounds_max, "median": rounds_median},
        "amplification": "none",
        "not_covered": [*NOT_COVERED, *(() if plan.sigma else ("everything: no noise was added",))],
    }


def render_examples(report: dict[str, Any] | None) -> list[tuple[str, str]]:
    """Return the report as rows (name, value) of a table; none for a run without DP-SGD (None)."""
    if report is None:
        return []
    worth = ", ".join(part for part in (report["method"], report["label"]) if part)
    rounds, uses = report["rounds"], report["uses_per_round"]
    noise = f"gaussian sigma={report['sigma']:.4g} (std {report['std']:.4g} on a step's sum) | {report['sampler']}"
    return [
        ("DP-SGD: unit / adjacency", f"{report['unit']}, {report['adjacency']}; {report['example']}"),
        ("  clip / noise", f"L2 C={report['clip']:.4g} of each gradient / {noise if report['sigma'] else 'none'}"),
        (
            "  releases per interaction",
            f"max {rounds['max'] * uses}, median {rounds['median'] * uses:g} "
            f"({uses} per round); amplification {report['amplification']}",
        ),
        ("  eps NOMINAL", f"{shown(report['eps_nominal'])} [1 step] NOT A GUARANTEE"),
        (
            f"  eps GUARANTEED, an interaction (delta={report['delta']:g})",
            f"{shown(report['eps_guaranteed'])} ({worth}); in every round {shown(report['eps_planned'])}",
        ),
        ("  Not covered", "; ".join(report["not_covered"])),
    ]
