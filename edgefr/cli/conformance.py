"""`edgefr conformance` holds a client in any language to the conformance kit."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from privacy.errors import InputError


def conformance(
    runner: Annotated[str, Argument(help="Command that reads a question a line and answers a line, as one word.")],
    kit: Annotated[Path, Option(help="Folder of the kit; where there is no such folder, the one that ships.")] = Path(
        "conformance"
    ),
) -> None:
    """Test a device client in any language against the conformance kit: draws, training, releases, lists.

    Bundles and updates that were changed are asked about, too, and have to be refused. Ends with 2 where any fails.

    Example: `edgefr conformance "python -m edge.conformance"`

    Example: `edgefr conformance "node edge-js/dist/runner.js" --kit conformance`
    """
    from edgefr.cli.output import show
    from edgefr.config.progress import shown
    from edgefr.config.sheet import Sheet
    from edgefr.serving import conformance as kits

    with shown() as progress:
        found = kits.check(runner, kits.kit_at(kit), progress)
    rows = []
    for case in dict.fromkeys(one.question.case for one in found):
        own = [one for one in found if one.question.case == case]
        for what in dict.fromkeys(one.question.what.split(":")[0] for one in own):
            these = [one for one in own if one.question.what.split(":")[0] == what]
            bad = [one for one in these if one.fault is not None]
            errors = [one.error for one in these if one.error is not None]
            said = f"{bad[0].question.what}: {bad[0].fault}" if bad else ""
            largest = f"{max(errors):.1e}" if errors else ""
            passed = f"{len(these) - len(bad)}/{len(these)}"
            rows.append({"case": case, "what": what, "passed": passed, "largest error": largest, "fault": said})
    show(Sheet(f"conformance of {runner}", rows, words=["case", "what", "fault"]))
    failed = sum(one.fault is not None for one in found)
    if failed:
        raise InputError(f"{failed} of {len(found)} questions are not answered as the kit says")
