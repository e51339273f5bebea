"""These functions pick what a table takes from the summary of a finished run."""

from __future__ import annotations

import math

import numpy as np

from edgefr.studies.reproductions.cells import Pick, Summary

LABELS = {
    "ft": "FT",
    "reg": "Reg",
    "kd": "KD",
    "rlp2": "RLP2",
    "spp": "SPP",
    "f3crec": "F3CRec",
    "f3crec-no-client": "w/o c.c",
    "f3crec-no-adaptive": "w/o a.r.m",
    "f3crec-no-server": "w/o s.c",
    "f3crec-no-itemwise": "w/o i.t.m",
    "fedmf": "FedMF",
    "fedncf": "FedNCF",
    "pfedrec": "PFedRec",
}
"""Names of strategies and backbones as the paper prints them."""


def average(metric: str) -> Pick:
    """Pick the mean over the increments D1 to D3 under the mask of the released code."""
    return lambda summary: summary["metrics"][metric]


def average_history(metric: str) -> Pick:
    """The same with everything masked that the user has had in earlier blocks."""
    return lambda summary: summary["metrics_history_masked"][metric]


def kept(name: str, mask: str) -> Pick:
    """Pick LA, RA or forgetting of NDCG@20 over all blocks, D0 included (`edgefr.metrics.continual`)."""
    return lambda summary: summary["continual"][mask][name]


def on_block(number: int, metric: str) -> Pick:
    """Pick a metric right after block D<number>, on its test items."""
    return lambda summary: summary["blocks"][number]["metrics"][metric]


def average_group(group: str, metric: str) -> Pick:
    """`known_users` or `new_users` alone: the mean over the increments where there are any."""

    def pick(summary: Summary) -> float:
        values = [block[group].get(metric) for block in summary["blocks"][1:]]
        known = [value for value in values if value is not None and not math.isnan(value)]
        return float(np.mean(known)) if known else math.nan

    return pick


def reference(name: str, metric: str, mask: str, block: int | None = None) -> Pick:
    """Pick what a reference without learning reaches: on one block, or the mean over the increments."""
    if block is None:
        return lambda summary: summary["references"][name][mask][metric]
    return lambda summary: summary["blocks"][block]["references"][name][mask][metric]
