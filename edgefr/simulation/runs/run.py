"""A run is its folder with what can be asked of it: recommendations, and what a shell shows of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.text import Text

from edgefr.config.arguments import checked
from edgefr.report.screen import first_screen
from edgefr.report.tables import seed_tables
from edgefr.simulation.runs.folder import RunFolder
from edgefr.simulation.runs.privacy_spent import told
from privacy.errors import InputError

if TYPE_CHECKING:
    from pandas import DataFrame
    from rich.console import RenderableType


class Run(RunFolder):
    """This is one run: its folder's files as tables, and recommendations by its model."""

    @checked
    def recommend(self, user: str | int | None = None, k: int = 10) -> DataFrame:
        """Return the k best items for a user, best first, with columns `item`, `title`, `score` and `basis`.

        By the bundle of the user's device, and without bundles by the saved model. `user`: an id, also as a number;
        None is a new device. `basis`: model (the user's own scores), or without history popular or mean
        (docs/concepts/bundles.md), which have no scores.
        Raises `InputError` for an unknown user, k below 1, and where there is no ranking yet, or nothing left of it.

        Example: ``edgefr.Run.open("runs/demo").recommend("u0000003", k=5)``
        """
        import pandas as pd

        from edgefr.simulation.runs.recommend import recommend

        if k < 1:
            raise InputError(f"k is a whole number of at least 1, got {k}")
        found = recommend(self, None if user is None else str(user), k)
        return pd.DataFrame(found, columns=["item", "title", "score"]).assign(basis=found.basis)

    def brief(self) -> Sequence[RenderableType]:
        """Return what a shell or a notebook shows of the run: its first screen, or what it lacks if it did not end."""
        place = Text(f"run: {self.path}", no_wrap=True)
        if not (self.path / "summary.json").is_file():
            begun = (self.path / "experiment.yaml").is_file()
            mend = "edgefr.resume goes on with it" if begun else "nothing is in it yet"
            return [f"a run without a summary: {mend}", place]
        try:
            summary = told(self)
            if "verdicts" not in summary:
                return [*seed_tables(summary)[:1], place]
            return first_screen(summary, self.path)
        except (LookupError, TypeError, AttributeError, ValueError):  # what is not of a summary's form
            return ["a run whose summary cannot be read; run the experiment again", place]
