"""`sweep` runs one experiment over a grid of its fields, with or without a search beside it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgefr.config.arguments import at_least_one, checked
from edgefr.config.progress import of_runs, watched
from edgefr.experiment.experiment import Experiment
from edgefr.report.pages import Report
from edgefr.simulation.runs.folder import free_folder
from edgefr.simulation.runs.layout import PRIVATE
from edgefr.studies.jobs import Where
from privacy.errors import InputError
from privacy.noise_key import FILE, NoiseKey

if TYPE_CHECKING:
    from edgefr.studies.sweeps.plan import Search, SweepPlan


@watched("watch", of_runs)
@checked
def sweep(
    experiment: Experiment | str | Path | None = None,
    grid: Mapping[str, Sequence[Any]] | Sequence[str] = (),
    *,
    seeds: int = 1,
    tradeoff: bool = False,
    trials: int | None = None,
    devices: str | Path = "devices.yaml",
    overrides: Sequence[str] = (),
    search: int | None = None,
    space: Mapping[str, str] | Sequence[str] = (),
    objective: str | None = None,
    metric: str | None = None,
    data_dir: str | Path | None = None,
    checkpoint_every: int | None = None,
    workers: int = 1,
    ray_address: str | None = None,
    noise_key: str | Path | None = None,
    out: str | Path | None = None,
    resume: str | Path | None = None,
    watch: Callable[[Any], None] | None = None,
    **values: Any,
) -> Report:
    """Run an experiment over a grid of its fields, with several seeds, and compare.

    `grid`: values by field, or texts as of `--grid`. `search`: trials of a search (Optuna) at every point over `space`,
    ranges by field as ``{"privacy.clip": "log(0.1, 10)"}``, for the best `objective` on validation items. `metric`:
    what is drawn as utility. `tradeoff`: what privacy costs, at epsilons 1, 2, 4, 8 and infinity, each tuned with
    `trials` (none: 12) of its own, beside what is not private, and attacked; no grid or search goes beside it.
    `ray_address`: of a Ray cluster that does the runs. `noise_key`: the private/noise.key of another sweep, whose noise
    is repeated. `out`: a new folder (default: runs/<name>-sweep); `resume`: the folder of the same sweep, stopped
    before. `watch` is told of every run that ends; named `values` go over the experiment. A run that fails is in
    `failures` and does not stop the others. Raises `InputError` for what any run would be refused for, before any.

    Example: ``edgefr.sweep(experiment, {"privacy.epsilon": [1, 8]}, seeds=3).tables["sweep"]``
    """
    from edgefr.studies.sweeps.grid import Axis
    from edgefr.studies.sweeps.page import write_files
    from edgefr.studies.sweeps.plan import SweepPlan
    from edgefr.studies.sweeps.run import RunOptions, Sweep
    from edgefr.studies.tradeoffs.page import write_files as write_tradeoff
    from edgefr.studies.tradeoffs.plan import TradeoffPlan
    from edgefr.studies.tradeoffs.run import TradeoffSweep

    at_least_one(seeds=seeds, search=search, trials=trials, workers=workers, checkpoint_every=checkpoint_every)
    if isinstance(grid, Mapping):
        axes = [Axis.of(field, values_of, f"--grid {field}") for field, values_of in grid.items()]
    else:
        axes = [Axis.parse(text) for text in grid]
    base = Path(experiment) if isinstance(experiment, str) else experiment
    changed: dict[str, Any] = {"seeds": seeds, "base": base, "changes": overrides, "named": values}
    changed["devices"] = Path(devices)
    if tradeoff:
        _alone(grid=axes, search=search, search_space=space, objective=objective, metric=metric)
        plan: SweepPlan = TradeoffPlan(trials, **changed)
    else:
        _alone("--trials are those of --privacy; a search of your own has --search TRIALS", trials=trials)
        plan = SweepPlan(axes, search=_search(search, space, objective, bool(axes)), **changed)
        plan.check_metric(metric)
    if resume is not None and out not in (None, resume):
        raise InputError("--resume names the sweep's folder already; omit --out")
    folder = Path(resume or out or free_folder(Path("runs") / f"{plan.name}-sweep"))
    plan.begin(folder) if resume is None else plan.recognise(folder)
    key = _noise_of(plan, folder, noise_key)
    options = RunOptions(None if data_dir is None else Path(data_dir), checkpoint_every, key)
    where, watching = Where(workers, ray_address), watch or (lambda standing: None)
    if isinstance(plan, TradeoffPlan):
        return write_tradeoff(TradeoffSweep(plan, folder, options, where, watching))
    return write_files(Sweep(plan, folder, options, where, watching).run(), metric)


def _alone(why: str = "--privacy plans and searches by itself: omit {}", **options: Any) -> None:
    """Refuse an option that another one leaves nothing to do."""
    for name, given in options.items():
        if given:
            raise InputError(why.format(f"--{name.replace('_', '-')}"))


def _noise_of(plan: SweepPlan, folder: Path, given: str | Path | None) -> NoiseKey | None:
    """Return the key of a sweep's simulated noise, kept in its private part so that it can be gone on with."""
    if not any(plan.experiment(point, plan.seeds[0]).draws_noise for point in plan.points):
        if given is not None:
            raise InputError("a noise key is read where noise is drawn, and no run of this sweep draws any: drop it")
        return None
    path = folder / PRIVATE / FILE
    if path.exists() and given is not None and NoiseKey.read(given) != NoiseKey.read(path):
        raise InputError(f"the sweep in {folder} draws its noise by another key, {path}: leave the noise key out")
    if not path.exists():
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        (NoiseKey.new() if given is None else NoiseKey.read(given)).write(path)
    return NoiseKey.read(path)


def _search(
    trials: int | None, space: Mapping[str, str] | Sequence[str], objective: str | None, gridded: bool
) -> Search | None:
    """Return the search that was asked for, if any; what belongs together comes together."""
    from edgefr.studies.sweeps.grid import Range
    from edgefr.studies.sweeps.plan import Search
    from edgefr.studies.sweeps.search import available

    if trials is None:
        if space or objective is not None:
            raise InputError("--search-space and --objective are for a search; add --search TRIALS")
        if not gridded:
            raise InputError("there is nothing to sweep over; give --grid FIELD=[A,B] or --search TRIALS")
        return None
    if not space:
        raise InputError("--search needs what to choose; add --search-space 'privacy.clip=log(0.1,10)'")
    available()
    texts = [f"{field}={text}" for field, text in space.items()] if isinstance(space, Mapping) else space
    return Search(trials, tuple(Range.parse(text) for text in texts), objective)
