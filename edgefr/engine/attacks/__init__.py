"""These are the attacks of hostile clients that ship: a function each, and a line here.

Owns: what attackers know and upload, from the broadcast to the clip. Does not own: who they are and what they want
(`edgefr.simulation.attackers`), or what becomes of an upload (`edgefr.engine.aggregate`, `cloud.rules`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgefr.config.attackers import ATTACKS, Attack

if TYPE_CHECKING:
    from torch import Tensor

    from edgefr.engine.attacks.attackers import Known

PIECK = (
    "PIECK: Zhang et al., Preventing the Popular Item Embedding Based Attack in Federated Recommendations, ICDE 2024"
)
FEDRECATTACK = "FedRecAttack: Rong et al., Model Poisoning Attack to Federated Recommendation, ICDE 2022"


def _ipe(known: Known) -> Tensor:
    from edgefr.engine.attacks.pieck import like_popular_items

    return like_popular_items(known)


def _uea(known: Known) -> Tensor:
    from edgefr.engine.attacks.pieck import liked_by_their_users

    return liked_by_their_users(known)


def _fedrecattack(known: Known) -> Tensor:
    from edgefr.engine.attacks.fedrecattack import above_their_lists

    return above_their_lists(known)


ATTACKS.register(Attack("pieck-ipe", PIECK, _ipe))
ATTACKS.register(Attack("pieck-uea", PIECK, _uea))
ATTACKS.register(Attack("fedrecattack", FEDRECATTACK, _fedrecattack))
