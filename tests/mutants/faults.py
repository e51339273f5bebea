"""All faults that are planted, by room."""

from tests.mutants import in_edge, in_edgefr, in_engine, in_figures, in_privacy
from tests.mutants.planted import Fault

FAULTS: tuple[Fault, ...] = (
    *in_privacy.FAULTS,
    *in_edge.FAULTS,
    *in_edgefr.FAULTS,
    *in_engine.FAULTS,
    *in_figures.FAULTS,
)
