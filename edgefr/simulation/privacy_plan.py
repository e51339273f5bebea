"""The privacy of a run is planned here, before round 1; export, audit and serving ask for the same plan again.

Owns: how many clients' updates a server step takes, and what the privacy settings mean for that. Does not own: noise
and accounting (`privacy.plan`).
"""

from __future__ import annotations

from pathlib import Path

from edgefr.experiment.experiment import Experiment
from edgefr.fleet import load_fleet
from edgefr.fleet.spec import Rounds
from privacy.plan import Plan, plan
from privacy.settings import PrivacySettings


def planned(
    experiment: Experiment,
    policy: Rounds,
    clients: int,
    *,
    rounds: int | None = None,
    values: int | None = None,
    settings: PrivacySettings | None = None,
) -> Plan:
    """Return what the privacy settings of an experiment mean for a run of so many clients.

    `policy`: the fleet's rounds, whose buffer says how many updates an asynchronous server step takes. `rounds`: how
    many are planned for (None: the experiment's). `values`: how many a release has, for reports. `settings`: in place
    of the experiment's own. Raises `InputError` as `privacy.plan.plan`.

    >>> from edgefr.experiment.experiment import load_experiment
    >>> small = load_experiment(overrides=["method=fedmf", "clients_per_round=30", "privacy.at_least=50"])
    >>> planned(small, Rounds(policy="async", buffer=60), 600).cohort
    60
    """
    e = experiment
    return plan(
        e.privacy if settings is None else settings,
        max(e.total_rounds if rounds is None else rounds, 1),
        policy.buffered(e.cohort_size(clients), clients)[0],
        clients,
        e.aggregation.weights,
        values,
        prototypes=e.prototypes,
    )


def policy_of(run: Path) -> Rounds:
    """Return the round policy that a run's fleet had, as its folder says."""
    return load_fleet(run / "devices.yaml").rounds
