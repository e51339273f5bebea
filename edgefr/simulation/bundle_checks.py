"""Before anything is trained, an experiment is asked whether its model can be shipped, and whether devices learn it.

Owns: what is refused, and what to do instead. Does not own: making bundles (`shipping`).
"""

from __future__ import annotations

from edgefr.experiment.experiment import Experiment
from edgefr.experiment.method import Method
from privacy.errors import InputError
from privacy.mechanism import law_of


def check_federated(experiment: Experiment, what: str) -> None:
    """Raise `InputError` for a central reference: there is no `what` of it."""
    if experiment.row.central is not None:
        raise InputError(
            f"{experiment.row.name} is a central reference, which pools everybody's data: there is no {what}; choose a "
            "run of a federated method"
        )


def wanted(experiment: Experiment, bundles: bool | None) -> bool:
    """Return whether a run is to write bundles; `bundles` is what its caller asked for (None: where they can be made).

    Raises `InputError` for bundles that were asked for and cannot be made, or whose devices could not learn.
    """
    if bundles is False or experiment.row.central is not None:
        return False
    if bundles or experiment.export.learning:
        check_shippable(experiment)
    return True


def told(experiment: Experiment) -> str | None:
    """Say in a line what a run cannot ship, before it begins; None where devices learn from its bundles."""
    why = unshippable(experiment)
    if why is not None:
        return f"no bundles will be written: {why}"
    why = cannot_learn(experiment)
    return None if why is None or experiment.export.learning is False else f"bundles will only recommend: {why}"


def check_shippable(experiment: Experiment) -> None:
    """Raise `InputError` for a method whose model no bundle can hold, and where `export.learning` asks for too much."""
    check_federated(experiment, "device's part to ship")
    why = unshippable(experiment)
    if why is not None:
        raise InputError(f"{why}; leave bundles out (simulate --no-bundles)")
    why = cannot_learn(experiment) if experiment.export.learning else None
    if why is not None:
        raise InputError(
            f"devices could not learn from bundles of this run: {why}; leave export.learning out for bundles that only "
            "recommend, or leave bundles out (simulate --no-bundles)"
        )


def unshippable(experiment: Experiment) -> str | None:
    """Say why no bundle can hold the model of an experiment; None where one can."""
    if (why := unshippable_method(experiment.row)) is not None:
        return why
    if experiment.evaluation.tables == "own":
        return (
            "a bundle holds the server's item table, and this run is measured on tables of the clients' own (set "
            "evaluation.tables=server)"
        )
    ours = experiment.sessions
    if ours.history_bonus or ours.popularity_weight:
        return (
            "a device's scores know neither its user's history nor popularity (set sessions.history_bonus and "
            "sessions.popularity_weight to 0)"
        )
    return None


def unshippable_method(row: Method) -> str | None:
    """Say why no bundle can hold any model of a federated method; None where one can."""
    if row.own_rows:
        return f"a bundle cannot hold the item rows of its own that a client of {row.name} has"
    if row.reads == "sequence":
        return f"devices read sessions, which end where a user pauses, and {row.name} reads all that a user has as one"
    return None


def only_recommends(experiment: Experiment) -> str | None:
    """Say why devices do not learn from the bundles of an experiment; None where they do."""
    return "export.learning is false" if experiment.export.learning is False else cannot_learn(experiment)


def cannot_learn(experiment: Experiment) -> str | None:
    """Say why real devices cannot do what clients of this experiment do, where that is seen before training."""
    from edge.replay import PICKS
    from edgefr.data.splits.leave_one_out import LeaveOneOut
    from edgefr.experiment.continual import strategy
    from edgefr.methods.f3crec.block_strategy import BestItems, Keeping, keeper
    from edgefr.methods.fcucr.settings import FCUCRSettings
    from edgefr.methods.transfr.settings import TransFRSettings
    from export.learning import ADAM_OF_DIFFERENCES

    e, how = experiment, strategy(experiment.strategy)
    if e.privacy.examples is not None:
        return "no device adds the noise of DP-SGD (privacy.examples)"
    if e.prototypes is not None and e.privacy.clip is not None:
        return "no device clips and noises prototypes and other messages beside updates (privacy.clip)"
    if isinstance(e.settings, TransFRSettings) and e.settings.optimiser == "adam" and e.settings.objective.compared:
        return f"{e.row.name} {ADAM_OF_DIFFERENCES} (set model.optimiser=sgd with another model.lr)"
    if isinstance(e.settings, FCUCRSettings) and e.settings.beyond_devices is not None:
        return e.settings.beyond_devices
    if keeper(how) not in (Keeping, BestItems) or not PICKS[how.replays].on_device:
        return f"no bundle carries what strategy {e.strategy} remembers or pulls to"
    if "redraw" in how.reads and e.over_blocks.redraw == "step":
        return "a device draws what it replays once a round (continual.redraw=round)"
    if isinstance(e.protocol, LeaveOneOut) and e.protocol.negatives_avoid_held_out:
        return "no device knows which items are held out (protocol.negatives_avoid_held_out)"
    if e.protocol.draws_apart:
        return "a device draws negatives from all that it recommends, and this run did not (protocol.by=ratio)"
    if e.privacy.law is not None and (e.privacy.step is None or not law_of(e.privacy.law).on_device):
        return "its noise is not drawn on a grid, and no other is exact (set privacy.clip, and no privacy.sampler)"
    return None


def counted(experiment: Experiment) -> bool:
    """Say whether items may be ranked by how many people had them: where nothing was asked for that hides anybody.

    Noise that comes to no promise and sums that stay closed are meant to hide, too.
    """
    return not experiment.draws_noise and experiment.privacy.at_least == 1
