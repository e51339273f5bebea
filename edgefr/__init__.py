"""Federated, continual, on-device recommendation is simulated on a fleet, and what ran is shipped as bundles.

>>> import edgefr
>>> edgefr.load_experiment(overrides=["rounds=3"]).rounds
3

Owns: the public names. Does not own: what they do; each lies in a room below.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from edgefr.config.plugins import register
    from edgefr.data.datasets import load as load_data
    from edgefr.data.interactions import Dataset
    from edgefr.experiment.experiment import Experiment, load_experiment
    from edgefr.fleet import FleetFile, load_fleet
    from edgefr.fleet.prices import cost_of
    from edgefr.simulation.bundles import export
    from edgefr.simulation.calibrate import calibrate
    from edgefr.simulation.explain import explain, map_items
    from edgefr.simulation.runs.run import Run
    from edgefr.simulation.seeds import simulate_seeds
    from edgefr.simulation.simulate import resume, simulate
    from edgefr.studies.audits.audit import audit
    from edgefr.studies.comparisons.compare import compare
    from edgefr.studies.reproductions.reproduce import reproduce
    from edgefr.studies.sweeps.sweep import sweep
    from edgefr.studies.tuning.tune import tune
    from privacy.errors import InputError

    __version__: str

_HOMES = {
    "Dataset": "edgefr.data.interactions",
    "Experiment": "edgefr.experiment.experiment",
    "FleetFile": "edgefr.fleet.spec",
    "InputError": "privacy.errors",
    "Run": "edgefr.simulation.runs.run",
    "audit": "edgefr.studies.audits.audit",
    "calibrate": "edgefr.simulation.calibrate",
    "compare": "edgefr.studies.comparisons.compare",
    "cost_of": "edgefr.fleet.prices",
    "explain": "edgefr.simulation.explain",
    "export": "edgefr.simulation.bundles",
    "load_data": "edgefr.data.datasets",
    "load_experiment": "edgefr.experiment.experiment",
    "load_fleet": "edgefr.fleet.spec",
    "map_items": "edgefr.simulation.explain",
    "register": "edgefr.config.plugins",
    "reproduce": "edgefr.studies.reproductions.reproduce",
    "resume": "edgefr.simulation.simulate",
    "simulate": "edgefr.simulation.simulate",
    "simulate_seeds": "edgefr.simulation.seeds",
    "sweep": "edgefr.studies.sweeps.sweep",
    "tune": "edgefr.studies.tuning.tune",
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
        from edgefr.config.packaged_files import installed

        return installed()
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
