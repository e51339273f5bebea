"""Names of files and folders in a run."""

from __future__ import annotations

LEDGER = "ledger.parquet"


PRIVATE = "private"
"""The part of a run's folder that never leaves it."""


SIGNING_KEY = "signing.pem"
"""The key, of the private part, that a run signs its bundles with."""


POPULATION, EARLIER, SUCCESSOR = "population.json", "earlier.parquet", "successor.json"
"""Files of the private part where a run stands in for another: who is in it, and what they had released before; and of
the other run, which run that is."""


CHECKPOINT = "checkpoint"
"""The folder of a run with its tensors and users' own items, which its owner alone may open."""


LOCK = "run.lock"
"""The file that stands in a run's folder while somebody is at work there; a kill may leave it, and nobody minds."""


RESOLVED = "resolved.json"
"""What the experiment came to on its data and its fleet, before round 1."""


SEEDS = "seeds.json"
"""The file of a folder that holds a run per seed."""
