"""This gives scores and gradients of FedLightGCN, compiled; `program.py` has the equations and is the oracle.

Owns: sums over neighbours and candidates, there and back. Does not own: losses of scores, steps, rates, batches.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from cloud.compiled import compiled


class Graphs(NamedTuple):
    """These are the pairs of clients: places of rows, of candidates [A, P, K], of neighbours [A, P, n] where `there`.

    `rows` [A, items, d]; `own` and `others` are the shares of p_u and of the neighbours' sum in a user's vector.
    """

    rows: Any
    candidates: Any
    neighbours: Any
    there: Any
    own: Any
    others: Any


@compiled
def share_of(there: Any, others: Any) -> Any:
    """Return what each neighbour counts of those that are there: `others` over the root of their number."""
    count = np.float32(0)
    for n in range(there.shape[0]):
        count += there[n]
    return others / np.sqrt(max(count, np.float32(1)))


@compiled
def forward(graphs: Any, user: Any, users: Any, scores: Any) -> None:
    """Write the users' vectors beside each positive [A, P, d], and their scores of its candidates [A, P, K]."""
    rows = graphs.rows
    for a in range(scores.shape[0]):
        for p in range(scores.shape[1]):
            e, there = users[a, p], graphs.there[a, p]
            share = share_of(there, graphs.others)
            for k in range(e.shape[0]):
                e[k] = graphs.own * user[a, k]
            for n in range(there.shape[0]):
                if there[n] > 0:
                    row = rows[a, graphs.neighbours[a, p, n]]
                    for k in range(e.shape[0]):
                        e[k] += share * row[k]
            for c in range(scores.shape[2]):
                row, total = rows[a, graphs.candidates[a, p, c]], np.float32(0)
                for k in range(e.shape[0]):
                    total += row[k] * e[k]
                scores[a, p, c] = total


@compiled
def backward(graphs: Any, users: Any, by_score: Any, by_rows: Any, by_user: Any) -> None:
    """Add the gradient by scores [A, P, K] to those by rows [A, items, d] and by the users' own vectors [A, d]."""
    rows, by_e = graphs.rows, np.empty(users.shape[2], np.float32)
    for a in range(by_score.shape[0]):
        for p in range(by_score.shape[1]):
            e, there = users[a, p], graphs.there[a, p]
            by_e[:] = 0
            for c in range(by_score.shape[2]):
                at, given = graphs.candidates[a, p, c], by_score[a, p, c]
                for k in range(by_e.shape[0]):
                    by_e[k] += given * rows[a, at, k]
                    by_rows[a, at, k] += given * e[k]
            share = share_of(there, graphs.others)
            for k in range(by_e.shape[0]):
                by_user[a, k] += graphs.own * by_e[k]
                by_e[k] *= share
            for n in range(there.shape[0]):
                if there[n] > 0:
                    at = graphs.neighbours[a, p, n]
                    for k in range(by_e.shape[0]):
                        by_rows[a, at, k] += by_e[k]
