"""The privacy of a run is said in one sentence: the guaranteed epsilon and no other, or why there is none."""

from collections.abc import Mapping
from typing import Any

BINDING, MADE_UP, SHORT = 0.95, 0.5, 2.0
"""A run shows its clip more than its noise where this share of the updates is shortened, the server's rate makes up for
less than this part of what was cut, and its longest step, rate times clip, is shorter than this."""
NOTHING = "everything: "
"""A line on what is not covered opens so where nothing is guaranteed at all."""
NOT_YET = "nothing has been released yet"
TOGETHER = "simulated and served rounds together"
"""What an epsilon is of after rounds of real devices."""


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
    if nothing_yet(report):
        return not_yet(report)
    if report["eps_guaranteed"] == "inf":
        of = " of all that a client has" if report.get("examples") else ""
        return f"nothing is guaranteed{of}: {_why(report)}"
    whole = f", {TOGETHER}" if report.get("served") else ""
    return f"each client has {_epsilon(report)}, against {report['adversary']} ({report['adjacency']}){whole}"


def nothing_yet(report: Mapping[str, Any]) -> bool:
    """Say whether no client has released anything so far, so that there is nothing that a guarantee could be of."""
    return report["eps_guaranteed"] == 0


def not_yet(report: Mapping[str, Any]) -> str:
    """Say of a run without any release what its releases would cost a client.

    >>> not_yet({"eps_planned": 1.386, "rounds": 1, "delta": 1e-5})
    'nothing has been released yet; one release would cost a client epsilon 1.39 at delta 1e-05'
    """
    return f"{NOT_YET}; {would_cost(report)}"


def would_cost(report: Mapping[str, Any]) -> str:
    """Say what the planned releases would cost a client that makes all of them."""
    planned = report["eps_planned"]
    if planned == "inf":
        return f"nothing would be guaranteed of a release: {_why(report)}"
    what = "one release" if report["rounds"] == 1 else f"a release in each of {report['rounds']} rounds"
    return f"{what} would cost a client epsilon {planned:.3g} at delta {report['delta']:g}"


def _why(report: Mapping[str, Any]) -> str:
    why = [line.removeprefix(NOTHING) for line in report["not_covered"] if line.startswith(NOTHING)]
    return str((why or [report["method"]])[0])


def _epsilon(report: Mapping[str, Any]) -> str:
    worth = {"": "", "weak": ", which is weak"}.get(report["label"], f", which is {report['label']}")
    return f"epsilon {report['eps_guaranteed']:.3g} guaranteed at delta {report['delta']:g}{worth}"


def clip_did(clip: Mapping[str, Any]) -> str | None:
    """Say what a clip did to the updates of a run, from the report's part on it; None where it did or told nothing.

    >>> clip_did({"bound": 1.0, "clipped_share": 1.0, "kept_length": 0.002, "std": 0.0})
    'shortened 100 % of the updates, to 0.2 % of their length on average'
    >>> clip_did({"bound": 1.0, "clipped_share": 1.0, "kept_length": 0.67, "std": 0.89})
    'shortened 100 % of the updates; the noise hides by how much'
    """
    shortened, kept = clip.get("clipped_share"), clip.get("kept_length")
    if not shortened or kept is None:
        return None
    noised = f" (measured with noise: ± {2 * clip['std']:.1%})".replace("%", " %") if clip["std"] else ""
    moved = f", and ended at {clip['last']:.3g}" if clip.get("last") is not None else ""
    length = f", to {_percent(kept)} of their length on average{noised}"
    if 2 * clip["std"] >= kept:
        length = "; the noise hides by how much"
    return f"shortened {_percent(shortened)} of the updates{length}{moved}"


def clip_warning(clip: Mapping[str, Any]) -> str | None:
    """Say that a run shows its clip rather than its noise, and what to change; None where it does not.

    >>> found = {"bound": 1.0, "clipped_share": 1.0, "kept_length": 0.002, "std": 0.0, "server_lr": 1.0}
    >>> clip_warning(found).partition(":")[0]
    'this run shows clipping, not privacy'
    >>> clip_warning({**found, "server_lr": 300.0}) is None
    True
    """
    shortened, kept, rate = clip.get("clipped_share"), clip.get("kept_length"), clip.get("server_lr")
    if rate is None or shortened is None or shortened < BINDING or kept * rate >= MADE_UP:
        return None
    if rate * clip["bound"] >= SHORT:
        return None
    what = f"the clip of {clip['bound']:.4g} {clip_did(clip)}"
    mend = "set aggregation.server_lr=auto, or raise privacy.clip"
    return f"this run shows clipping, not privacy: {mend}; {what}, and a server_lr of {rate:.3g} does not compensate"


def _percent(share: float) -> str:
    return f"{100 * share:.3g} %"
