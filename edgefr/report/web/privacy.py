"""This section says in words who is protected from whom, how much, what attacks reached, and what is not covered."""

from __future__ import annotations

import math
import shlex
from typing import Any

import yaml
from markupsafe import Markup

from edgefr.data.datasets import GIVEN
from edgefr.report.bundles import by_default
from edgefr.report.web.answers import capitals, number
from edgefr.report.web.chart import Axis, short
from edgefr.report.web.facts import Facts
from edgefr.report.web.section import (
    Drawn,
    ReportTable,
    Section,
    SectionPart,
    command,
    folded,
    heading,
    listed,
    text,
    yes_no,
)
from edgefr.report.web.section import facts as told
from privacy.example_plan import render_examples
from privacy.report import MEANINGLESS
from privacy.report_rows import render
from privacy.sentence import NOT_YET, TOGETHER, nothing_yet, would_cost
from privacy.trust import TRUSTS

KINDS = {
    "guaranteed": "What holds: all rounds together, for the person who took part most often.",
    "nominal": "What papers print: the formula for one round. It is no guarantee.",
    "hypothetical": "What the same noise would have guaranteed, had updates been cut at a length that nine in ten "
    "keep. It is no guarantee.",
    "audited": "What attacks proved: the true epsilon is at least this, with 95 % confidence.",
}
"""The four columns of epsilon, which are never compared with each other."""
ATTACKS = {
    "sign-split": "which items a person had, from one update",
    "membership": "whether an interaction was learned from",
    "gradient-matching": "which items explain an update best",
    "game": "whether a person took part, knowing all others",
    "canaries": "which planted people took part",
    "game-rows": "whether a person took part, from rows of a table",
    "game-bytes": "whose data are behind the bytes of an upload",
    "game-steps": "whether an interaction was learned from, step by step",
}
"""What an attacker tries to find out, by attack."""
SCORES = Axis(0.0, 1.0, ((0.0, "0"), (0.5, "guessing"), (1.0, "certain")))
WORDS = ("attack", "tries to tell", "better than luck?")
COIN = (
    "A score of 0.5 is a coin; the bar ends where luck alone ends in 95 of 100 cases. “Proves” stands beside what is "
    "guaranteed for as many releases."
)
NOT_AUDITED = Markup(
    "This run was not audited. <code>edgefr audit {}</code> attacks what leaves its devices, and this page then shows "
    "what that reached beside guessing."
)
OTHERS = Markup(
    "Utility at other levels of privacy takes a sweep of this experiment, which writes a page of its own. In the "
    "folder that holds <code>{}</code>:"
)


def section(facts: Facts) -> Section | None:
    """Return the section; None for a central reference, in which nobody is protected from the server."""
    report = facts.summary["privacy"]
    if not facts.federated or not report:
        return None
    epsilon, audit = number(report["eps_guaranteed"]), facts.audit
    promised = number(report["eps_planned"]) if nothing_yet(report) else epsilon
    protected = watchers(math.isfinite(promised) and promised <= MEANINGLESS, report)
    rows = [{"from": who, "protected?": yes_no(safe), "why": why} for who, safe, why in protected]
    more = [unit(report["adjacency"]) if math.isfinite(promised) else None]
    more += [_examples(report.get("examples")), _sat_out(report)]
    needs = by_default(facts.summary["bundles"])
    first, *others = [*_words(report), *([] if needs is None else [f"{capitals(needs)}."]), *filter(None, more)]
    parts = [
        text(first, "big"),
        *map(text, others),
        heading("Who is protected from whom"),
        ReportTable("Who is protected from whom", rows, ("from", "protected?", "why")).part,
        heading("Epsilon, of four kinds that are never compared with each other"),
        SectionPart("epsilons", _epsilons(report, audit)),
        heading("What attacks reached"),
        *_attacks(facts),
        heading("What is not covered"),
        listed(report["not_covered"]),
        *(() if facts.summary["data"] == GIVEN else (text(OTHERS.format(facts.name), "note"), command(sweep(facts)))),
        folded(
            "For experts: everything that the guarantee depends on",
            [told([*render(report), *render_examples(report.get("examples"))])],
        ),
    ]
    return Section.of("privacy", "What is the privacy worth?", parts)


def _attacks(facts: Facts) -> list[SectionPart | None]:
    """Return what attacks on the run reached beside guessing, or how to attack it."""
    audit = facts.audit
    made = [row for row in audit["attacks"] if not row.get("note")] if audit else []
    if audit is None or not made:
        return [text(NOT_AUDITED.format(facts.name))]
    verdict = f"{capitals(audit['verdict'])}. The attacker is {audit['attacker']}."
    left = "".join(f" {row['attack']} was not made: {row['note']}." for row in audit["attacks"] if row.get("note"))
    table = ReportTable("Attacks beside guessing", [_attack(row) for row in made], WORDS, look="strips").part
    return [text(verdict), table, text(COIN + left, "note")]


def sweep(facts: Facts) -> str:
    """Return the command that tries other epsilons of this run's experiment, as typed in the folder that holds the run.

    It sets what epsilon needs and the experiment lacks, and takes back what named the noise in its place.
    """
    asked = yaml.safe_load(facts.experiment)["privacy"]
    changes = []
    if "epsilon" not in asked:
        changes += ["privacy.mechanism=gaussian"]
    if asked.get("clip") is None:
        changes += ["privacy.clip=1"]
    changes += [f"privacy.{name}=null" for name in ("sigma", "scale") if asked.get(name) is not None]
    words = ["edgefr", "sweep", "--experiment", f"{facts.name}/experiment.yaml"]
    words += ["--devices", f"{facts.name}/devices.yaml"]
    words += [word for change in changes for word in ("--set", change)]
    return shlex.join([*words, "--grid", "privacy.epsilon=[1,4,8,inf]"])


def _words(report: dict[str, Any]) -> list[str]:
    """Say what the run's epsilon means; what releases would cost where there were none."""
    if nothing_yet(report):
        return [f"{capitals(NOT_YET)}.", f"{capitals(would_cost(report))}."]
    whole = [f"This is of {TOGETHER}: {report['served']} of {report['rounds']}."] if report.get("served") else []
    return [*in_words(number(report["eps_guaranteed"]), report["delta"], report.get("chance_above")), *whole]


def in_words(epsilon: float, delta: float, above: float | None) -> list[str]:
    """Say what an epsilon means to somebody who never heard of one. `above`: the chance of a larger privacy loss.

    >>> in_words(math.log(3), 1e-5, 2e-5)[0]
    'Somebody who is 50 % sure of something about a person can become at most 75 % sure by what was released.'
    """
    if not math.isfinite(epsilon):
        return [
            "No limit is put on what uploads tell about a person: somebody who sees them may become certain.",
            "Data stay on the device, but that alone is no protection: updates are made of the data.",
        ]
    what = "Somebody who is 50 % sure of something about a person can become at most"
    lines = [f"{what} {sure(epsilon)} sure by what was released."]
    if above is None:
        lines.append(f"Rare outcomes may tell more; delta, {delta:g}, limits by how much.")
    elif above:
        lines.append(f"This holds but for a chance of 1 in {1 / above:,.0f}, computed from what releases can come to.")
    lines.append("That is the worst case: an attacker who knows less learns less.")
    return lines


def sure(epsilon: float) -> str:
    """Say how sure somebody can become of what is true or not with equal chances, by what was released.

    >>> sure(1.0), sure(8.0), sure(math.inf)
    ('73 %', '99.97 %', '100 %')
    """
    share = 1 / (1 + math.exp(-epsilon))
    if not math.isfinite(epsilon):
        return "100 %"
    return "more than 99.99 %" if share > 0.9999 else f"{100 * share:.{2 if share > 0.99 else 0}f} %"


def watchers(guaranteed: bool, report: dict[str, Any]) -> list[tuple[str, bool, str]]:
    """Return who may want to know, whether people are protected from them, and why."""
    everybody = "Other devices, and whoever gets the model"
    server = "The server that adds up the uploads"
    if not guaranteed:
        why = "nothing limits what an upload tells"
        return [(server, False, why), (everybody, False, "nothing limits what the model tells")]
    noise = "simulated noise can be drawn again with the key; real devices draw noise of their own"
    rows = [(everybody, True, "they see sums that carry noise")]
    if TRUSTS[report["trust"]].sees_uploads:
        rows.append((server, True, "every upload carries noise before it leaves the device"))
    else:
        assumed = (
            "it adds the noise, so it knows each sum without it; masks (serve --secure-sum) hide single uploads only"
        )
        rows.append((server, False, assumed))
    return [
        *rows,
        ("Whoever holds this run's noise key", False, noise),
        ("Whoever holds the device", False, "the data lie on it"),
    ]


def unit(adjacency: str) -> str:
    """Say what an attacker cannot tell apart."""
    told = {
        "zero-out": "Protected is whether a person's updates were in the sums at all, with all that this person did.",
        "replace-one": "Protected is all that a person did: it could be exchanged for anybody else's.",
    }
    return told.get(adjacency, adjacency)


def _epsilons(report: dict[str, Any], audit: dict[str, Any] | None) -> list[tuple[str, str, str]]:
    """Return the four columns: (kind, value, what it is)."""
    values = {
        "guaranteed": "nothing yet" if nothing_yet(report) else _shown(report["eps_guaranteed"], "unknown"),
        "nominal": _shown(report["eps_nominal"], "unknown"),
        "hypothetical": _shown(report["eps_hypothetical"], "not measured"),
        "audited": "not audited" if audit is None else f"≥ {_shown(audit['eps_lb95'], '0')}",
    }
    return [(kind, values[kind], about) for kind, about in KINDS.items()]


def _examples(examples: dict[str, Any] | None) -> str | None:
    """Say what is guaranteed to a single interaction; None where nothing is."""
    if examples is None:
        return None
    value = _shown(examples["eps_guaranteed"], "unknown")
    each = f"epsilon {value} at delta {examples['delta']:g} for each single interaction, not for a person's many"
    return f"Apart from that, DP-SGD on the device guarantees {each}."


def _attack(row: dict[str, Any]) -> dict[str, Any]:
    """Return one attack: what it asks, what it reached beside guessing, and the epsilon it proves."""
    auc, null = row.get("auc"), row.get("auc_null")
    strip, reached, better = None, "–", False
    if auc is not None and null is not None:
        better = auc > null
        reached = f"{auc:.3f} (by luck up to {null:.3f})"
        strip = SCORES.strip(auc, 0.5, null, f"{row['attack']}: right in {auc:.1%} of pairs; luck reaches {null:.1%}")
    return {
        "attack": row["attack"],
        "tries to tell": ATTACKS.get(row["attack"], row["unit"]),
        "right answers, drawn": Drawn(SCORES, strip, "bad" if better else "good"),
        "right, of pairs": reached,
        "better than luck?": "yes" if better else "no",
        "proves epsilon": "–"
        if row["eps_lb95"] is None
        else f"≥ {row['eps_lb95']:.3g} of {_shown(row['claimed'], 'unknown')}",
    }


def _sat_out(report: dict[str, Any]) -> str | None:
    """Say who had to sit out for want of budget; None where no budget was set."""
    found, budget = report.get("sat_out"), report.get("budget")
    if not found or budget is None:
        return None
    return (
        f"{found['clients']:,} of {report['clients']:,} people sat out {found['times']:,} times, "
        f"since nobody may spend more than epsilon {short(float(budget))}."
    )


def _shown(value: float | str | None, missing: str) -> str:
    if value is None:
        return missing
    return "∞" if value == "inf" else short(float(value))
