"""Sessions as a protocol (FCUCR §4): one stage, in whose rounds each client meets one of its sessions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from edgefr.config.validation import fault
from edgefr.data.interactions import Dataset
from edgefr.data.splits.sessions import SessionsProtocol
from edgefr.simulation.protocols.protocol import RunProtocol

if TYPE_CHECKING:
    from edgefr.data.prepared_data import Prepared
    from edgefr.experiment.experiment import Experiment
    from edgefr.simulation.stages.stage import Running, Stage


class OverSessions(RunProtocol):
    """A user's last session is the test, the second last validates, the others are met one by one."""

    name = "sessions"
    settings = SessionsProtocol
    reads = frozenset({"items", "sessions"})
    own = ("sessions",)
    tuned = True

    def check(self, experiment: Experiment) -> None:
        if experiment.row.stateless:
            problem = f"clients of {experiment.row.name} would rebuild what they are from sessions yet to come"
            raise fault(f"{problem}: set protocol.name=leave-one-out", "protocol")

        if experiment.row.ordered:
            problem = f"{experiment.row.name} reads the order of items, and a session's are a set to it"
            raise fault(f"{problem}: set protocol.name=leave-one-out", "protocol")

    def cut(self, experiment: Experiment, dataset: Dataset) -> Prepared:
        from edgefr.data.prepared_data import Prepared

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
