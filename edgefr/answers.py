"""Answers of the Python API say what a function found, as frames, and where it wrote it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgefr.fleet import FleetFile
from edgefr.fleet.calibration import Calibration
from edgefr.report.brief import COLUMNS, Brief
from edgefr.report.layout import Sheet

if TYPE_CHECKING:
    from pandas import DataFrame
    from rich.console import RenderableType


@dataclass(frozen=True, repr=False)
class Audit(Brief):
    """An audit says what attacks on a run found. `report`: the content of `path`, its audit.json."""

    path: Path
    report: dict[str, Any]

    @property
    def attacks(self) -> DataFrame:
        """Return a row per attack."""
        import pandas as pd

        return pd.DataFrame(self.report["attacks"])

    @property
    def eps_lb95(self) -> float | None:
        """Return what the run leaks at least, with 95 % confidence; None where no attack bounds it."""
        value: float | None = self.report["eps_lb95"]
        return value

    @property
    def verdict(self) -> str:
        """Return what it comes to in one line, the worst first."""
        return str(self.report["verdict"])

    @property
    def checks(self) -> DataFrame:
        """Return a row per check."""
        import pandas as pd

        return pd.DataFrame(self.report["checks"])

    @property
    def checks_sheet(self) -> Sheet:
        """Return the table of the checks."""
        from edgefr.report.audit import checks_sheet

        return checks_sheet(self.report)

    @property
    def sheet(self) -> Sheet:
        """Return the table of the attacks."""
        from edgefr.report.audit import audit_sheet

        return audit_sheet(self.report)

    def brief(self) -> list[RenderableType]:
        """Return the table as wide as it fits, and the file."""
        return [self.verdict, self.sheet.first(COLUMNS), f"wrote {self.path}"]


@dataclass(frozen=True, repr=False)
class Bundles(Brief):
    """These are the bundles of a run: their folder, and a row per device class."""

    path: Path
    rows: Sequence[dict[str, Any]]

    @property
    def classes(self) -> DataFrame:
        """Return a row per device class: variant, sizes, what it keeps of the simulated model, its folder as `path`."""
        import pandas as pd

        return pd.DataFrame(list(self.rows))

    @property
    def sheet(self) -> Sheet:
        """Return the table of the bundles."""
        from edgefr.report.tables import bundle_table

        return bundle_table(self.rows)

    def brief(self) -> list[RenderableType]:
        """Return the table as wide as it fits, and the folder."""
        return [self.sheet.first(COLUMNS), f"wrote {self.path}"]


@dataclass(frozen=True, repr=False)
class Measured(Brief):
    """This is what bundles cost on this machine, and the fleet they are for. `path`: the file of the calibration."""

    path: Path
    calibration: Calibration
    fleet: FleetFile

    @property
    def sheets(self) -> list[Sheet]:
        """Return the tables: what was measured, and what it says of the device classes."""
        from edgefr.report.calibration import class_table, measured_table

        return [measured_table(self.calibration), class_table(self.calibration, self.fleet)]

    @property
    def classes(self) -> DataFrame:
        """Return a row per device class, in words."""
        import pandas as pd

        return pd.DataFrame(list(self.sheets[1].rows))

    def brief(self) -> list[RenderableType]:
        """Return the tables as wide as they fit, and the file."""
        return [*(sheet.first(COLUMNS) for sheet in self.sheets), f"wrote {self.path}"]
