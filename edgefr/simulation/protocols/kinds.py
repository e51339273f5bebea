"""These are the protocols that ship: leave-one-out within a domain and across, a hold-out, blocks of time, sessions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from edgefr.config.validation import fault
from edgefr.data.interactions import Dataset
from edgefr.data.prepared_data import Prepared
from edgefr.data.protocol import ProtocolSettings
from edgefr.data.splits.blocks import Blocks
from edgefr.data.splits.holdout import Holdout
from edgefr.data.splits.leave_one_out import CrossDomain, LeaveOneOut
from edgefr.data.splits.sessions import SessionsProtocol
from edgefr.experiment.experiment import Experiment
from edgefr.experiment.method import METHODS, Method
from edgefr.simulation.protocols.protocol import RunProtocol
from privacy.errors import InputError

if TYPE_CHECKING:
    from edgefr.simulation.stages.stage import Running, Stage


def over_splits(experiment: Experiment, prepared: Prepared) -> tuple[Stage, ...]:
    """Return rounds over the split that is learned from; then local training and tests on each split in its turn."""
    from edgefr.simulation.stages.leave_one_out import Local, Rounds

    if experiment.row.central is not None:
        from edgefr.simulation.stages.central import over_split

        return over_split(experiment, prepared)
    splits = list(prepared.splits.values())
    first = prepared.train_split
    local = (
        Local(split, 0, experiment.rounds, number=number, splits=len(splits), learned_on=first.name)
        for number, split in enumerate(splits)
    )
    judge = experiment.evaluation.judge if experiment.keeps_best else None
    return (Rounds(first, experiment.rounds, patience=experiment.patience, judge=judge), *local)


IN_ORDER = "what a user had last: train's newest items to validate, with the validation item to test"
"""What is known of a user whose items are read in their order, when a held-out item is asked for."""


class ByLeavingOneOut(RunProtocol):
    """Every user's newest item is the test, the second newest validates."""

    name = "leave-one-out"
    settings: type[ProtocolSettings] = LeaveOneOut
    reads = frozenset({"items", "sequence"})
    own: tuple[str, ...] = ("evaluation.keep", "evaluation.patience", "evaluation.judged_by", "evaluation.tables")
    counts_examples = True
    tuned = True
    pools = True

    def cut(self, experiment: Experiment, dataset: Dataset) -> Prepared:
        protocol = experiment.protocol
        assert isinstance(protocol, LeaveOneOut | CrossDomain)
        if isinstance(protocol, LeaveOneOut):
            dataset = protocol.restrict(dataset)
        splits = {split.name: split for split in protocol.apply(dataset, experiment.seed)}
        words = protocol.describe(dataset) + _constant(protocol.negatives + 1, experiment.evaluation.k)
        return Prepared(dataset, splits, f"{words}; {IN_ORDER}" if experiment.row.in_order else words)

    def unserved(self, experiment: Experiment) -> str | None:
        return None

    def stages(self, experiment: Experiment, prepared: Prepared) -> tuple[Stage, ...]:
        return over_splits(experiment, prepared)


class AcrossDomains(ByLeavingOneOut):
    """TransFR's cross-domain task has clients learn in one domain and tests in the other those who are in both."""

    name = "cross-domain"
    settings = CrossDomain
    own = (*ByLeavingOneOut.own, "encoder.fit", "model.adapter_fit")
    tuned = False  # what counts is the other domain, which no round measures

    def unserved(self, experiment: Experiment) -> str | None:
        return "a device learns from items of one domain: use protocol.name=leave-one-out"


class HoldingOut(ByLeavingOneOut):
    """Several items of a user are held out: by ratio, from one moment on, of cold items, or as the data say."""

    name = "holdout"
    settings = Holdout
    own = AcrossDomains.own
    several = True

    def check(self, experiment: Experiment) -> None:
        protocol, row = experiment.protocol, experiment.row
        assert isinstance(protocol, Holdout)
        if not experiment.evaluation.full_ranking_users:
            raise fault("held-out lists are tested by full ranking; use at least 1", "evaluation", "full_ranking_users")
        if protocol.by == "cold-items" and not row.needs_text:
            readers = " or ".join(name for name, other in METHODS.items() if other.needs_text)
            problem = f"{row.name} knows items by number, and nothing is learned of a cold item's"
            raise fault(f"{problem}: use method={readers}, or another protocol.by", "protocol", "by")
        for place, value in (
            (("encoder", "fit"), experiment.encoder.fit),
            (("model", "adapter_fit"), experiment.model.get("adapter_fit")),
        ):
            if value == "source" and not protocol.draws_apart:
                raise fault(f"all items are learned from where protocol.by is {protocol.by}: drop it", *place)

    def cut(self, experiment: Experiment, dataset: Dataset) -> Prepared:
        protocol = experiment.protocol
        assert isinstance(protocol, Holdout)
        split, words = protocol.apply(dataset, experiment.seed)
        if experiment.row.in_order:
            words += "; what a user had last: train's newest items to validate, with what validates to test"
        return Prepared(dataset, {split.name: split}, words)

    def unserved(self, experiment: Experiment) -> str | None:
        if not experiment.protocol.draws_apart:
            return None
        return "a device draws negatives from all that it recommends, and this run did not: use protocol.by=ratio"


def _constant(candidates: int, cutoffs: Sequence[int]) -> str:
    """Say which metrics of sampled ranking are 1 whatever is learned, since no candidate ranks below the cut-off."""
    names = [f"{name}@{k}" for k in cutoffs if k >= candidates for name in ("HR", "Recall")]
    many = f"{', '.join(names)} of {candidates} candidates are 1 whatever is learned: raise protocol.negatives"
    return f"; {many}" if names else ""


class OverBlocks(RunProtocol):
    """Blocks of time (F3CRec §5.1) are a base and equal increments; each goes on from what the one before handed on."""

    name = "blocks"
    settings = Blocks
    reads = frozenset({"items"})
    own = ("continual", "evaluation.keep_blocks")
    defaults: ClassVar[Mapping[str, Any]] = {
        "evaluation": {"k": [20], "full_ranking_users": 100_000, "curve_users": 100_000}
    }
    hands_on = True
    validates_once = True

    def refuses(self, row: Method) -> str | None:
        if row.own_rows:
            return f"blocks do not carry the item rows of {row.name}'s own clients on"
        if row.stateless:
            problem = f"blocks hand on what clients keep, and those of {row.name} keep nothing"
            return f"{problem}: set protocol.name=leave-one-out"
        return super().refuses(row)

    def check(self, experiment: Experiment) -> None:
        row, evaluation = experiment.row, experiment.evaluation
        if (why := self.refuses(row)) is not None:
            raise fault(why, "protocol")
        if row.ordered and experiment.strategy != "ft":
            problem = f"{row.name} sees items in what came before them, which nothing remembered has: use ft"
            raise fault(problem, "strategy")
        patience = experiment.continual.patience
        if patience < evaluation.every and "patience" not in experiment.continual.model_fields_set:
            problem = f"a block ends after {patience} rounds without a better validation, and only every "
            problem += f"{evaluation.every}th round is measured; use at most {patience}, or set continual.patience too"
            raise fault(problem, "evaluation", "every")
        if patience < evaluation.every:
            problem = f"it counts rounds, and only every {evaluation.every}th is measured; use at least that"
            raise fault(problem, "continual", "patience")
        if not evaluation.full_ranking_users:
            raise fault("blocks are tested by full ranking; use at least 1", "evaluation", "full_ranking_users")

    def cut(self, experiment: Experiment, dataset: Dataset) -> Prepared:
        protocol = experiment.protocol
        assert isinstance(protocol, Blocks)
        how = protocol.increment_split or ("chronological" if experiment.fidelity == "released" else "random")
        protocol, dataset = protocol.model_copy(update={"increment_split": how}), protocol.restrict(dataset)
        blocks = protocol.apply(dataset, experiment.seed)
        empty = [block.name for block in blocks if not (len(block.users("valid")) and len(block.users("test")))]
        if empty:
            raise InputError(
                f"no user in block {empty[0]} has enough items to be tested; ask for fewer protocol.increments, "
                "a smaller protocol.base or more data"
            )
        return Prepared(dataset, {}, protocol.describe(dataset), blocks=blocks)

    def stages(self, experiment: Experiment, prepared: Prepared) -> tuple[Stage, ...]:
        from edgefr.simulation.stages.blocks import over_blocks

        return over_blocks(experiment, prepared)

    def unserved(self, experiment: Experiment) -> str | None:
        how = experiment.over_blocks
        if how.reset_private:
            return "devices keep their private tensors from block to block: use continual.reset_private=false"
        if how.labels == "anew":
            return "who is away at a block's end makes no predictions: use continual.labels=kept"
        if how.item_rate == "present":
            return "a bundle's learning rates count the whole catalogue: use continual.item_rate=catalogue"
        return None

    def released(self, experiment: Experiment) -> bool:
        assert isinstance(experiment.protocol, Blocks)
        return experiment.protocol.increment_split is None or bool(experiment.row.between_blocks)

    def results(self, sim: Running) -> dict[str, Any]:
        from edgefr.simulation.summary.blocks import summarise_blocks

        return summarise_blocks(sim)


class OverSessions(RunProtocol):
    """A user's last session is the test, the second last validates, the others are met one by one (FCUCR §4)."""

    name = "sessions"
    settings = SessionsProtocol
    reads = frozenset({"items", "sessions"})
    own = ("sessions",)
    tuned = True

    def refuses(self, row: Method) -> str | None:
        if row.stateless:
            problem = f"clients of {row.name} would rebuild what they are from sessions yet to come"
            return f"{problem}: set protocol.name=leave-one-out"
        if row.ordered:
            problem = f"{row.name} reads the order of items, and a session's are a set to it"
            return f"{problem}: set protocol.name=leave-one-out"
        return super().refuses(row)

    def check(self, experiment: Experiment) -> None:
        if (why := self.refuses(experiment.row)) is not None:
            raise fault(why, "protocol")

    def cut(self, experiment: Experiment, dataset: Dataset) -> Prepared:
        protocol = experiment.protocol
        assert isinstance(protocol, SessionsProtocol)
        some = protocol.restrict(dataset)
        split, sessions = protocol.apply(some, experiment.seed)
        return Prepared(some, {"main": split}, protocol.describe(dataset), sessions=sessions)

    def stages(self, experiment: Experiment, prepared: Prepared) -> tuple[Stage, ...]:
        from edgefr.simulation.stages.sessions import over_sessions

        return over_sessions(experiment, prepared)

    def unserved(self, experiment: Experiment) -> str | None:
        if experiment.row.reads != "sessions":
            return (
                f"clients of {experiment.row.name} learn from the set of a session's items, and a device from all that "
                "its owner has had: use a method that reads sessions, or protocol.name=leave-one-out"
            )
        if experiment.protocol.returns:
            return "a device does not go back to sessions that are over: use protocol.stream=one-pass"
        return None

    def results(self, sim: Running) -> dict[str, Any]:
        from edgefr.simulation.summary.summary import summarise_sessions

        return {**super().results(sim), "sessions": summarise_sessions(sim)}
