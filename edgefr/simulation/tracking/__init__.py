"""Runs are told to trackers: a table of them, and what they are told of a run.

Owns: the contract of a tracker, the values of a round, the trackers that ship. Does not own: the loop that tells its
callbacks (`edgefr.simulation.loop`), or what a run keeps of itself.
"""

import edgefr.simulation.tracking.mlflow
import edgefr.simulation.tracking.tensorboard  # noqa: F401 - each registers its tracker
