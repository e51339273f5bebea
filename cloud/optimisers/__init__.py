"""These are the server optimisers that ship: one file each, one line here. A plug-in registers its own so.

Owns: the step that the server takes along an update. Does not own: the update (`cloud.rules`).
"""

from cloud.optimisers.adam import Adam
from cloud.optimisers.momentum import Momentum
from cloud.optimisers.sgd import SGD
from cloud.rules.mean import OPTIMISERS

OPTIMISERS.register(SGD())
OPTIMISERS.register(Momentum())
OPTIMISERS.register(Adam())
