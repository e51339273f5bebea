"""This is noise on updates that nobody clipped: whatever its law, it bounds nothing, and a ledger says so."""

from privacy.mechanism import NoGuarantee


class Unclipped(NoGuarantee):
    """This is noise without a clip."""

    name = "unclipped"
    settings = None
    unknown = "everything: without a clip the noise bounds nothing"
    citation = "none: nothing is claimed"
