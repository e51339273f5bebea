"""`tune`: search for a method's settings on validation items."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from edgefr.config.arguments import at_least_one, checked
from edgefr.config.progress import watched
from edgefr.experiment.experiment import Change, Experiment
from edgefr.report.pages import Report
from edgefr.studies.jobs import Where
from edgefr.studies.tuning.rules import Rules
from privacy.errors import InputError
from privacy.progress import Progress


@watched()
@checked
def tune(
    names: Sequence[str],
    experiment: Experiment | str | Path | None = None,
    *,
    spaces: str | Path = "experiments/spaces",
    data: str | None = None,
    data_dir: str | Path | None = None,
    rules: Rules | None = None,
    private: bool = False,
    overrides: Sequence[str] = (),
    devices: str | Path = "devices.yaml",
    workers: int = 1,
    ray_address: str | None = None,
    out: str | Path | None = None,
    progress: Progress | None = None,
) -> Report:
    """Search the settings of methods with one budget, on validation items alone, and write a recipe for each.

    `names`: of the files in `spaces` that say what is searched. `experiment` and `overrides`: what all of them share.
    `rules`: trials, metric, seeds (None: the defaults of `edgefr.studies.tuning.rules.Rules`), the same for everything
    in `out` (default: runs/tuning). `private`: search what matters under noise, at the privacy.epsilon of the
    experiment, and say what the search would have cost. `ray_address`: of a Ray cluster that makes the trials. The same
    call goes on where it was stopped. Raises `InputError` for what any trial would be refused for, before any, for a
    seed that results are reported with, and for other rules than the folder's.

    Example: ``edgefr.tune(["fedmf", "pfedrec"], data="ml-100k").tables["budgets"]``
    """
    from edgefr.studies.campaign import Fleets
    from edgefr.studies.tuning.private import at_epsilon, private_space, section_of
    from edgefr.studies.tuning.report import report
    from edgefr.studies.tuning.run import Tuning
    from edgefr.studies.tuning.space import Base, Space

    at_least_one(workers=workers)
    if not names:
        raise InputError("there is nothing to tune; name a search space, for example fedmf")
    rules = rules or Rules()
    base = Base(Path(experiment) if isinstance(experiment, str) else experiment, tuple(overrides), rules.laid, data)
    found = [Space.read(Path(spaces), name) for name in dict.fromkeys(names)]
    if private:
        section = at_epsilon(section_of(base.experiment, map(Change.parse, base.changes)), None)
        found = [private_space(base, space, section) for space in found]
    at, where = None if data_dir is None else Path(data_dir), Where(workers, ray_address)
    tuning = Tuning(Path(out or "runs/tuning"), base, found, rules, Fleets(Path(devices)), at, where, progress)
    tuning.check()
    return report(tuning, tuning.run())
