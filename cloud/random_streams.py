"""These strings key the random draws of the cloud room; a later renaming may not touch them.

Every random number is a function of (seed, one of these, step, ...), so another string is another result.
"""

PRE_TRAINING = "pre-training"
PRE_TRAINING_ORDER = "pre-training order"
MASKS = "masks and dropout"
DISTILLATION_ORDER = "distillation order"
STUDENT = "student"
PROJECTION = "projection"
JUDGED_TEXTS = "judged texts"
HELD_OUT = "held-out"
MISSING_WEIGHTS = "weights that a folder lacks"
REFERENCE_NEGATIVES, REFERENCE_ORDER = "negatives of a reference", "order of a reference"
FIRST_FACTORS = "first factors"
FIRST_DIRECTIONS = "first directions of words"
FOLDS = "folds of users"
VARIATIONS = "variations of sequences"
