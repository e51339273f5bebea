"""These lines are the table of protocols that ship: each is a class in `kinds.py`.

Owns: the tasks that a protocol cuts and the stages over them. Does not own: how a data set is split
(`edgefr.data.splits`).
"""

from edgefr.data.protocol import PROTOCOLS
from edgefr.simulation.protocols.kinds import AcrossDomains, ByLeavingOneOut, HoldingOut, OverBlocks, OverSessions

PROTOCOLS.register(ByLeavingOneOut())
PROTOCOLS.register(AcrossDomains())
PROTOCOLS.register(OverBlocks())
PROTOCOLS.register(OverSessions())
PROTOCOLS.register(HoldingOut())
