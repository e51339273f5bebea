"""Where the public archives are, for tests that need them."""

import os
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def archives() -> Path:
    """The folder of the public archives; tests that ask for it are skipped where there is none."""
    folder = Path(os.environ.get("EDGEFR_DATA") or Path(__file__).resolve().parents[3] / "shared" / "data")
    if not (folder / "ml-100k.zip").is_file():
        pytest.skip(f"the public archives are not in {folder}; name their folder by EDGEFR_DATA")
    return folder
