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

ROWS: Mapping[str, Values] = {name: row["set"] for name, row in specification("fcucr")["rows"].items()}
"""What a row asks for, as for `--set`."""
LABELS: Mapping[str, str] = {name: row["label"] for name, row in specification("fcucr")["rows"].items()}

FIRST_SESSION = (*SESSION_BASED, "gru4rec", "sasrec", "tisasrec", "fcucr-sasrec")
"""Rows whose first sessions are measured again after every round (Figure 2a)."""


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
