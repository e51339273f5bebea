"""These are the mechanisms that ship, one line here each. A plug-in registers its own in the same way.

Owns: noise laws and what they guarantee. Does not own: their composition (`privacy.accounting`).
"""

from privacy.mechanism import MECHANISMS
from privacy.mechanisms.gaussian import DiscreteGaussian, Gaussian
from privacy.mechanisms.laplace import DiscreteLaplace, Laplace
from privacy.mechanisms.no_guarantee import NoNoise, PaperLaplace, Unclipped

MECHANISMS.register(NoNoise())
MECHANISMS.register(PaperLaplace())
MECHANISMS.register(Laplace())
MECHANISMS.register(DiscreteLaplace())
MECHANISMS.register(Gaussian())
MECHANISMS.register(DiscreteGaussian())
MECHANISMS.register(Unclipped())
