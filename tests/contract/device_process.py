"""One round on a device, as a program of its own: BUNDLE STATE USER ITEMS -> what it released, as JSON."""

import json
import sys

from edge.device import Device
from edge.policy import OPEN

bundle, state, user, items = sys.argv[1:]
device = Device(bundle, state, user=user, policy=OPEN)
given = [int(item) for item in items.split(",")]
moments = [2_000_000_000 + 40 * place**2 for place in range(len(given))]  # where all are one, so are their intervals
release = device.learn(given, moments)
steps = device.work["steps"]
if any(tensor.anew is not None for tensor in device.learning.tensors):
    device.personalise()  # who keeps nothing of its user between rounds makes it anew to recommend
from edge.ort import ort  # noqa: E402

print(
    json.dumps(
        {
            "update": release.update.tolist(),
            "steps": steps,
            "rows": {name: [values[0].tolist(), values[1].tolist()] for name, values in release.rows.items()},
            "best": device.recommend(5),
            "onnxruntime": ort.__version__,
            "heavy": sorted({name.split(".")[0] for name in sys.modules} & {"torch", "transformers", "onnx", "pandas"}),
        }
    )
)
