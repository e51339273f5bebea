"""A report of privacy is shown as rows of a table, the same on a terminal and on a page."""

from typing import Any

from privacy.mechanism import law_of
from privacy.sentence import clip_did, not_yet, nothing_yet


def render(report: dict[str, Any]) -> list[tuple[str, str]]:
    """Return the report as rows (name, value) of a table."""
    clip, noise, releases = report["clip"], report["noise"], report["releases_per_client"]
    clip_text = "none"
    if clip["bound"] is not None:
        did = clip_did(clip)
        clip_text = f"{clip['norm'].upper()} C={clip['bound']:.4g}{f'; {did}' if did else ''}"
    noise_text = "none"
    if noise["mechanism"] != "none":
        symbol = law_of(noise["mechanism"]).symbol
        noise_text = (
            f"{noise['mechanism']} {symbol}={noise['scale']:.4g} on {noise['where']} "
            f"(std {noise['std_on_mean']:.3g} on the mean{_of_how_many(noise)}{_correlated(report)}) | "
            f"{report['sampler']}"
        )
    assumed = 1.0 if clip["bound"] is None else clip["bound"]
    return [
        *_compared(report),
        ("Release / recipients", f"{report['release']} / {report['recipients']}"),
        ("Clip", clip_text),
        ("Noise / sampler", noise_text),
        *_beside(report),
        ("Seed", report["seed"]),
        (
            "Rounds / releases per client",
            f"{_rounds(report)} / max {releases['max']}, median {releases['median']:g}; "
            f"amplification {report['amplification']}",
        ),
        (
            "eps NOMINAL",
            f"{shown(report['eps_nominal'])} [1 round, assumed sensitivity {assumed:.4g}] NOT A GUARANTEE",
        ),
        (f"eps GUARANTEED (delta={report['delta']:g})", _guaranteed(report)),
        *_planned(report),
        *_sealed(report),
        (
            "eps if clipped at p90",
            f"{shown(report['eps_hypothetical'], 'not measured')} (hypothetical, not a guarantee)",
        ),
        ("Audit, eps lower bound 95%", audited(report)),
        ("Not covered", "; ".join(report["not_covered"])),
    ]


def render_ledger(report: dict[str, Any]) -> list[tuple[str, str]]:
    """Return the ledger's report as rows (name, value) of a table."""
    releases = report["releases_per_client"]
    budget = "" if report["budget"] == "inf" else f"; budget {report['budget']:.4g}"
    return [
        ("Adjacency", report["adjacency"]),
        (f"eps GUARANTEED, worst client (delta={report['delta']:g})", _worth(report)),
        *(
            (
                f"  releases to {row['recipient']}",
                f"{row['releases']} x {row['mechanism']} at {row['multiplier']:.4g}",
            )
            for row in report["composed"]
        ),
        ("Releases per client", f"max {releases['max']}, median {releases['median']:g}"),
        ("Sat out", f"{report['clients_refused']} of {report['clients']} clients, {report['refusals']} times{budget}"),
    ]


def audited(report: dict[str, Any]) -> str:
    """Say what audits of the run have proved so far, if it was audited."""
    if not report.get("audited"):
        return "not audited"
    bound = report["eps_lb95"]
    return "audited; no bound was asked for" if bound is None else f">= {shown(bound)}"


def _compared(report: dict[str, Any]) -> list[tuple[str, str]]:
    """Return whose data are compared, and against whom: a run without noise trusts nobody, since it hides nobody."""
    if report["noise"]["mechanism"] == "none":
        return [("Unit", report["unit"])]
    return [
        ("Unit / adjacency / trust", f"{report['unit']}, {report['adjacency']}, {report['trust']}"),
        ("Adversary", report["adversary"]),
    ]


def _correlated(report: dict[str, Any]) -> str:
    over = report.get("correlated_over", 1)
    return f", before what it takes back of {over - 1} rounds" if over > 1 else ""


def _rounds(report: dict[str, Any]) -> str:
    served, apart = report.get("served"), report.get("apart")
    seldom = f", a client in 1 of any {apart} in a row" if apart else ""
    return f"{report['rounds']}, {served} of them served" if served else f"{report['rounds']}{seldom}"


def _guaranteed(report: dict[str, Any]) -> str:
    return f"none: {not_yet(report)}" if nothing_yet(report) else _worth(report)


def _worth(report: dict[str, Any]) -> str:
    if nothing_yet(report):
        return f"none: {report['method']}"
    return f"{shown(report['eps_guaranteed'])} ({', '.join(p for p in (report['method'], report['label']) if p)})"


def _of_how_many(noise: dict[str, Any]) -> str:
    found = noise.get("smallest_cohort")
    return "" if found is None else f" of the smallest cohort, {found} clients"


def _beside(report: dict[str, Any]) -> list[tuple[str, str]]:
    sent = report.get("prototypes")
    if not sent:
        return []
    clip = "no clip" if sent["clip"] is None else f"{report['clip']['norm'].upper()} C={sent['clip']:.4g}"
    noise = "no noise" if sent["scale"] is None else f"{sent['mechanism']} std {sent['std']:.4g} on each, its own"
    received = f"; std {sent['received_noise']:g} on received ones protects nothing" if sent["received_noise"] else ""
    return [("Prototypes", f"{sent['values']} values in {sent['rounds']} rounds; {clip}; {noise}{received}")]


def _planned(report: dict[str, Any]) -> list[tuple[str, str]]:
    if report.get("sat_out") is None:
        return []
    sat_out = report["sat_out"]
    budget = "no budget" if report["budget"] is None else f"budget {report['budget']:.4g}"
    often = "in every round that it may take part in" if report.get("apart") else "in every round"
    planned = [(f"  of a client {often}", f"{shown(report['eps_planned'])} (planned)")]
    return [
        *([] if report.get("served") else planned),
        ("Sat out", f"{sat_out['clients']} of {report['clients']} clients, {sat_out['times']} times; {budget}"),
    ]


def _sealed(report: dict[str, Any]) -> list[tuple[str, str]]:
    """A row about rounds whose sum was not opened (where the settings ask for it)."""
    if report.get("at_least", 1) <= 1:
        return []
    what = f"sums of at least {report['at_least']} clients alone; {report['closed_rounds']} rounds stayed closed"
    return [("Sealed sum", f"{what} (simulated, no cryptography)")]


def shown(value: float | str | None, missing: str = "none") -> str:
    """Return an epsilon of a report in four digits, or in the word that stands for it."""
    if value is None:
        return missing
    return value if isinstance(value, str) else f"{value:.4g}"
