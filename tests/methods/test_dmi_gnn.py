"""DMI-GNN by loops over the pairs of one prefix at a time, and its term over pairs of interests."""

from __future__ import annotations

from itertools import combinations

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from edgefr.methods.dmi_gnn.program import DMIGNN
from edgefr.methods.prefixes import prefixes
from tests.closeness import assert_same
from tests.methods.prefixed import (
    DIM,
    SESSIONS,
    drawn,
    program,
    scores,
    window,
)
from tests.methods.test_hearint import neighbours, order_of


def literally(tensors: dict[str, Tensor], prefix: list[int], interests: int) -> tuple[Tensor, list[Tensor]]:
    """Every item's score after one prefix as the public code has it, and each interest's shares of the positions."""
    own = {name.removeprefix("encoder."): value for name, value in tensors.items()}
    table = F.normalize(tensors["item"], dim=-1)
    nodes = neighbours(table, prefix, own["order"], order_of, dict.fromkeys(prefix, 1.0))
    places = own["position"][: len(prefix)].flip(0)
    told = torch.tanh(torch.cat([places, nodes], dim=-1) @ own["place.weight"])
    found, shares = [], []
    for k in range(interests):
        part = slice(k * DIM, (k + 1) * DIM)
        pattern = torch.tanh(told @ own["pattern.weight"][:, part] + own["pattern.bias"][part])
        share = pattern @ own["share.weight"][k] + own["share.bias"][k]
        found.append(table @ (share @ nodes))
        shares.append(share)
    return torch.stack(found).max(0).values, shares


@pytest.mark.parametrize("interests", [2, 3])
@pytest.mark.parametrize("session", SESSIONS, ids=str)
@torch.no_grad()
def test_every_prefix_is_encoded_as_if_it_were_the_session(session: list[int], interests: int) -> None:
    local = program("dmi-gnn", interests=interests)
    tensors = drawn(local, 1)
    found = scores(local, tensors, session)
    for n in range(1, len(session) + 1):
        assert_same(found[n - 1], literally(tensors, session[:n], interests)[0])


@torch.no_grad()
def test_patterns_of_long_sessions_are_held_apart_and_of_short_ones_together() -> None:
    local = program("dmi-gnn", long=3, regular=0.5)
    assert isinstance(local, DMIGNN)
    tensors, session = drawn(local, 3), SESSIONS[0]
    batch = window(session)
    made = prefixes(batch.rows(tensors["item"]), batch.label, every=True)
    intents = local.intents(local.encoder(tensors), made, True)
    found = local.beside(made, intents, intents, batch)
    total = 0.0
    for n in range(1, len(session) + 1):
        shares = [F.normalize(share, dim=0) for share in literally(tensors, session[:n], 3)[1]]
        alike = [float((one @ other).abs()) for one, other in combinations(shares, 2)]
        total += float(torch.sigmoid(torch.tensor(sum(alike) / 3 * (n - 3))))
    assert found is not None
    assert found.item() == pytest.approx(0.5 * total / len(session), rel=1e-5)
