"""The device side opens a bundle, recommends from it and learns with numpy and onnxruntime alone.

>>> import edge
>>> edge.Device.__name__
'Device'

Owns: bundles, private state, training and inference on a device, its policy, what leaves it. Does not own: torch, the
fleet, or anything of the server.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from edge.bundle import Bundle, open_bundle
    from edge.device import Device
    from edge.recommender import Recommender

_HOMES = {
    "Bundle": "edge.bundle",
    "Device": "edge.device",
    "Recommender": "edge.recommender",
    "open_bundle": "edge.bundle",
}

__all__ = ["Bundle", "Device", "Recommender", "open_bundle"]


def __getattr__(name: str) -> Any:
    """Public names are imported when they are first used: a bundle takes 25 MB that a graph alone does not."""
    if name not in _HOMES:
        raise AttributeError(f"module 'edge' has no attribute '{name}'")
    import importlib

    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
