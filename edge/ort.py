"""This is the one module that imports onnxruntime: its telemetry is switched off before the library loads.

From version 1.32 on, a process that loads a graph keeps a device id and a queue of events under the user's cache
folder, and sends the queue to the vendor. Events carry error texts, and those of a graph that sees private data are
private.

>>> from edge.ort import ort
>>> ort.get_available_providers()[-1]
'CPUExecutionProvider'
"""

import os

os.environ["ORT_DISABLE_TELEMETRY"] = "1"  # the library reads it once, while it loads

import onnxruntime as ort  # noqa: TID251

ort.disable_telemetry_events()

__all__ = ["ort"]
