"""These are the server rules that ship: one file each, one line here. A plug-in registers its own in the same way.

Owns: what becomes of a cohort's updates. Does not own: their sum (`cloud.aggregate`), or who took part.
"""

from cloud.rule import RULES
from cloud.rules.gram import Gram
from cloud.rules.graph import Graph
from cloud.rules.krum import Krum
from cloud.rules.mean import Mean
from cloud.rules.median import Median
from cloud.rules.norm_bounded import NormBounded
from cloud.rules.temporal_mean import TemporalMean
from cloud.rules.trimmed_mean import TrimmedMean

RULES.register(Mean())
RULES.register(TemporalMean())
RULES.register(Median())
RULES.register(TrimmedMean())
RULES.register(NormBounded())
RULES.register(Krum())
RULES.register(Graph())
RULES.register(Gram())
