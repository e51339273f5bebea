"""Pages are rendered by Jinja2 with every value escaped, and allowed to run no script but their own."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgefr.config.packaged_files import installed
from edgefr.report.small_groups import of_few
from edgefr.report.web import costs, curve, details, fairness, privacy, provenance, rounds, verdict
from edgefr.report.web.answers import answers
from edgefr.report.web.facts import Facts
from edgefr.report.web.section import Section

if TYPE_CHECKING:
    from jinja2 import Environment

SECTIONS: tuple[Callable[[Facts], Section | None], ...] = (
    verdict.section,
    curve.section,
    details.blocks,
    details.sessions,
    details.transfer,
    costs.section,
    rounds.section,
    fairness.section,
    privacy.section,
    details.attack,
    details.bundles,
    details.measures,
    provenance.section,
)
"""The sections of a run's page, in their order."""
LEAD = "Does on-device learning help, on which devices, at which privacy, and at what cost?"
CENTRAL = "What everybody's data in one place would give: a reference beside which learning on devices is measured."


def run_page(facts: Facts) -> str:
    """Return the page of one run."""
    found = [section(facts) for section in SECTIONS]
    lead = LEAD if facts.federated else CENTRAL
    head: dict[str, Any] = {"kind": "run", "name": facts.name, "lead": lead, "answers": answers(facts.summary)}
    head["few"] = of_few([facts.summary])
    return page(facts.title, head, [one for one in found if one is not None])


def page(title: str, head: Mapping[str, Any], sections: Sequence[Section]) -> str:
    """Return a whole page: its head, and its sections in their order."""
    environment = _environment()
    style, script = (_own(name) for name in ("style.css", "page.js"))
    own = f"style-src '{_digest(style)}'; script-src '{_digest(script)}'; img-src data:"
    policy = f"default-src 'none'; {own}; base-uri 'none'"
    values = {"title": title, "head": head, "sections": sections, "made_by": f"edgefr {installed()}"}
    return environment.get_template("page.html").render(style=style, script=script, policy=policy, **values)


@cache
def _environment() -> Environment:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    return Environment(
        loader=PackageLoader("edgefr.report.web"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


@cache
def _own(name: str) -> Any:
    from markupsafe import Markup

    return Markup((Path(__file__).parent / "templates" / name).read_text(encoding="utf-8"))


def _digest(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"
