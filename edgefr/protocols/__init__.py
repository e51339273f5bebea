"""Each protocol that ships is in a file of its own, and registered by one line here."""

from edgefr.protocol import PROTOCOLS
from edgefr.protocols.blocks import OverBlocks
from edgefr.protocols.cross_domain import AcrossDomains
from edgefr.protocols.leave_one_out import ByLeavingOneOut
from edgefr.protocols.sessions import OverSessions

PROTOCOLS.register(ByLeavingOneOut())
PROTOCOLS.register(AcrossDomains())
PROTOCOLS.register(OverBlocks())
PROTOCOLS.register(OverSessions())
