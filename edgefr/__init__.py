"""Federated, continual, on-device recommendation is simulated on a fleet, and what ran is shipped as bundles.

>>> import edgefr
>>> edgefr.load_experiment(overrides=["rounds=3"]).rounds
3
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from edgefr.api import audit, calibrate, explain, export, map_items, reproduce, sweep, tune
    from edgefr.comparisons.compare import compare
    from edgefr.data import Dataset
    from edgefr.data import load as load_data
    from edgefr.experiment import Experiment, load_experiment
    from edgefr.fleet import FleetFile, load_fleet
    from edgefr.pipeline import resume, simulate, simulate_seeds
    from edgefr.plugins import register
    from edgefr.prices import cost_of
    from edgefr.run import Run
    from privacy.errors import InputError

    __version__: str

_HOMES = {
    "Dataset": "edgefr.data.interactions",
    "Experiment": "edgefr.experiment",
    "FleetFile": "edgefr.fleet",
    "InputError": "privacy.errors",
    "Run": "edgefr.run",
    "audit": "edgefr.api",
    "calibrate": "edgefr.api",
    "compare": "edgefr.comparisons.compare",
    "cost_of": "edgefr.prices",
    "explain": "edgefr.api",
    "export": "edgefr.api",
    "load_data": "edgefr.data",
    "load_experiment": "edgefr.experiment",
    "load_fleet": "edgefr.fleet",
    "map_items": "edgefr.api",
    "register": "edgefr.plugins",
    "reproduce": "edgefr.api",
    "resume": "edgefr.pipeline",
    "simulate": "edgefr.pipeline",
    "simulate_seeds": "edgefr.pipeline",
    "sweep": "edgefr.api",
    "tune": "edgefr.api",
}

__all__ = [
    "Dataset",
    "Experiment",
    "FleetFile",
    "InputError",
    "Run",
    "audit",
    "calibrate",
    "compare",
    "cost_of",
    "explain",
    "export",
    "load_data",
    "load_experiment",
    "load_fleet",
    "map_items",
    "register",
    "reproduce",
    "resume",
    "simulate",
    "simulate_seeds",
    "sweep",
    "tune",
]


def __getattr__(name: str) -> Any:
    """Public names are imported when they are first used, so that `import edgefr` stays light."""
    if name == "__version__":  # pyproject.toml says it, and nothing else does
        from importlib.metadata import PackageNotFoundError, version

        try:
            return version("edgefr")
        except PackageNotFoundError:  # a checkout that is not installed
            return "unknown"
    if name not in _HOMES:
        raise AttributeError(f"module 'edgefr' has no attribute '{name}'")
    import importlib

    from privacy.extras import asked_for

    try:
        home = importlib.import_module(_HOMES[name])
    except ModuleNotFoundError as error:
        raise asked_for(error) or error from error
    return getattr(home, "load" if name == "load_data" else name)


def __dir__() -> list[str]:
    return sorted(__all__)
