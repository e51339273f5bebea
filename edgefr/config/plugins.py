"""This module holds how other people's entries come into the tables: methods, metrics, mechanisms, rules, readers.

    edgefr.register(entry)                        in a module or a notebook: the entry is in the table of its kind
    edgefr simulate --plugin my_method.py ...     the command line imports the module, which registers its entries
    [project.entry-points."edgefr.methods"]       an installed package says where its entries are, and that is all

A plug-in is code, so a file never names one: a run's experiment holds names of entries alone, and whoever goes on with
it, exports it or audits it brings the plug-in again. Owns: which table an entry goes to, importing what was asked for.
Does not own: the tables.
"""

from __future__ import annotations

import importlib
import os
import sys
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

from privacy.errors import InputError
from privacy.table import Named

TABLES = (
    "edgefr.experiment.method:METHODS",
    "edgefr.experiment.continual:STRATEGIES",
    "edgefr.data.protocol:PROTOCOLS",
    "edgefr.metrics.cutoffs:METRICS",
    "edgefr.data.datasets:READERS",
    "edgefr.data.files.formats:FORMATS",
    "privacy.mechanism:MECHANISMS",
    "cloud.rule:RULES",
    "cloud.optimisers:OPTIMISERS",
    "cloud.similarities:SIMILARITIES",
    "edgefr.fleet.policies:POLICIES",
    "edgefr.experiment.text_encoder:ENCODERS",
    "edgefr.methods.fcucr.parts:ENCODERS",
    "edgefr.methods.fcucr.parts:LOSSES",
    "edgefr.methods.fcucr.parts:TEACHERS",
    "edgefr.methods.fcucr.parts:DISTILL_WEIGHTS",
    "edgefr.methods.fcucr.parts:PROTOTYPE_FORMS",
    "edgefr.methods.fedcar.parts:NORMS",
    "edgefr.methods.fedcar.parts:NEGATIVES",
    "edgefr.methods.transfr.parts:CLIENTS",
    "edgefr.methods.transfr.parts:ADAPTER_INITS",
    "edgefr.methods.transfr.parts:HEADS",
    "edgefr.methods.objectives:OBJECTIVES",
    "edgefr.data.splits.session_order:STREAMS",
    "edgefr.data.splits.session_order:NEGATIVES",
    "cloud.distillation:STARTS",
    "cloud.fusion:FUSIONS",
    "cloud.pooling:POOLINGS",
    "cloud.index:INDEXES",
    "cloud.distillation:TERMS",
    "edgefr.config.executors:BACKENDS",
    "edgefr.config.attackers:ATTACKS",
    "edgefr.simulation.tracking.tracker:TRACKERS",
)
"""Where the tables are that others may add to; those of a group are filled from its entry points too."""


MODULES: list[str] = []
"""The modules that registered something, in their order: what a worker process has to import to know as much."""


def register(entry: Named) -> Any:
    """Add an entry to the table of its kind and hand it back: a method, metric, mechanism, rule, reader, policy, ...

    Raises `InputError` for what no table holds, for an entry that is not whole, and for a name that is taken.

    Example: ``edgefr.register(Metric("Hits", lambda found: found.hits.astype(float)))``
    """
    for place in TABLES:
        table = resolve_name(place)
        if isinstance(entry, table.kind):
            try:
                table.register(entry)
            except (TypeError, ValueError) as error:
                raise InputError(f"cannot register {entry!r:.60}: {error}") from error
            caller = str(sys._getframe(1).f_globals.get("__name__"))
            if caller not in ("__main__", *MODULES):  # a worker runs the main module anew by itself
                MODULES.append(caller)
            return entry
    kinds = ", ".join(sorted({resolve_name(place).kind.__name__ for place in TABLES}))
    raise InputError(f"no table holds a {type(entry).__name__}; what can be registered is one of {kinds}")


def check_installed() -> None:
    """Raise `InputError` for an installed package whose entries cannot be had, before any work is done."""
    for place in TABLES:
        len(resolve_name(place))


def load(plugin: str) -> None:
    """Import a module of one's own by its name or its file; its entries register themselves.

    A name is looked for in the working folder too. Worker processes find the module where this one did. Raises
    `InputError` where it cannot be imported.
    """
    path = Path(plugin)
    if path.suffix == ".py" and not path.is_file():
        raise InputError(f"--plugin {plugin}: there is no such file")
    folder, name = (path.resolve().parent, path.stem) if path.suffix == ".py" else (Path.cwd(), plugin)
    if str(folder) not in sys.path:
        sys.path.append(str(folder))
    try:
        module = importlib.import_module(name)
    except InputError as error:
        raise InputError(f"--plugin {plugin}: {error}") from error
    except Exception as error:
        raise InputError(f"--plugin {plugin} cannot be imported: {type(error).__name__}: {error}") from error
    found = getattr(module, "__file__", None)
    if path.suffix == ".py" and (found is None or not os.path.samefile(found, path)):
        raise InputError(f"--plugin {plugin}: Python finds another module '{name}' first ({found}); rename the file")
