"""FedCAR, one client after another in numpy: gradients by hand of the paper's encoder, a batch's contexts at once.

The rival of `edgefr/methods/fedcar/compiled_losses.py` for `engine.py`, as `closed_form.py` is that of other kernels.
Every layer is one product of matrices [contexts x places, d]; what several places read of a row is added up by one
sparse product. One head, normalised after each sublayer, messages that are encoders; without a context none of it.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.sparse import csc_array

from edge.sampling import Sampler
from edgefr.engine.work import LocalWork
from export.program import Phase, turns

Floats = npt.NDArray[np.floating[Any]]
Own = dict[str, Floats]
NAMES = ("position", "query", "key", "value", "wide", "wide_bias", "narrow", "narrow_bias")


class Places:
    """These are a batch's contexts [P, L] and candidates [P, K] as places among its distinct rows, kept for phases."""

    def __init__(self, context: npt.NDArray[np.int64], there: Floats, candidates: npt.NDArray[np.int64], rows: int):
        self.context, self.candidates, self.there = context, candidates, there
        self.mask = ((1 - there) * np.float32(-1e9))[..., None]
        self.some = there.any(1).astype(np.float32)[:, None, None]
        every = np.concatenate([context.ravel(), candidates.ravel()])
        shape = rows, len(every)
        self.adds = csc_array((np.ones(len(every), np.float32), every, np.arange(len(every) + 1)), shape=shape)

    def added(self, by_context: Floats, by_candidates: Floats) -> Floats:
        """Return the gradients of the distinct rows."""
        width = by_candidates.shape[-1]
        return np.asarray(self.adds @ np.concatenate([by_context.reshape(-1, width), by_candidates.reshape(-1, width)]))


def softened(logits: Floats) -> Floats:
    """Return shares of the places of each context, which are the second axis."""
    share = np.exp(logits - logits.max(1, keepdims=True))
    share /= share.sum(1, keepdims=True)
    return share


def normed(z: Floats) -> tuple[Floats, Floats]:
    """Return normalised vectors, and the factor of each."""
    z = z - z.mean(1, keepdims=True)
    scale = 1 / np.sqrt(np.einsum("ij,ij->i", z, z) / np.float32(z.shape[1]) + np.float32(1e-5))[:, None]
    z *= scale
    return z, scale


def normed_back(g: Floats, z: Floats, scale: Floats) -> Floats:
    """Return the gradient of what was normalised."""
    along = np.einsum("ij,ij->i", g, z)[:, None] / np.float32(z.shape[1])
    return scale * (g - g.mean(1, keepdims=True) - z * along)


def encode(e: Own, rows: Floats, places: Places) -> dict[str, Floats]:
    """Pass contexts through an encoder: all that its gradients need (FedCAR Eq. 10-11), matrices [P x L, d]."""
    x = rows[places.context]
    (_, length, d), root = x.shape, np.float32(1 / math.sqrt(x.shape[2]))
    z = (x + e["position"]).reshape(-1, d)
    meet = (e["query"] @ e["key"].T) * root
    asked, value = np.hsplit(z @ np.hstack([meet, e["value"]]), 2)
    cut = (-1, length, d)
    share = softened(z.reshape(cut) @ asked.reshape(cut).transpose(0, 2, 1) + places.mask)
    first, first_scale = normed(z + (share.transpose(0, 2, 1) @ value.reshape(cut)).reshape(-1, d))
    inner = np.maximum(first @ e["wide"] + e["wide_bias"], 0)
    hidden, hidden_scale = normed(first + inner @ e["narrow"] + e["narrow_bias"])
    return {
        "z": z, "meet": meet, "asked": asked, "value": value, "share": share, "first": first, "inner": inner,
        "first_scale": first_scale, "hidden": hidden, "hidden_scale": hidden_scale,
    }  # fmt: skip


def back(e: Own, made: dict[str, Floats], g: Floats, length: int) -> tuple[Own, Floats]:
    """Return the gradients of an encoder's tensors and of its contexts' rows from that of `hidden` [P x L, d]."""
    d = g.shape[1]
    cut, root = (-1, length, d), np.float32(1 / math.sqrt(d))
    g = normed_back(g, made["hidden"], made["hidden_scale"])
    out = {"narrow_bias": g.sum(0), "narrow": made["inner"].T @ g}
    inside = (g @ e["narrow"].T) * (made["inner"] > 0)
    out |= {"wide_bias": inside.sum(0), "wide": made["first"].T @ inside}
    g = normed_back(g + inside @ e["wide"].T, made["first"], made["first_scale"])
    share, some = made["share"], g.reshape(cut)
    by_value = (share @ some).reshape(-1, d)
    by_share = made["value"].reshape(cut) @ some.transpose(0, 2, 1)
    logits = share * (by_share - (share * by_share).sum(1, keepdims=True))
    by_asked = (logits.transpose(0, 2, 1) @ made["z"].reshape(cut)).reshape(-1, d)
    both = made["z"].T @ np.hstack([by_asked, by_value])
    by_meet, out["value"] = both[:, :d] * root, both[:, d:]
    out |= {"query": by_meet @ e["key"], "key": by_meet.T @ e["query"]}
    by_z = g + (logits @ made["asked"].reshape(cut)).reshape(-1, d)
    by_z += np.hstack([by_asked, by_value]) @ np.hstack([made["meet"], e["value"]]).T
    out["position"] = by_z.reshape(cut).sum(0)
    return out, by_z


def attend(hidden: Floats, query: Floats, places: Places) -> Floats:
    """Return each place's share for a candidate, [P, L, K] (FedCAR Eq. 12-13)."""
    keys = hidden.reshape(*places.context.shape, -1)
    root = np.float32(1 / math.sqrt(query.shape[2]))
    return softened((keys @ query.transpose(0, 2, 1)) * root + places.mask) * places.some


def recommend(e: Own, own: Own, rows: Floats, places: Places) -> tuple[Own, Own, Floats]:
    """Return the gradients of encoder, scorer and rows (FedCAR Eq. 14-15)."""
    query, weight, bias = rows[places.candidates], own["scorer.weight"], own["scorer.bias"]
    (pairs, many, d), length = query.shape, places.context.shape[1]
    of_context, of_query = weight[:-d], weight[-d:]
    scores, made, share = query @ of_query + bias, {}, query
    if length:
        made = encode(e, rows, places)
        share, worth = attend(made["hidden"], query, places), (made["hidden"] @ of_context).reshape(-1, length, 1)
        scores += (share * worth).sum(1)
    g = 1 / (1 + np.exp(-scores))
    g[:, 0] -= 1
    g /= np.float32(pairs * many)
    by_scorer, by_query = g.ravel() @ query.reshape(-1, d), np.multiply.outer(g, of_query)
    by_e, by_context = {}, query[:, :0]
    if length:
        hidden, slopes = made["hidden"].reshape(-1, length, d), g[:, None]
        by_share, by_worth = slopes * worth, (slopes * share).sum(2)
        logits = share * (by_share - (share * by_share).sum(1, keepdims=True)) * np.float32(1 / math.sqrt(d))
        by_query += logits.transpose(0, 2, 1) @ hidden
        by_hidden = np.multiply.outer(by_worth, of_context) + logits @ query
        by_e, by_context = back(e, made, by_hidden.reshape(-1, d), length)
        by_scorer = np.concatenate([by_worth.ravel() @ made["hidden"], by_scorer])
    by_rows = places.added(by_context, by_query)
    return by_e, {"scorer.weight": by_scorer, "scorer.bias": g.sum(keepdims=True).ravel()}, by_rows


def contrast(e: Own, before: Own, other: Own, rows: Floats, places: Places, margin: np.float32) -> Own:
    """Return the gradients of the encoder (FedCAR Eq. 16-20)."""
    query = rows[places.candidates]
    (pairs, many, d), length = query.shape, places.context.shape[1]

    def seen(hidden: Floats, share: Floats) -> Floats:
        return share.transpose(0, 2, 1) @ hidden.reshape(-1, length, d)

    near, far = (
        seen(h, attend(h, query, places)) for h in (encode(t, rows, places)["hidden"] for t in (before, other))
    )
    made = encode(e, rows, places)
    share = attend(made["hidden"], query, places)
    now = seen(made["hidden"], share)
    one, two = now - near, now - far
    gap = np.einsum("pkd,pkd->pk", one, one) - np.einsum("pkd,pkd->pk", two, two) + margin
    by_seen = (far - near) * ((gap > 0) * np.float32(2 / (pairs * many)))[..., None]
    by_share = made["hidden"].reshape(-1, length, d) @ by_seen.transpose(0, 2, 1)
    logits = share * (by_share - (share * by_share).sum(1, keepdims=True)) * np.float32(1 / math.sqrt(d))
    by_e, _ = back(e, made, (share @ by_seen + logits @ query).reshape(-1, d), length)
    return by_e


def fedcar(work: LocalWork, shared: dict[str, Any], private: dict[str, Any], clients: npt.NDArray[np.int64]) -> Any:
    """Return the sum of the clients' changes of rows, the norm of each with its encoder's, and their own tensors."""
    sampler, first = work.sampler, work.phases[0]
    assert isinstance(sampler, Sampler)
    drawn = sampler.epoch(clients, first.purpose, work.round, 0, which=first.which)
    group, table = drawn.group, shared["item"].numpy()
    start = {name: shared["encoder." + name].numpy() for name in NAMES if "encoder." + name in shared}
    sums, norms, left = np.zeros(table.shape), np.zeros(len(clients)), []
    of_encoder = {name: np.zeros(value.shape) for name, value in start.items()}
    everything = {name: value.numpy() for name, value in private.items()}
    number, at = np.zeros(len(table), np.int64), 0
    for slot, count in enumerate((drawn.counts // group).tolist()):
        some = slice(at, at + count)
        items = drawn.items.reshape(-1, group)[some]
        context = drawn.context[some] if drawn.context is not None else items[:, :0]
        there = context >= 0
        context = np.where(there, context, items[:, :1])
        every = np.concatenate([items.ravel(), context.ravel()])
        number[every] = np.arange(len(every))
        touched = every[number[every] == np.arange(len(every))]
        number[touched] = np.arange(len(touched))
        own, e = {name: value[slot] for name, value in everything.items()}, dict(start)
        rows = table[touched]
        paired = number[context], there.astype(np.float32), number[items]
        _trained(work, paired, rows, own, e, sampler.batch_size // group)
        change = rows - table[touched]
        moved = {name: e[name] - start[name] for name in start}
        norms[slot] = math.sqrt(sum(np.vdot(v, v) for v in (change.astype(np.float64), *moved.values())))
        sums[touched] += change
        for name, value in moved.items():
            of_encoder[name] += value
        kept = {name: own[name] for name in own if name.startswith("scorer.")}
        if len(work.phases) > 1:
            kept |= {"previous." + name: value for name, value in e.items()} | {
                "previous.known": np.ones(1, np.float32)
            }
        left.append(kept)
        at += count
    return sums, norms, left


def _trained(work: LocalWork, paired: Any, rows: Floats, own: Own, e: Own, size: int) -> None:
    """Take a client's steps in place: each phase on each batch, or in turn."""
    margin = np.float32(work.program.settings.margin)
    before, other = ({}, {}) if len(work.phases) == 1 else _others(own, e)
    starts = range(0, len(paired[0]), size)
    every = []
    for begin in starts:
        context, there, items = (part[begin : begin + size] for part in paired)
        where, place = np.unique(np.concatenate([context.ravel(), items.ravel()]), return_inverse=True)
        cut = context.size
        every.append(
            (where, Places(place[:cut].reshape(context.shape), there, place[cut:].reshape(items.shape), len(where)))
        )
    for phase, (where, places) in ((p, step) for turn in turns(work.phases) for step in every for p in turn):
        now = rows[where]
        if phase.name == "contrast":
            if other:
                _move(e, contrast(e, before, other, now, places, margin), phase, "encoder.")
            continue
        by_e, by_own, by_rows = recommend(e, own, now, places)
        rows[where] = now - np.float32(phase.lr["item"]) * by_rows
        _move(e, by_e, phase, "encoder.")
        _move(own, by_own, phase, "")


def _others(own: Own, e: Own) -> tuple[Own, Own]:
    """Return the encoder that a client trained last, and the one of its message: nothing where there is one alone."""
    message = own["message"]
    if not own["previous.known"][0] or not message.any():
        return {}, {}
    parts = np.split(message, np.cumsum([value.size for value in e.values()])[:-1])
    other = {name: part.reshape(e[name].shape) for name, part in zip(e, parts, strict=True)}
    return {name: own["previous." + name] for name in e}, other


def _move(values: Own, slopes: Own, phase: Phase, prefix: str) -> None:
    for name, slope in slopes.items():
        values[name] = values[name] - np.float32(phase.lr[prefix + name]) * slope
