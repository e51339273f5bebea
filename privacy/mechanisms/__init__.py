"""These are the mechanisms that ship: one file each, one line here. A plug-in registers its own in the same way.

Owns: noise laws and what they guarantee. Does not own: their composition (`privacy.accounting`).
"""

from privacy.mechanism import MECHANISMS
from privacy.mechanisms.discrete_gaussian import DiscreteGaussian
from privacy.mechanisms.discrete_laplace import DiscreteLaplace
from privacy.mechanisms.gaussian import Gaussian
from privacy.mechanisms.laplace import Laplace
from privacy.mechanisms.none import NoNoise
from privacy.mechanisms.paper_laplace import PaperLaplace
from privacy.mechanisms.unclipped import Unclipped

MECHANISMS.register(NoNoise())
MECHANISMS.register(PaperLaplace())
MECHANISMS.register(Laplace())
MECHANISMS.register(DiscreteLaplace())
MECHANISMS.register(Gaussian())
MECHANISMS.register(DiscreteGaussian())
MECHANISMS.register(Unclipped())
