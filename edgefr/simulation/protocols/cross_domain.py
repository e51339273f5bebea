"""TransFR's cross-domain task is a protocol: leave-one-out in each domain, learned in one and tested in all."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgefr.data.splits.leave_one_out import CrossDomain
from edgefr.simulation.protocols.leave_one_out import ByLeavingOneOut

if TYPE_CHECKING:
    from edgefr.experiment.experiment import Experiment


class AcrossDomains(ByLeavingOneOut):
    """Clients learn in one domain; those who are in another too are recommended items there."""

    name = "cross-domain"
    settings = CrossDomain
    own = (*ByLeavingOneOut.own, "encoder.fit", "model.adapter_fit")
    tuned = False  # what counts is the other domain, which no round measures
    pools = True

    def unserved(self, experiment: Experiment) -> str | None:
        return "a device learns from items of one domain: use protocol.name=leave-one-out"
