"""`calibrate`: measure what a run's bundles cost on this machine."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from edgefr.config.arguments import checked
from edgefr.config.display import COLUMNS, Brief
from edgefr.config.progress import watched
from edgefr.config.sheet import Sheet
from edgefr.fleet import FleetFile, load_fleet
from edgefr.fleet.calibration import Calibration
from edgefr.simulation.runs.run import Run
from privacy.errors import InputError
from privacy.progress import Progress

if TYPE_CHECKING:
    from pandas import DataFrame
    from rich.console import RenderableType


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


@watched()
@checked
def calibrate(
    where: Run | str | Path,
    devices: str | Path | None = None,
    *,
    out: str | Path | None = None,
    timeout_s: float = 120.0,
    progress: Progress | None = None,
) -> Measured:
    """Measure on this machine what the bundles of a run, or of a folder, cost; each in a fresh process.

    `devices`: the fleet file (default: the run's own, or devices.yaml). `out`: the file for the figures (default:
    calibration.json beside the bundles). After `timeout_s` an activity is too slow. Raises `InputError` where there are
    no bundles, for damaged ones, and a host that cannot be measured.

    Example: ``edgefr.calibrate("runs/demo").classes``
    """
    from edgefr.fleet.calibrations.measure import calibrate as measure
    from edgefr.fleet.calibrations.measure import place_of

    if not timeout_s >= 1:
        raise InputError(f"timeout_s is at least 1 second, got {timeout_s}")
    folder = where.path if isinstance(where, Run) else Path(where)
    place = place_of(folder, None if devices is None else Path(devices), None if out is None else Path(out))
    fleet = load_fleet(place.devices)
    return Measured(place.out, measure(place, fleet, progress, timeout_s), fleet)
