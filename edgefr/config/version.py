"""This tells the version of the package that is installed."""

from importlib.metadata import PackageNotFoundError, version


def installed() -> str:
    """Return the version of edgefr, as pyproject.toml says it; "unknown" in a checkout that is not installed."""
    try:
        return version("edgefr")
    except PackageNotFoundError:
        return "unknown"
