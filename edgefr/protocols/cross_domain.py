"""TransFR's cross-domain task as a protocol: leave-one-out twice, learned in one domain and tested in both."""

from __future__ import annotations

from edgefr.data.protocols import CrossDomain
from edgefr.protocols.leave_one_out import ByLeavingOneOut


class AcrossDomains(ByLeavingOneOut):
    """What is learned in one domain is recommended in another, to users who are in both."""

    name = "cross-domain"
    settings = CrossDomain
