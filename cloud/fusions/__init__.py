"""These are the fusions that ship: one file each, one line here. A plug-in registers its own in the same way.

Owns: how prototypes become one reply. Does not own: which are found (`cloud.prototypes`).
"""

from cloud.fusion import FUSIONS
from cloud.fusions.attention import Attention
from cloud.fusions.mean import Mean
from cloud.fusions.pca import PCA
from cloud.fusions.softmax import Softmax

FUSIONS.register(Mean())
FUSIONS.register(Softmax())
FUSIONS.register(PCA())
FUSIONS.register(Attention())
