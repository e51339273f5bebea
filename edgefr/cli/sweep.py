"""`edgefr sweep` runs an experiment many times, `edgefr tune` searches the settings of methods with one budget."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from typer import Argument, Option

from edgefr.cli import options
from edgefr.cli.options import DEVICES, Ranked, check_data
from edgefr.cli.output import end, say, show_page
from edgefr.config.progress import shown
from privacy.errors import InputError


def sweep(
    grid: Annotated[
        list[str] | None,
        Option(
            metavar="FIELD=[A,B,...]",
            help="Values of a field of the experiment, e.g. 'privacy.epsilon=[1,8,inf]'; again for another field.",
        ),
    ] = None,
    experiment: options.ExperimentFile = None,
    seeds: Annotated[int, Option(min=1, max=1000, help="Every point is run with this many seeds.")] = 1,
    devices: options.FleetFile = DEVICES,
    data: options.DataSet = None,
    data_dir: options.DataDir = None,
    method: options.MethodName = None,
    rounds: options.Rounds = None,
    clients_per_round: options.ClientsPerRound = None,
    epsilon: options.Epsilon = None,
    clip: options.Clip = None,
    seed: Annotated[int | None, Option(help="The first seed. Default: the experiment's.")] = None,
    set_: Annotated[
        list[str] | None, Option("--set", metavar="KEY=VALUE", help="Change one field for every run.")
    ] = None,
    device: options.ChosenChip = None,
    search: Annotated[
        int | None, Option(min=1, max=10_000, help="Trials of a search (Optuna) at every point of the grid.")
    ] = None,
    search_space: Annotated[
        list[str] | None,
        Option(
            metavar="FIELD=RANGE",
            help="What the search chooses: 'privacy.clip=log(0.1,10)', 'rounds=int(10,200)', 'model.lr=uniform(0,1)'.",
        ),
    ] = None,
    objective: Annotated[
        str | None, Option(help="Validation metric that the search maximises. Default: the first NDCG.")
    ] = None,
    metric: Annotated[str | None, Option(help="Test metric that is drawn as utility. Default: the first NDCG.")] = None,
    privacy: Annotated[
        bool, Option(help="What privacy costs: epsilon 1, 2, 4, 8, inf, each tuned alike, run and attacked; one page.")
    ] = False,
    trials: Annotated[
        int | None, Option(min=1, max=10_000, help="Trials at every epsilon of --privacy. Default: 12.")
    ] = None,
    checkpoint_every: Annotated[
        int | None, Option(min=1, metavar="ROUNDS", help="A run that was stopped goes on from there by --resume.")
    ] = None,
    workers: options.Workers = 1,
    ray_address: options.RayAddress = None,
    noise_key: Annotated[
        Path | None, Option(metavar="FILE", help="Repeat a sweep's noise: its private/noise.key. Default: a new one.")
    ] = None,
    out: Annotated[Path | None, Option(help="Sweep folder; must be new. Default: runs/<name>-sweep.")] = None,
    resume: Annotated[
        Path | None, Option(metavar="DIR", help="Continue this sweep; give the same command with it.")
    ] = None,
) -> None:
    """Run an experiment over a grid of its fields, with several seeds, and compare.

    Every point of the grid is checked before anything runs. Runs are folders below the sweep's; a run that fails is
    listed and does not stop the others. `sweep.md` has the means over seeds. Of points that differ in settings alone
    (rounds, model, aggregation), the best on validation items is chosen, and test metrics are shown of that one; every
    method, data set and epsilon has a row of its own. Where the grid is about privacy,
    `tradeoff.md` and `figures/tradeoff.png` show utility against each kind of epsilon, beside
    the baselines. `inf` for privacy.epsilon clips and adds no noise.

    With --search, Optuna tunes the fields of --search-space at every point on validation items; the best trial stands
    for its point.

    With --privacy, clip, server rate, rounds and widths are tuned at every epsilon with the same number of trials, on
    validation items, and what neither clips nor adds noise is tuned beside; what --set gives is held, and where the
    experiment's file has a clip, its own settings are tried too. One run of each is attacked. `report.html` says what
    privacy costs, to whom what is promised, and what attackers reached.

    Ctrl-C loses only the runs under way, or what they did since their last checkpoint: the same command with --resume
    DIR goes on.

    Example: `edgefr sweep --grid 'privacy.epsilon=[1,8,inf]' --set privacy.mechanism=gaussian --set privacy.clip=1`

    Example: `edgefr sweep --privacy --method pfedrec --seeds 3 --workers 2`

    Example: `edgefr sweep --grid 'rounds=[5,10]' --method fedmf --seeds 3 --workers 2`
    """
    asked = {
        name: value for name, value in locals().items() if name not in ("set_", "search_space", "device", "privacy")
    }
    check_data(data)
    fields: dict[str, Any] = {"data": data, "method": method, "rounds": rounds, "clients_per_round": clients_per_round}
    fields |= {"epsilon": epsilon, "clip": clip, "seed": seed}
    options.refuse_twice(set_ or [], **fields)
    options.refuse_twice(grid or [], "--grid", **fields)
    from edgefr.cli.progress_table import progress_table
    from edgefr.studies.sweeps.run import Standing
    from edgefr.studies.sweeps.sweep import sweep as run

    folder = resume or out

    def told(standing: Standing) -> None:
        nonlocal folder
        folder = standing.folder
        watch(standing)

    asked |= {"grid": grid or [], "overrides": set_ or [], "space": search_space or [], "engine.device": device}
    asked["tradeoff"] = privacy
    try:
        with progress_table() as watch:
            found = run(**asked, watch=told)
    except KeyboardInterrupt:
        say(f"continue with the same command and --resume {folder}", err=True)
        raise
    for page in found.pages:
        show_page(page)
    end(found)


def tune(
    names: Annotated[list[str], Argument(help="Search spaces: files NAME.yaml in the folder --spaces.")],
    experiment: Annotated[Path | None, Option(help="Experiment file: what all methods share.")] = None,
    spaces: Annotated[Path, Option(help="Folder of search spaces.")] = Path("experiments/spaces"),
    data: options.DataSet = None,
    data_dir: options.DataDir = None,
    trials: Annotated[int, Option(min=1, max=10_000, help="Trials of every method.")] = 20,
    metric: Annotated[str, Option(help="Validation metric that is searched by.")] = "NDCG@10",
    ranking: Annotated[Ranked, Option(help="What a validation item is ranked against.")] = Ranked.full,
    seed: Annotated[int, Option(min=0, help="The first seed of the search.")] = 1000,
    seeds: Annotated[int, Option(min=1, max=100, help="Every trial is made with this many seeds.")] = 1,
    reported: Annotated[
        int, Option(min=1, max=1000, help="Results are reported with so many seeds, 0, 1, ...: none is searched by.")
    ] = 5,
    private: Annotated[
        bool, Option(help="Search what matters under noise, at the experiment's privacy.epsilon; say what that costs.")
    ] = False,
    patience: Annotated[int, Option(min=1, help="A trial ends so many rounds after its best one.")] = 30,
    prune: Annotated[
        bool, Option(help="End a trial below the median of earlier ones after a quarter or half of its rounds.")
    ] = False,
    set_: Annotated[
        list[str] | None, Option("--set", metavar="KEY=VALUE", help="Change one field for every method.")
    ] = None,
    devices: options.FleetFile = DEVICES,
    workers: Annotated[int, Option(min=1, max=256, help="Trials at a time, each a process with one thread.")] = 1,
    ray_address: options.RayAddress = None,
    out: Annotated[Path, Option(help="Folder of the tuning. The same command resumes it.")] = Path("runs/tuning"),
) -> None:
    """Search the settings of methods with one budget, on validation items alone, and write a recipe for each.

    Every method gets the same number of trials (Optuna) by the same rules, which are kept in the folder; another
    command with other rules is refused there. A trial has rounds and validation only: test items are not looked at, and
    its best round counts. A range at whose edge the best value lies is widened, within the same number of trials.

    With --private the search is at one epsilon (--set privacy.epsilon=8): over clip, server rate, rounds and widths in
    place of NAME.yaml's ranges, whose values of the server are kept. What is set by hand is held. Screen and recipe say
    what epsilon the trials would have cost the people whose data they were made on.

    `recipes/NAME.yaml` is a whole experiment for `edgefr simulate`, `NAME.csv` has its trials, `NAME.md` tells both;
    `budgets.md` compares the methods. Ctrl-C or a kill loses only the trials under way: the same command goes on.

    Example: `edgefr tune fedmf pfedrec --data ml-100k --data-dir DATA`

    Example: `edgefr tune fedmf --data demo --trials 5 --out runs/tuned`

    Example: `edgefr tune pfedrec --private --set privacy.epsilon=8 --data demo --out runs/private`
    """
    check_data(data)
    from edgefr.studies.tuning.rules import Rules
    from edgefr.studies.tuning.tune import tune as run

    if seed + seeds > 2**31:
        raise InputError(f"seeds end at {2**31 - 1}, and {seeds} from {seed} go beyond; use a smaller --seed")
    own, kept = tuple(range(seed, seed + seeds)), tuple(range(reported))
    rules = Rules(trials, metric, ranking.value, own, kept, patience, prune)
    where: dict[str, Any] = {"devices": devices, "workers": workers, "ray_address": ray_address, "out": out}
    base: dict[str, Any] = {"spaces": spaces, "data": data, "data_dir": data_dir, "overrides": set_ or []}
    with shown() as progress:
        found = run(names, experiment, rules=rules, private=private, **base, **where, progress=progress)
    for page in found.pages[:1]:
        show_page(page)
    end(found)
