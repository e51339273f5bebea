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
    "guaranteed": "The guarantee: all rounds together, for the person who took part most often.",
    "nominal": "The formula for one round, as papers print it. Not a guarantee.",
    "hypothetical": "The value for the same noise with a clip at the length that 90 % of updates stay "
    "within. Not a guarantee.",
    "audited": "The lower bound from attacks: the true epsilon is at least this, with 95 % confidence.",
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
WORDS = ("attack", "tries to infer", "better than guessing?")
COIN = (
    "A score of 0.5 is guessing; the bar ends where guessing ends in 95 of 100 cases. “Proves” stands beside the "
    "guarantee for the same number of releases."
)
NOT_AUDITED = Markup(
    "This run was not audited. <code>edgefr audit {}</code> attacks what leaves its devices; this page then shows "
    "the result next to guessing."
)
OTHERS = Markup(
    "To measure utility at other privacy levels, sweep this experiment; the sweep writes its own page. In the "
    "folder that contains <code>{}</code>:"
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
        heading("Who is protected against whom"),
        ReportTable("Who is protected against whom", rows, ("from", "protected?", "why")).part,
        heading("Four different epsilons"),
        SectionPart("epsilons", _epsilons(report, audit)),
        heading("Attack results"),
        *_attacks(facts),
        heading("What the guarantee does not cover"),
        listed(report["not_covered"]),
        *(() if facts.summary["data"] == GIVEN else (text(OTHERS.format(facts.name), "note"), command(sweep(facts)))),
        folded(
            "For experts: all assumptions and parameters",
            [told([*render(report), *render_examples(report.get("examples"))])],
        ),
    ]
    return Section.of("privacy", "What does the guarantee mean?", parts)


def _attacks(facts: Facts) -> list[SectionPart | None]:
    """Return what attacks on the run reached beside guessing, or how to attack it."""
    audit = facts.audit
    made = [row for row in audit["attacks"] if not row.get("note")] if audit else []
    if audit is None or not made:
        return [text(NOT_AUDITED.format(facts.name))]
    verdict = f"{capitals(audit['verdict'])}. The attacker is {audit['attacker']}."
    left = "".join(f" {row['attack']} was not run: {row['note']}." for row in audit["attacks"] if row.get("note"))
    table = ReportTable("Attacks compared with guessing", [_attack(row) for row in made], WORDS, look="strips").part
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
    'An observer who is 50 % sure of a fact about a person can become at most 75 % sure from the releases.'
    """
    if not math.isfinite(epsilon):
        return [
            "There is no guarantee: an observer of the uploads can infer a person's data.",
            "Raw data stay on the device, but updates are computed from them and can reveal them.",
        ]
    what = "An observer who is 50 % sure of a fact about a person can become at most"
    lines = [f"{what} {sure(epsilon)} sure from the releases."]
    if above is None:
        lines.append(f"Rare outcomes may reveal more; delta ({delta:g}) limits how much.")
    elif above:
        lines.append(
            f"This can fail with probability 1 in {1 / above:,.0f}, computed from the distribution of the releases."
        )
    lines.append("This is the worst case; an attacker with less knowledge learns less.")
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
    everybody = "Other devices and recipients of the model"
    server = "The server that adds up the uploads"
    if not guaranteed:
        why = "an upload may reveal anything"
        return [(server, False, why), (everybody, False, "the model may reveal anything")]
    noise = "the key reproduces simulated noise; real devices draw their own noise"
    rows = [(everybody, True, "they see only noised sums")]
    if TRUSTS[report["trust"]].sees_uploads:
        rows.append((server, True, "each device noises its upload before sending it"))
    else:
        assumed = (
            "it adds the noise, so it sees each sum without noise; masks (serve --secure-sum) hide single uploads only"
        )
        rows.append((server, False, assumed))
    return [
        *rows,
        ("A holder of this run's noise key", False, noise),
        ("A holder of the device", False, "the device stores the data"),
    ]


def unit(adjacency: str) -> str:
    """Say what an attacker cannot tell apart."""
    told = {
        "zero-out": "The guarantee hides whether a person's updates, with all their data, were in the sums.",
        "replace-one": "The guarantee hides all data of a person: they could be replaced by anybody else's.",
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
    each = f"epsilon {value} at delta {examples['delta']:g} for each single interaction, not for all of a person's"
    return f"Apart from that, DP-SGD on the device guarantees {each}."


def _attack(row: dict[str, Any]) -> dict[str, Any]:
    """Return one attack: what it asks, what it reached beside guessing, and the epsilon it proves."""
    auc, null = row.get("auc"), row.get("auc_null")
    strip, reached, better = None, "–", False
    if auc is not None and null is not None:
        better = auc > null
        reached = f"{auc:.3f} (guessing up to {null:.3f})"
        strip = SCORES.strip(
            auc, 0.5, null, f"{row['attack']}: right in {auc:.1%} of pairs; guessing reaches {null:.1%}"
        )
    return {
        "attack": row["attack"],
        "tries to infer": ATTACKS.get(row["attack"], row["unit"]),
        "right answers, drawn": Drawn(SCORES, strip, "bad" if better else "good"),
        "right, of pairs": reached,
        "better than guessing?": "yes" if better else "no",
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
        f"because each person's budget is epsilon {short(float(budget))}."
    )


def _shown(value: float | str | None, missing: str) -> str:
    if value is None:
        return missing
    return "∞" if value == "inf" else short(float(value))
