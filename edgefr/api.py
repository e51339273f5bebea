"""These functions do in Python what the commands of the same names do; the commands call them.

Owns: their arguments and what they return. Does not own: the work, which each imports when it is called.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edge.manifest import LASTS_DAYS
from edgefr.answers import Audit, Bundles, Measured
from edgefr.arguments import checked
from edgefr.experiment import Change, Experiment
from edgefr.explaining import Explained, ItemMap
from edgefr.fleet import load_fleet
from edgefr.jobs import Where
from edgefr.prepare import Progress
from edgefr.report.pages import Report
from edgefr.run import PRIVATE, Run, free_folder
from edgefr.tuning.rules import Rules
from edgefr.watching import of_runs, watched
from privacy.errors import InputError, unknown
from privacy.noise_key import FILE, NoiseKey

if TYPE_CHECKING:
    from edgefr.sweeps.plan import Plan, Search


def _run(run: Run | str | Path) -> Run:
    return Run.open(run.path if isinstance(run, Run) else run)


@watched()
@checked
def export(
    run: Run | str | Path,
    out: str | Path | None = None,
    *,
    expires_days: int | None = LASTS_DAYS,
    key: str | Path | None = None,
    zipped: bool = False,
    with_users: bool = False,
    served: bool = False,
    next_block: bool = False,
    progress: Progress | None = None,
) -> Bundles:
    """Write a bundle for every device class of a run's fleet to `out` (default: in the run).

    Devices refuse the bundles `expires_days` after the run was made (None: never). `key`: a private key (PEM) to sign
    them with (None: the run's own). `zipped`: each also as one file. `with_users`: they carry the simulated users of
    their class, private state and names, for tests that compare devices with the simulator; else nobody's. `served`: of
    what real devices have learned since (`edgefr serve`): the next bundles of its lineage. `next_block`: of a run over
    blocks of time these open the next one. Raises `InputError` for a run that is not whole or whose model no bundle can
    hold, and for a folder that is in the way or elsewhere in the run.

    Example: ``edgefr.export("runs/demo", "shipped").classes[["class", "variant", "files_mb"]]``
    """
    from edgefr.served import ServedTensors, place_of
    from edgefr.shipping import export_run
    from export.archive import pack

    found = _run(run)
    if next_block and not served:
        raise InputError("the next block goes on from what devices have learned: give --served with --next-block")
    learned = ServedTensors.of(found, next_block) if served else None
    own = found.path / "bundles" if learned is None else place_of(found, learned)
    place = _outside(found, own, None if out is None else Path(out))
    signer = None if key is None else Path(key)
    rows = export_run(found, place, progress, expires_days, with_users=with_users, key=signer, served=learned)
    if zipped:
        for folder in (Path(row["path"]) for row in rows):
            pack(folder, folder.with_name(f"{folder.name}.zip"))
    return Bundles(place, rows)


def _outside(run: Run, own: Path, out: Path | None) -> Path:
    """Return where bundles go: `own`, the run's place for them, or a folder that is none of the run's."""
    if out is not None and out.resolve() != own.resolve() and out.resolve().is_relative_to(run.path.resolve()):
        raise InputError(f"--out {out} lies in the run itself, which is kept as it is; name {own}, or a folder outside")
    return own if out is None else out


@watched()
@checked
def audit(
    run: Run | str | Path,
    attacks: Sequence[str] = (),
    *,
    users: int = 50,
    trials: int = 10_000,
    seed: int = 0,
    progress: Progress | None = None,
) -> Audit:
    """Check and attack what leaves the devices of a run, and keep the strongest findings in `audit.json` in its folder.

    `attacks`: some of sign-split, membership, gradient-matching, game, canaries, game-rows, game-bytes, game-steps
    (none: all); `users` are attacked, and games are drawn `trials` times, keyed by `seed`. The run's page, where there
    is one, is written again. Raises `InputError` for
    names that are no attacks, impossible numbers, and a run that is not whole.

    Example: ``edgefr.audit("runs/demo", ["game"]).eps_lb95``
    """
    from edgefr.audits.audit import audit_run
    from edgefr.audits.finding import Effort
    from edgefr.audits.record import FILE
    from edgefr.report.web.write import FILE as PAGE
    from edgefr.report.web.write import write_report

    found = _run(run)
    report = audit_run(found, attacks, Effort(users, trials, seed), progress)
    if (found.path / PAGE).is_file():
        write_report([found.path])
    return Audit(found.path / FILE, report)


@watched()
@checked
def calibrate(
    where: Run | str | Path,
    devices: str | Path | None = None,
    *,
    out: str | Path | None = None,
    timeout_s: float = 120.0,
    progress: Progress | None = None,
) -> Measured:
    """Measure on this machine what the bundles of a run, or of a folder, cost; each in a fresh process.

    `devices`: the fleet file (default: the run's own, or devices.yaml). `out`: the file for the figures (default:
    calibration.json beside the bundles). After `timeout_s` an activity is too slow. Raises `InputError` where there are
    no bundles, for damaged ones, and a host that cannot be measured.

    Example: ``edgefr.calibrate("runs/demo").classes``
    """
    from edgefr.calibrations.measure import calibrate as measure
    from edgefr.calibrations.measure import place_of

    if not timeout_s >= 1:
        raise InputError(f"timeout_s is at least 1 second, got {timeout_s}")
    folder = where.path if isinstance(where, Run) else Path(where)
    place = place_of(folder, None if devices is None else Path(devices), None if out is None else Path(out))
    fleet = load_fleet(place.devices)
    return Measured(place.out, measure(place, fleet, progress, timeout_s), fleet)


@checked
def explain(
    source: Run | str | Path,
    user: str | None = None,
    items: Sequence[str] = (),
    *,
    k: int = 3,
    out: str | Path | None = None,
) -> Explained:
    """Say what recommendations for a user lean on among the items that it had last: shares that sum to 1.

    `source`: a run, or a bundle that carries the user (a folder or a zip; None: a new device, which had nothing).
    `items`: ids (none: the `k` best, and of a run the item held out for validation). `out`: a folder for a picture and
    the numbers. Raises `InputError` for a user or an item that is not there, and for a method that says nothing of the
    kind.

    Example: ``edgefr.explain("runs/car", "u0000003").frame``
    """
    from edgefr.explaining import explained

    _at_least_one(k=k)
    given = source.path if isinstance(source, Run) else Path(source)
    bundle = given.suffix == ".zip" or (given / "manifest.json").exists()
    found = explained(given if bundle else _run(source), user, items, k)
    if out is not None:
        found.write(Path(out))
    return found


@checked
def map_items(run: Run | str | Path, users: Sequence[str], *, out: str | Path | None = None) -> list[ItemMap]:
    """Lay out by t-SNE the items that users had, and as many that they had not, as their clients have them.

    `out`: a folder for one picture of them all and the numbers. Raises `InputError` for users that are not in the run,
    for methods whose clients have item rows of their own, and without scikit-learn (the extra `map`).

    Example: ``edgefr.map_items("runs/car", ["u0000003", "u0000008"], out="maps")``
    """
    from edgefr.explaining import item_maps, write_maps

    found = item_maps(_run(run), users)
    if out is not None:
        write_maps(found, Path(out))
    return found


@watched("watch", of_runs)
@checked
def sweep(
    experiment: Experiment | str | Path | None = None,
    grid: Mapping[str, Sequence[Any]] | Sequence[str] = (),
    *,
    seeds: int = 1,
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
    what is drawn as utility. `ray_address`: of a Ray cluster that does the runs. `noise_key`: the private/noise.key of
    another sweep, whose noise is repeated. `out`: a new folder (default: runs/<name>-sweep); `resume`: the folder of
    the same sweep, stopped before. `watch` is told of every run that ends; named `values` go over the experiment. A run
    that fails is in `failures` and does not stop the others. Raises `InputError` for what any run would be refused for,
    before any.

    Example: ``edgefr.sweep(experiment, {"privacy.epsilon": [1, 8]}, seeds=3).tables["sweep"]``
    """
    from edgefr.sweeps.grid import Axis
    from edgefr.sweeps.plan import Ask, Plan, begin, recognise
    from edgefr.sweeps.report import report
    from edgefr.sweeps.run import Options, Sweep

    _at_least_one(seeds=seeds, search=search, workers=workers, checkpoint_every=checkpoint_every)
    if isinstance(grid, Mapping):
        axes = [Axis.of(field, values_of, f"--grid {field}") for field, values_of in grid.items()]
    else:
        axes = [Axis.parse(text) for text in grid]
    plan = Plan(
        Ask(
            axes=tuple(axes),
            seeds=seeds,
            experiment=Path(experiment) if isinstance(experiment, str) else experiment,
            changes=tuple(overrides),
            named=values,
            devices=Path(devices),
            search=_search(search, space, objective, bool(axes)),
        )
    )
    plan.check_metric(metric)
    if resume is not None and out not in (None, resume):
        raise InputError("--resume names the sweep's folder already; leave --out away")
    folder = Path(resume or out or free_folder(Path("runs") / f"{plan.name}-sweep"))
    if resume is not None:
        recognise(plan, folder)
    else:
        begin(plan, folder)
    key = _noise_of(plan, folder, noise_key)
    options = Options(None if data_dir is None else Path(data_dir), checkpoint_every, key)
    runs = Sweep(plan, folder, options, Where(workers, ray_address), watch or (lambda standing: None))
    return report(runs, runs.run(), metric)


def _noise_of(plan: Plan, folder: Path, given: str | Path | None) -> NoiseKey | None:
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


def _at_least_one(**given: int | None) -> None:
    for name, value in given.items():
        if value is not None and value < 1:
            raise InputError(f"{name} is a whole number of at least 1, got {value}")


def _search(
    trials: int | None, space: Mapping[str, str] | Sequence[str], objective: str | None, gridded: bool
) -> Search | None:
    """Return the search that was asked for, if any; what belongs together comes together."""
    from edgefr.sweeps.plan import Search
    from edgefr.sweeps.search import available
    from edgefr.sweeps.space import Range

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
    overrides: Sequence[str] = (),
    devices: str | Path = "devices.yaml",
    workers: int = 1,
    ray_address: str | None = None,
    out: str | Path | None = None,
    progress: Progress | None = None,
) -> Report:
    """Search the settings of methods with one budget, on validation items alone, and write a recipe for each.

    `names`: of the files in `spaces` that say what is searched. `experiment` and `overrides`: what all of them share.
    `rules`: trials, metric, seeds (None: the defaults of `edgefr.tuning.rules.Rules`), the same for everything in `out`
    (default: runs/tuning). `ray_address`: of a Ray cluster that makes the trials. The same call goes on where it was
    stopped. Raises `InputError` for what any trial would be refused for, before any, for a seed that results are
    reported with, and for other rules than the folder's.

    Example: ``edgefr.tune(["fedmf", "pfedrec"], data="ml-100k").tables["budgets"]``
    """
    from edgefr.tuning.report import report
    from edgefr.tuning.run import Tuning
    from edgefr.tuning.space import Base, Space

    _at_least_one(workers=workers)
    if not names:
        raise InputError("there is nothing to tune; name a search space, for example fedmf")
    rules = rules or Rules()
    base = Base(Path(experiment) if isinstance(experiment, str) else experiment, tuple(overrides), rules.laid, data)
    found = [Space.read(Path(spaces), name) for name in dict.fromkeys(names)]
    at, where = None if data_dir is None else Path(data_dir), Where(workers, ray_address)
    tuning = Tuning(Path(out or "runs/tuning"), base, found, rules, Path(devices), at, where, progress)
    tuning.check()
    return report(tuning, tuning.run())


@watched()
@checked
def reproduce(
    paper: str,
    exhibits: Sequence[str] = ("table-2",),
    *,
    data: Sequence[str] | None = None,
    data_dir: str | Path | None = None,
    seeds: int = 5,
    fidelity: str = "released",
    stream: str | None = None,
    rows: Sequence[str] = (),
    backbones: Sequence[str] = (),
    overrides: Sequence[str] = (),
    workers: int = 1,
    ray_address: str | None = None,
    out: str | Path | None = None,
    devices: str | Path = "devices.yaml",
    progress: Progress | None = None,
    warn: Callable[[str], None] = print,
) -> Report:
    """Run tables and figures of a paper again, beside the published numbers.

    `paper`: f3crec, fcucr, fedcar or transfr. `exhibits`: "table-2", "figure-3", .... `data`: data sets (None: those of
    each table). Every cell is run with seeds 0, 1, ... (`seeds` of them). `fidelity`: released or paper; `stream`
    (fcucr): one-pass or cyclic. `rows` and `backbones`: a part of each table (none: all). `overrides` go over every
    recipe. `out` (default: runs/<paper>) keeps finished runs: the same call goes on. `ray_address`: of a Ray cluster
    that does the runs. `warn` is told of data sets that are missing. Raises `InputError` for unknown names and where no
    data are.

    Example: ``edgefr.reproduce("f3crec", ["table-2"], data=["ml-100k"], seeds=1).tables["table-2"]``
    """
    from edgefr.reproductions.cells import Chosen
    from edgefr.reproductions.exhibits import reproduce as run
    from edgefr.reproductions.page import command
    from edgefr.reproductions.papers import FIDELITIES, PAPERS
    from edgefr.reproductions.runs import ideal_fleet

    _at_least_one(seeds=seeds, workers=workers)
    entry = PAPERS[paper]
    _named(f"exhibit of {entry.title}", exhibits, entry.exhibits)
    _named(f"data set of {entry.title}", data or (), entry.data_sets)
    _named("fidelity", [fidelity], FIDELITIES)
    _named(f"stream of {entry.title}", [] if stream is None else [stream], entry.streams)
    extra = {change.field: change.value for change in map(Change.parse, overrides)}
    ask = entry.ask(fidelity, range(seeds), extra, None if data_dir is None else Path(data_dir), stream)
    ask = replace(ask, chosen=Chosen(tuple(rows), tuple(backbones)))
    chosen = {name: entry.exhibits[name] for name in exhibits}
    fleet = load_fleet(devices, ideal_fleet())
    place = Path(out or Path("runs") / paper)
    named = list(dict.fromkeys(data)) if data else None
    options = {"data": named, "seeds": seeds, "fidelity": fidelity, "stream": stream}
    told = command(paper, exhibits, options | {"rows": rows, "backbones": backbones, "set": overrides})
    return run(ask, chosen, named, fleet, place, Where(workers, ray_address), progress, warn, (entry.title, told))


def _named(what: str, names: Sequence[str], known: Iterable[str]) -> None:
    for name in names:
        if name not in [*known]:
            raise unknown(what, name, known)
