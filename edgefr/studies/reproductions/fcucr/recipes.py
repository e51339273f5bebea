"""The rows of FCUCR's tables are experiments."""

from __future__ import annotations

from collections.abc import Mapping

from edgefr.experiment.experiment import Experiment
from edgefr.studies.reproductions import cells
from edgefr.studies.reproductions.cells import Values
from edgefr.studies.reproductions.published import specification
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


LABELS: Mapping[str, str] = specification("fcucr")["labels"]


class FCUCRCell(cells.Cell):
    """A cell is a row by a fidelity.

    >>> FCUCRCell("xing", "fcucr-sasrec", fidelity="released", extra=(("knowledge.window", 2),)).label
    'xing_released_fcucr-sasrec_window=2'
    """

    LABELS = LABELS

    @property
    def values(self) -> Values:
        """Return what differs from the defaults of schema and method, by dotted name as for `--set`."""
        return recipe(self.row, self.fidelity) | dict(self.extra)

    def experiment(self, seed: int) -> Experiment:
        """Return the experiment to be run."""
        released = {} if self.row in BASELINES else {"fidelity": self.fidelity}  # of a baseline the stream alone is
        return self.loaded({"name": "fcucr", **released} | self.values, seed)


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
