"""TransFR's cross-domain task is a protocol: leave-one-out twice, learned in one domain and tested in both."""

from __future__ import annotations

from edgefr.data.protocols import CrossDomain
from edgefr.protocols.leave_one_out import ByLeavingOneOut


class AcrossDomains(ByLeavingOneOut):
    """Clients learn in one domain; those who are in another too are recommended items there."""

    name = "cross-domain"
    settings = CrossDomain
    own = (*ByLeavingOneOut.own, "encoder.fit", "model.adapter_fit")
    tuned = False  # what counts is the other domain, which no round measures
    pools = True
