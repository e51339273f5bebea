"""These lines are the table of protocols that ship: each is in a file of its own."""

from edgefr.protocol import PROTOCOLS
from edgefr.protocols.blocks import OverBlocks
from edgefr.protocols.cross_domain import AcrossDomains
from edgefr.protocols.leave_one_out import ByLeavingOneOut
from edgefr.protocols.sessions import OverSessions

PROTOCOLS.register(ByLeavingOneOut())
PROTOCOLS.register(AcrossDomains())
PROTOCOLS.register(OverBlocks())
PROTOCOLS.register(OverSessions())
