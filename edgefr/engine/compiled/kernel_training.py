"""A client takes its steps: scores, their derivatives by the loss, and plain SGD on what a phase trains.

score(u, i) = w_u · q_i + v_u · p_u + b_u        (`export.program.ScoreForm` says which tensors these are)
"""

from __future__ import annotations

from typing import Any

import numpy as np

from cloud.compiled import compiled
from cloud.compiled.lanes import dot

F = np.float32
CROSS_ENTROPY, OF_PROBABILITIES, BPR, SOFTMAX, OF_PAIRS = range(5)


@compiled
def _exp(x: Any) -> Any:
    """Return e^x, of arithmetic alone: the machine's own differs from machine to machine (Cephes, expf)."""
    y = F(87) if x > F(87) else (F(-87) if x < F(-87) else x)  # what is no number stays none
    k = (y * F(1.44269504) + F(12582912)) - F(12582912)
    y = (y - k * F(0.693359375)) + k * F(2.12194440e-4)
    p = F(1.9875691500e-4)
    p = p * y + F(1.3981999507e-3)
    p = p * y + F(8.3334519073e-3)
    p = p * y + F(4.1665795894e-2)
    p = p * y + F(1.6666665459e-1)
    p = p * y + F(5.0000001201e-1)
    return (p * y * y + y + F(1)) * np.int32((np.int32(k) + np.int32(127)) << np.int32(23)).view(F)


@compiled
def judge(begin: int, n: int, first: int, pairs: int, group: int, loss: int, temperature: Any, room: Any) -> None:
    """Put the loss's derivative by each score of a step in the score's place; `n` entries from `begin`."""
    score, weight, target = room.score, room.weight, room.target
    if loss == CROSS_ENTROPY:
        for m in range(n):
            score[m] = weight[begin + m] / (F(1) + _exp(-score[m])) - target[begin + m]
        return
    if loss == OF_PROBABILITIES:
        for m in range(n):
            p = F(1) / (F(1) + _exp(-score[m]))
            slope = p * (F(1) - p)
            unsaturated = slope / (F(1e-12) if slope < F(1e-12) else slope)
            score[m] = (weight[begin + m] * p - target[begin + m]) * unsaturated
        return
    raw, pair, share = room.raw, room.pair, F(1) / (temperature * F(pairs))
    for m in range(n):
        raw[m], score[m] = score[m] / temperature, F(0)
    for g in range(first, first + pairs):
        at = g * group
        if loss == BPR:
            for x in range(1, group):
                pull = share / F(group - 1) / (F(1) + _exp(raw[pair[at]] - raw[pair[at + x]]))
                score[pair[at + x]] += pull
                score[pair[at]] -= pull
        elif loss == OF_PAIRS:
            for x in range(group):
                score[pair[at + x]] += share / F(group) / (F(1) + _exp(-raw[pair[at + x]]))
            score[pair[at]] -= share / F(group)
        else:
            top, total = raw[pair[at]], F(0)
            for x in range(1, group):
                top = raw[pair[at + x]] if raw[pair[at + x]] > top else top
            for x in range(group):
                total += _exp(raw[pair[at + x]] - top)
            for x in range(group):
                score[pair[at + x]] += share * _exp(raw[pair[at + x]] - top) / total
            score[pair[at]] -= share


@compiled
def _scores(c: int, begin: int, n: int, tensors: Any, w: Any, room: Any) -> None:
    """Lay a step's rows out as they are now, and compute their scores."""
    beside, d = tensors.beside.shape[1], w.shape[0]
    constant = F(0)
    for k in range(beside):
        constant += tensors.weight[c, k] * tensors.beside[c, k]
    for k in range(tensors.bias.shape[1]):
        constant += tensors.bias[c, k]
    for m in range(n):
        r = room.row[begin + m]
        i = room.item[r]
        if room.moved[r]:
            for k in range(d):
                room.now[m, k] = tensors.rows[i, k] + room.change[r, k]
        else:
            for k in range(d):
                room.now[m, k] = tensors.rows[i, k]
        room.score[m] = dot(room.now, m, w, d) + constant


@compiled
def _step(c: int, begin: int, n: int, tensors: Any, trains: Any, rates: Any, w: Any, by_w: Any, room: Any) -> None:
    """Move what a phase trains by the derivatives of a step's scores: plain SGD."""
    beside, d = tensors.beside.shape[1], w.shape[0]
    score = room.score
    if trains[0]:
        for m in range(n):
            r, by = room.row[begin + m], -rates[0] * score[m]
            if room.moved[r]:
                for k in range(d):
                    room.change[r, k] += by * w[k]
            else:
                room.moved[r] = True
                for k in range(d):
                    room.change[r, k] = by * w[k]
    total = F(0)
    for m in range(n):
        total += score[m]
    if trains[1]:
        for k in range(d):
            by_w[k] = 0
        for m in range(n):
            for k in range(d):
                by_w[k] += score[m] * room.now[m, k]
        for k in range(d):
            tensors.weight[c, beside + k] -= rates[1] * by_w[k]
    for k in range(beside):
        v, p = tensors.weight[c, k], tensors.beside[c, k]
        if trains[1]:
            tensors.weight[c, k] = v - rates[1] * (total * p)
        if trains[2]:
            tensors.beside[c, k] = p - rates[2] * (total * v)
    if trains[3]:
        tensors.bias[c, 0] -= rates[3] * total


@compiled
def train(c: int, steps: int, draws: Any, groups: int, phases: Any, tensors: Any, w: Any, by_w: Any, room: Any) -> None:
    """Take all steps of a client's phases, those that take turns one by one."""
    epochs, beside = draws.orders.shape[0], tensors.beside.shape[1]
    each = steps // epochs
    for t in range(phases.turns.shape[0] - 1):
        for s in range(phases.epochs[phases.turns[t]] * each):
            begin = room.bounds[s]
            n = room.bounds[s + 1] - begin
            start = s % each * draws.batch
            first, pairs = s // each * groups + start, min(draws.batch, groups - start)
            for p in range(phases.turns[t], phases.turns[t + 1]):
                for k in range(w.shape[0]):
                    w[k] = tensors.weight[c, beside + k]
                _scores(c, begin, n, tensors, w, room)
                judge(begin, n, first, pairs, draws.groups, phases.loss, phases.temperature, room)
                _step(c, begin, n, tensors, phases.trains[p], phases.rates[p], w, by_w, room)
