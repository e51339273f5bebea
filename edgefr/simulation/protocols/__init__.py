"""These lines are the table of protocols that ship: each is a class in a file here.

Owns: the tasks that a protocol cuts and the stages over them. Does not own: how a data set is split
(`edgefr.data.splits`).
"""

from edgefr.data.protocol import PROTOCOLS
from edgefr.simulation.protocols.blocks import OverBlocks
from edgefr.simulation.protocols.leave_one_out import AcrossDomains, ByLeavingOneOut
from edgefr.simulation.protocols.sessions import OverSessions

PROTOCOLS.register(ByLeavingOneOut())
PROTOCOLS.register(AcrossDomains())
PROTOCOLS.register(OverBlocks())
PROTOCOLS.register(OverSessions())
