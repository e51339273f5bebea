"""The privacy of a run is said in one sentence: the guaranteed epsilon and no other, or why there is none."""

from collections.abc import Mapping
from typing import Any

NOTHING = "everything: "
"""A line on what is not covered opens so where nothing is guaranteed at all."""


def sentence(report: Mapping[str, Any]) -> str:
    """Say who is protected from whom and by how much, from the report of a run that is done.

    Nominal, hypothetical and audited epsilons are in other columns of the report, and not named here.

    >>> sentence({"eps_guaranteed": "inf", "not_covered": ["everything: no noise was added"], "method": "no noise"})
    'nothing is guaranteed: no noise was added'
    """
    whole = _of_clients(report)
    examples = report.get("examples")
    if not examples:
        return whole
    if examples["eps_guaranteed"] == "inf":
        return f"{whole}; nor of a single interaction"
    return f"{whole}; each single interaction has {_epsilon(examples)}, against {examples['adversary']}"


def _of_clients(report: Mapping[str, Any]) -> str:
    epsilon = report["eps_guaranteed"]
    if epsilon == "inf":
        why = [line.removeprefix(NOTHING) for line in report["not_covered"] if line.startswith(NOTHING)]
        of = " of all that a client has" if report.get("examples") else ""
        return f"nothing is guaranteed{of}: {(why or [report['method']])[0]}"
    if epsilon == 0:
        return "no client released anything"
    return f"each client has {_epsilon(report)}, against {report['adversary']} ({report['adjacency']})"


def _epsilon(report: Mapping[str, Any]) -> str:
    """Return the guaranteed epsilon and what it is worth."""
    worth = {"": "", "weak": ", which is weak"}.get(report["label"], f", which is {report['label']}")
    return f"epsilon {report['eps_guaranteed']:.3g} guaranteed at delta {report['delta']:g}{worth}"
