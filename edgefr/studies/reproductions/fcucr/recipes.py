"""The rows of FCUCR's tables are experiments.

Owns: which values an experiment has, and the name that tells runs apart. Does not own: the schema (edgefr.experiment),
what methods start from (edgefr.methods).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from edgefr.experiment.experiment import Experiment, load_experiment
from edgefr.studies.reproductions import cells
from edgefr.studies.reproductions.cells import Values, as_yaml, label_parts
from privacy.errors import unknown

BACKBONES = ("gru4rec", "sasrec", "tisasrec")
SETS = ("pfedrec", "fedrap", "gpfedrec")
SESSION_BASED = ("dmi-gnn", "hearint", "miasrec")
BASELINES = (*SETS, *SESSION_BASED)

STREAMS = {"released": "cyclic", "paper": "one-pass"}
"""What a fidelity's stream is unless the request says otherwise."""

_BASELINE: Values = {"protocol.name": "sessions", "rounds": 40, "local_epochs": 4, "evaluation.k": [10]}  # A.1
_MAIN: Values = {"method": "fcucr", "backbone": "sasrec"}

ROWS: dict[str, Values] = {
    "pfedrec": {"method": "pfedrec", **_BASELINE},
    "fedrap": {"method": "fedrap", **_BASELINE, "local_epochs": 1},  # by validation of seed 0: four are too many
    "gpfedrec": {"method": "gpfedrec", **_BASELINE, "local_epochs": 1},
    **{name: {"method": name} for name in (*SESSION_BASED, *BACKBONES)},
    "dmi-gnn": {"method": "dmi-gnn", "model.lr": 0.0855, "model.temperature": 0.919, "model.regular": 0.42},
    "hearint": {"method": "hearint", "model.lr": 0.0907, "model.temperature": 0.0637, "model.contrast": 0.0987},
    "miasrec": {"method": "miasrec", "model.lr": 0.0907, "model.temperature": 0.0637, "model.most": 0.432},
    **{f"fcucr-{name}": {"method": "fcucr", "backbone": name} for name in BACKBONES},
    "no-tasd": {**_MAIN, "model.teacher": "none"},
    "no-iupr": {**_MAIN, "model.prototypes": "none"},
    "no-both": {**_MAIN, "model.teacher": "none", "model.prototypes": "none"},
    "history": {**_MAIN, "sessions.history_bonus": 1000.0, "sessions.popularity_weight": 10.0},
}
"""What a row asks for, as for `--set`. `no-both` keeps the personal MLP alone; `history` is ours, not the paper's;
session-based methods were searched on validation sessions (experiments/fcucr/recipes)."""

FIRST_SESSION = (*SESSION_BASED, "gru4rec", "sasrec", "tisasrec", "fcucr-sasrec")
"""Rows whose first sessions are measured again after every round (Figure 2a)."""


@dataclass(frozen=True)
class Cell(cells.Cell):
    """A cell is one experiment without its seed. `extra`: values that differ from the row's.

    >>> Cell("xing", "fcucr-sasrec", "released", (("knowledge.window", 2),)).label
    'xing_released_fcucr-sasrec_window=2'
    """

    data: str
    row: str
    fidelity: str
    extra: tuple[tuple[str, Any], ...] = field(default=(), hash=False)  # a value may be a list

    @property
    def part(self) -> cells.Part:
        """Return the row."""
        from edgefr.studies.reproductions.fcucr.results import LABELS

        return cells.Part(self.row, LABELS.get(self.row, self.row))

    @property
    def values(self) -> Values:
        """Return what differs from the defaults of schema and method, by dotted name as for `--set`."""
        return recipe(self.row, self.fidelity) | dict(self.extra)

    @property
    def label(self) -> str:
        """Name data set, fidelity, row and what differs from the row."""
        return "_".join([self.data, self.fidelity, self.row, *label_parts(self.extra)])

    def experiment(self, seed: int) -> Experiment:
        """Return the experiment to be run."""
        released = {} if self.row in BASELINES else {"fidelity": self.fidelity}  # of a baseline the stream alone is
        named = {"name": "fcucr", **released} | self.values
        return load_experiment(overrides=[f"{k}={as_yaml(v)}" for k, v in named.items()], data=self.data, seed=seed)


@dataclass(frozen=True)
class Ask(cells.Ask):
    """This is what is asked for, and the cells under this request.

    `stream`: one-pass or cyclic; None: that of the fidelity.
    """

    stream: str | None = None

    def cell(self, data: str, row: str, extra: Mapping[str, Any] | None = None) -> Cell:
        """Make a cell under this request; the request's own values go over `extra`.

        What the row says anyway is left out, so that tables share the run.

        >>> Ask("released", [0], {"rounds": 3}, stream="cyclic").cell("xing", "sasrec").extra
        (('rounds', 3),)
        """
        known = recipe(row, self.fidelity)
        asked = {**(extra or {}), **({} if self.stream is None else {"protocol.stream": self.stream}), **self.extra}
        changed = {key: value for key, value in asked.items() if key not in known or known[key] != value}
        return Cell(data, row, self.fidelity, tuple(sorted(changed.items())))

    def cells(self, data: str, rows: Sequence[str]) -> dict[str, Cell]:
        """Return several rows, by name."""
        return {row: self.cell(data, row) for row in rows}


def recipe(row: str, fidelity: str) -> Values:
    """Return the values of a row. Raises `InputError` for a row that does not exist.

    The paper stops after 5 rounds without a better validation (A.1) and weights clients by their data (Alg. 1); the
    released code does neither.

    >>> recipe("no-tasd", "released")["model.teacher"], recipe("sasrec", "paper")["aggregation.weights"]
    ('none', 'size')
    """
    if row not in ROWS:
        raise unknown("row of FCUCR's tables", row, ROWS)
    values = {**ROWS[row], "protocol.stream": STREAMS[fidelity]}
    if row in FIRST_SESSION:
        values["sessions.first_session"] = True
    elif row in SETS and fidelity == "released":
        values["evaluation.every"] = 4  # rows of a client's own take long to score, and 40 rounds are many
    if fidelity == "paper":
        values["sessions.patience"] = 5
        if row not in BASELINES:
            values["aggregation.weights"] = "size"
    return values
