"""These strings key the random draws of an experiment; renaming classes, phases or tensors may not touch them.

Every random number is a function of (seed, one of these, round, client, ...), so another string is another result. A
tensor, phase, split or attack that is renamed keeps its first name here. Draws that devices make too are keyed in
`edge.random_streams`.
"""

# Phases of local work, which key what is drawn for their examples.
FEDERATED = "federated"
FINE_TUNING = "federated fine-tuning"
LOCAL_TRAINING = "local training"
RECONSTRUCTION, RECOMMENDATION = "reconstruction", "recommendation"
EXAMPLES = "examples"
ROUND = "round"

# Rounds.
COHORT = "cohort"
PROTOTYPE_NOISE = "prototype noise"
MESSAGE_NOISE, NOMINAL_NOISE, RELAY = "message noise", "nominal noise", "relay"

# First values.
INIT_USER = "init user"
INIT_SCORER = "init scorer"

# Data and what is asked of it.
BLOCKS = "blocks/split"
HELD_OUT, COLD_ITEMS = "held out", "cold items"
DEMO_ITEMS, DEMO_USERS, DEMO_TASTES = "demo/items", "demo/users", "demo/tastes"
DEMO_DRAWS, DEMO_ATTEMPTS, DEMO_WORDS = "demo/draws", "demo/attempts", "demo/words"
RANDOM_REFERENCE = "random reference"
ITEM_MAP = "item map"
BOOTSTRAP, USERS_KEPT = "bootstrap over users", "users kept"

# The fleet.
AVAILABILITY, AVAILABILITY_AT_START = "availability", "availability at start"
CHARGING_HOUR = "charging hour"
DROPOUT = "dropout"
DEVICE_SPEED, DEVICE_SCORE = "device speed", "device score"
ACTIVITY_TIES, ACTIVITY_SCORE = "activity ties", "activity score"
NETWORK_MEDIAN, NETWORK_CLASS, NETWORK_IN_ROUND = "network median", "network class", "network in round"

# Audits and sweeps.
AUDITED, AUDIT, LEFT_OUT = "audited", "audit", "left out"
GAME, COINS, CANARIES = "game", "coins", "canaries"
SWEEP_SEARCH = "sweep search"

# Attackers.
ATTACKERS, TARGET, PUBLIC = "attackers", "target of attackers", "public interactions"


def init(tensor: str) -> str:
    """Return what keys a tensor's first values.

    >>> init("item")
    'init item'
    """
    return f"init {tensor}"


def dropped(site: str) -> str:
    """Return what keys the values that training drops at a place of the program."""
    return f"dropped values {site}"


def noise(tensor: str) -> str:
    """Return what keys the noise on a tensor's sum."""
    return f"noise {tensor}"


def noise_of_steps(phase: str) -> str:
    """Return what keys the noise of a phase's steps (DP-SGD)."""
    return f"noise of {phase}"


def records(phase: str, what: str) -> str:
    """Return what keys the "negatives" or "order" of a phase's records (DP-SGD)."""
    return f"{phase} {what} of records"


def candidates(split: str, which: str) -> str:
    """Return what keys the candidates of a split's "valid" or "test" items."""
    return f"negatives/{split}/{which}"


def session_candidates(asked: str) -> str:
    """Return what keys the candidates of the sessions that are asked about."""
    return f"negatives/sessions/{asked}"


def null(attack: str) -> str:
    """Return what keys the deals that an attack's result is compared with."""
    return f"null of {attack}"
