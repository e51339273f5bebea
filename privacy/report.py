"""A run may say this about its privacy: four epsilons that are never mixed, and everything they depend on."""

import math
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

from privacy.accounting import Guarantee, chance_above, composed, nominal_epsilon
from privacy.guarantee import Event, event_of
from privacy.ledger import Ledger
from privacy.mechanism import SAMPLERS
from privacy.plan import PrivacyPlan
from privacy.settings import NoiseSettings, PrivacySettings
from privacy.trust import TRUSTS

WEAK = 10.0
MEANINGLESS = 50.0


class ClipFacts(NamedTuple):
    """This is what a clip did: the share of updates it shortened, and the mean part of their length that it kept.

    `std`: of the noise on either (0: exact). `last`: the clip after the last round over its bound (1: it stayed).
    `rate`: what the server multiplies a mean update by (None: that follows the clip, or it steps in another way).
    """

    shortened: float | None = None
    kept: float | None = None
    std: float | None = None
    last: float = 1.0
    rate: float | None = None


def report(
    settings: PrivacySettings,
    plan: PrivacyPlan,
    releases_per_client_max: int,
    releases_per_client_median: float,
    clients: int,
    p90_norm: float | None = None,
    clip: ClipFacts | None = None,
    values: int | None = None,
    ledger: Ledger | None = None,
    closed: int = 0,
    smallest: int = 0,
) -> dict[str, Any]:
    """The privacy of a finished run, ready for JSON (an infinite epsilon is the word "inf").

    `releases_per_client_*`: in how many rounds a client took part; the guarantee is that of the client with most, or of
    the worst in the `ledger` where one was kept. `eps_planned`: what a client in every round spends. `p90_norm`: 90th
    percentile over uploads of the update's norm before clipping, in `settings.norm`; None if nobody measured it.
    `chance_above`: with what probability the privacy loss is above the guaranteed epsilon, where that is known.
    `clip`: what the clip did (None: nobody knows). `eps_lb95` is None until an audit fills it. `values`:
    values of a release, where the plan does not know them. `closed`: rounds whose sum stayed closed; `smallest`:
    clients of the smallest sum that was opened, whose mean has most noise (0: as planned).

    >>> from privacy.plan import plan
    >>> settings = PrivacySettings(mechanism="laplace", trust="local", scale=0.5)
    >>> out = report(settings, plan(settings, rounds=10, cohort=5, clients=20), 4, 2.5, 20, p90_norm=1.0)
    >>> out["eps_guaranteed"], out["method"], round(out["eps_nominal"], 2), round(out["eps_hypothetical"], 1)
    ('inf', 'no clip', 6.85, 68.6)
    """
    if releases_per_client_max > plan.rounds and ledger is None:
        raise ValueError(f"a client cannot release {releases_per_client_max} times in {plan.rounds} rounds")
    values = plan.values if values is None else values
    event = plan.event if plan.noise is not None else Event("none")  # a server does not vouch for its devices' noise
    made_of = [(event, releases_per_client_max), *_sent_beside(plan, releases_per_client_max)]
    guaranteed = composed(made_of, settings.delta)
    if ledger is not None:
        guaranteed, made_of = ledger.worst()
    return {
        "eps_nominal": in_words(_nominal(settings, plan)),
        "eps_guaranteed": in_words(guaranteed.epsilon),
        "chance_above": chance_above(made_of, guaranteed.epsilon),
        "eps_planned": in_words(plan.promised.epsilon),
        "eps_hypothetical": in_words(_hypothetical(settings, plan, releases_per_client_max, p90_norm)),
        "eps_lb95": None,
        "audited": False,
        "delta": settings.delta,
        "method": guaranteed.method,
        "composed": [composed_row(one, count) for one, count in made_of],
        "label": label(guaranteed.epsilon),
        "unit": "client",
        "adjacency": plan.adjacency,
        "trust": settings.trust if plan.noise else None,
        "adversary": TRUSTS[settings.trust].adversary if plan.noise else None,
        "release": _released(settings, plan),
        "values": values,
        "recipients": _all_of(event.recipient for event, _ in made_of),
        "prototypes": None if plan.prototypes is None else plan.prototypes.record(),
        "clip": _clip(plan, clip, p90_norm),
        "noise": _noise(plan, smallest),
        "sampler": SAMPLERS[plan.noise.sampler].trust if plan.noise else None,
        "seed": "known; noise comes from a separate secret key, never from the seed" if plan.noise else "known",
        "rounds": plan.rounds,
        **({} if plan.apart == 1 else {"apart": plan.apart, "correlated_over": plan.band}),
        "releases_per_client": {"max": releases_per_client_max, "median": releases_per_client_median},
        "clients": clients,
        "budget": settings.budget,
        "at_least": settings.at_least,
        "closed_rounds": closed,
        "sat_out": None if ledger is None else _sat_out(ledger),
        "amplification": amplification(event),
        "not_covered": _not_covered(settings, plan, clients),
    }


def _clip(plan: PrivacyPlan, found: ClipFacts | None, p90_norm: float | None) -> dict[str, Any]:
    facts = ClipFacts() if found is None else found
    return {
        "norm": plan.norm if plan.clip is not None else None,
        "bound": plan.clip,
        "sensitivity": in_words(plan.sensitivity),
        "clipped_share": facts.shortened,
        "kept_length": facts.kept,
        "std": facts.std,
        "last": None if plan.clip_quantile is None or plan.clip is None else plan.clip * facts.last,
        "server_lr": facts.rate,
        "p90_norm": in_words(p90_norm),
    }


def _noise(plan: PrivacyPlan, smallest: int) -> dict[str, Any]:
    noise = plan.noise
    return {
        "mechanism": noise.kind if noise else "none",
        "scale": noise.scale if noise else None,
        "std": noise.std if noise else 0.0,
        "sigma": noise.std / plan.clip if noise and plan.clip is not None else None,
        "std_on_mean": plan.std_on_mean_of(smallest or plan.cohort),
        "smallest_cohort": smallest or None,
        "where": plan.where,
    }


def ledger_report(ledger: Ledger, seen: int = 0) -> dict[str, Any]:
    """Report what a run's clients really spent, ready for JSON: the worst of them, and how many had to sit out.

    `seen`: rounds in which a server that nobody named as trusted saw single uploads. Where these had no noise of their
    own (zero-out), nothing is guaranteed then.

    >>> ledger = Ledger(3, delta=1e-5, adjacency="zero-out", budget=1.0)
    >>> clients = ledger.try_spend([0, 1], Event("gaussian", multiplier=4.0))
    >>> out = ledger_report(ledger)
    >>> round(out["eps_guaranteed"], 4), out["releases_per_client"], out["clients_refused"]
    (0.9263, {'max': 1, 'median': 1.0}, 0)
    """
    guaranteed, made_of = ledger.worst()
    if seen and ledger.adjacency == "zero-out" and guaranteed.epsilon:
        guaranteed = Guarantee(math.inf, f"in {seen} rounds a server that nobody named as trusted saw uploads")
    releases, sat_out = ledger.releases(), _sat_out(ledger)
    return {
        "eps_guaranteed": in_words(guaranteed.epsilon),
        "chance_above": chance_above(made_of, guaranteed.epsilon),
        "method": guaranteed.method,
        "label": label(guaranteed.epsilon),
        "delta": ledger.delta,
        "adjacency": ledger.adjacency,
        "budget": in_words(ledger.budget),
        "composed": [composed_row(event, count) for event, count in made_of],
        "clients": len(ledger),
        "clients_refused": sat_out["clients"],
        "refusals": sat_out["times"],
        "releases_per_client": {
            "max": int(releases.max(initial=0)),
            "median": float(np.median(releases)) if len(releases) else 0.0,
        },
    }


def with_served(report: dict[str, Any], ledger: dict[str, Any] | None, served: int, rounds: int) -> dict[str, Any]:
    """Return a run's report as it is after so many `served` rounds, the last of `rounds`: what all together spent.

    `ledger`: the report of the ledger of all rounds; None where served rounds are not counted, so that nothing is
    guaranteed. What was measured on the run's own updates says nothing of served ones, and is left out.
    """
    if ledger is None:
        spent: dict[str, Any] = {"eps_guaranteed": "inf", "method": "no clip with noise", "label": label(math.inf)}
        spent["chance_above"] = None
    else:
        spent = {name: ledger[name] for name in ("eps_guaranteed", "chance_above", "method", "label", "composed")}
        spent["releases_per_client"] = ledger["releases_per_client"]
        spent["sat_out"] = {"clients": ledger["clients_refused"], "times": ledger["refusals"]}
        spent["recipients"] = _all_of(row["recipient"] for row in ledger["composed"])
    return {**report, **spent, "rounds": rounds, "served": served, "eps_hypothetical": None}


def _sat_out(ledger: Ledger) -> dict[str, int]:
    refused = ledger.refused()
    return {"clients": int((refused > 0).sum()), "times": int(refused.sum())}


def composed_row(event: Event, releases: int) -> dict[str, Any]:
    """Return what was composed, for JSON: an event, and how often it happened.

    >>> composed_row(Event("gaussian", multiplier=4.0), 100)["multiplier"]
    4.0
    """
    return {
        "mechanism": event.mechanism,
        "norm": event.norm,
        "multiplier": event.multiplier,
        "steps": event.steps,
        "sampling": event.sampling,
        "recipient": event.recipient,
        "releases": releases,
        "unknown": event.row.unknown,
    }


def amplification(event: Event) -> str:
    """Say what sampling adds to the guarantee, in words."""
    return "none" if event.sampling == 1 else f"Poisson sampling at rate {event.sampling:.4g}"


def in_words(value: float | None) -> float | str | None:
    """Return a number for JSON: infinity is "inf", never blank; nan (nobody can say) is None.

    >>> in_words(math.inf), in_words(2.5), in_words(None)
    ('inf', 2.5, None)
    """
    if value is None or math.isnan(value):
        return None
    return "inf" if math.isinf(value) else value


def label(guaranteed: float) -> str:
    """Say what an epsilon is worth: "", "weak" above 10, "no meaningful guarantee" above 50."""
    if guaranteed > MEANINGLESS:
        return "no meaningful guarantee"
    return "weak" if guaranteed > WEAK else ""


def _sent_beside(plan: PrivacyPlan, rounds: int) -> list[tuple[Event, int]]:
    """Prototypes as releases of a client that took part in `rounds` rounds: at most one per transfer."""
    return [] if plan.prototypes is None else [(plan.prototypes.event, min(rounds, plan.prototypes.rounds))]


def _all_of(recipients: Iterable[str]) -> str:
    return ", ".join(sorted({one for names in recipients for one in names.split(", ")})) or "nobody"


def _released(settings: PrivacySettings, plan: PrivacyPlan) -> str:
    of = "all shared tensors" if settings.tensors is None else ", ".join(settings.tensors)
    whole = f"update of {of} as one vector"
    if settings.project is not None:
        whole = f"{settings.project} values, a public random projection of the {whole}"
    if plan.prototypes is not None:
        whole = f"{whole}, {plan.prototypes.words}"
    return f"{whole}, and taking part"


def _nominal(settings: PrivacySettings, plan: PrivacyPlan) -> float:
    """Return the papers' formula for one round; it assumes sensitivity 1, or the clip where there is one."""
    if plan.noise is None:
        return math.inf
    return nominal_epsilon(plan.noise.std, settings.delta, 1.0 if plan.clip is None else plan.clip)


def _hypothetical(settings: PrivacySettings, plan: PrivacyPlan, rounds: int, p90_norm: float | None) -> float | None:
    """Return what the same noise would have guaranteed, had the clip been the 90th percentile of the run's norms.

    Prototypes keep their own clip; without one they leave as they are, and no clip of updates would have helped.
    """
    beside = _sent_beside(plan, rounds)
    if plan.noise is None or any(count and not event.row.guarantees for event, count in beside):
        return math.inf
    if p90_norm is None or math.isnan(p90_norm):
        return None
    if math.isinf(p90_norm):
        return math.inf
    change: dict[str, Any] = {"clip": p90_norm}
    if isinstance(settings, NoiseSettings):
        step = plan.noise.step
        change |= {"sampler": "float"} if step is None else {"grid_exponent": round(math.log2(step))}
    updates = []
    if p90_norm > 0:
        updates.append((event_of(settings.model_copy(update=change), plan.noise.scale), rounds))
    return composed([*updates, *beside], settings.delta).epsilon


def _not_covered(settings: PrivacySettings, plan: PrivacyPlan, clients: int) -> list[str]:
    """Return what the guaranteed epsilon does not speak about."""
    out = [
        "participation that depends on a client's data (a long history can miss the deadline)",
        "metrics of the run, early stopping and settings chosen by them",
        "exact counts in summary.json: people, items and interactions, who was invited, came or failed, bytes sent",
        "which items the catalogue offers, and from which block on",
    ]
    if plan.noise is not None:
        key = "holders of the run's noise key (private/noise.key), who can remove simulated noise"
        out.append("floating-point rounding of the noise" if plan.noise.step is None else key)
    if settings.delta * clients >= 1:
        out.append(f"delta {settings.delta:g} is not below 1/{clients} clients: set a smaller privacy.delta")
    if plan.noise is not None and plan.clip is None:
        out.append("everything: without a clip the noise guarantees nothing; set privacy.clip")
    if plan.noise is None:
        out.append("everything: no noise was added to what a client releases")
    if plan.prototypes is not None and plan.prototypes.received_noise:
        out.append("sent prototypes: noise on received prototypes does not protect them")
    if plan.prototypes is not None and plan.prototypes.clip is None and plan.noise is not None:
        out.append("prototypes: the noise is on updates alone")
    return out
