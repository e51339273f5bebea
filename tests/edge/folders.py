"""Damaging bundles on purpose."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file, save_file

from edge.manifest import SIGNATURE, Manifest, canonical, identify
from export.sign import signature_of
from privacy.files import sha256_of
from tests.export import worlds


def resign(bundle: Path, change: Callable[[dict[str, Any]], object] = lambda record: None) -> None:
    """Write the manifest anew, sizes and digests true, after a change: a fault that digests cannot find."""
    record = json.loads((bundle / "manifest.json").read_text())
    for entry in record["files"]:
        path = bundle / entry["path"]
        entry["size"], entry["sha256"] = path.stat().st_size, sha256_of(path)
    change(record)
    try:
        manifest = Manifest.model_validate(record)
    except ValueError:  # what the schema refuses is written as it is
        content = json.dumps(record, indent=2) + "\n"
        (bundle / "manifest.json").write_text(content)
        _sign(bundle, content.encode())
        return
    manifest = manifest.model_copy(update={"bundle_id": identify(manifest)})
    (bundle / "manifest.json").write_bytes(canonical(manifest))
    _sign(bundle, canonical(manifest))


def _sign(bundle: Path, content: bytes) -> None:
    """Sign a manifest that was signed before."""
    if (bundle / SIGNATURE).exists():
        (bundle / SIGNATURE).write_bytes(signature_of("bundle", content, worlds.KEY))


def tree(folder: Path) -> dict[str, bytes]:
    """Return the files of a folder by name."""
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def edit_json(path: Path, change: Callable[[Any], object]) -> None:
    """Change a JSON file in place."""
    record = json.loads(path.read_text())
    change(record)
    path.write_text(json.dumps(record))


def edit_tensors(path: Path, change: Callable[[dict[str, np.ndarray]], object]) -> None:
    """Change a safetensors file in place."""
    tensors = {name: array.copy() for name, array in load_file(path).items()}
    change(tensors)
    save_file(tensors, path)
