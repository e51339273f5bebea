"""This runs one ONNX graph in onnxruntime: CPU, one thread, tensors by name."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from edge.external import check_external
from privacy.errors import InputError

THREADS = 1
KINDS = {
    "tensor(float)": np.dtype(np.float32),
    "tensor(int64)": np.dtype(np.int64),
    "tensor(int32)": np.dtype(np.int32),
}


class Graph:
    """This is a loaded graph. `inputs` maps each input's name to its shape, where a text stands for any size.

    `data`: the one file beside it that its tensors may lie in. Raises `InputError` for a graph that refers to another,
    before onnxruntime sees it, and for one that does not load.
    """

    def __init__(self, path: Path, data: Path | None = None) -> None:
        import onnxruntime as ort

        check_external(path, data)
        options = ort.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = THREADS
        options.log_severity_level = 3
        options.enable_mem_pattern = False  # from the second call on, onnxruntime 1.17 lets tensors overlap with it
        try:
            self._session = ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        except Exception as error:  # onnxruntime's errors have no common class of their own
            reason = (str(error).splitlines() or ["?"])[0]
            raise InputError(f"{path} does not load in onnxruntime {ort.__version__}: {reason}") from error
        self.path = path
        self.inputs: dict[str, list[int | str]] = {i.name: i.shape for i in self._session.get_inputs()}
        self._types = {i.name: KINDS.get(i.type) for i in self._session.get_inputs()}
        self.outputs = [o.name for o in self._session.get_outputs()]

    def run(self, feeds: Mapping[str, npt.NDArray[Any]]) -> npt.NDArray[np.float32]:
        """Return the graph's first output for these inputs; `InputError` naming an input of wrong shape or type."""
        output: npt.NDArray[np.float32] = self.run_all(feeds)[self.outputs[0]]
        return output

    def run_all(self, feeds: Mapping[str, npt.NDArray[Any]]) -> dict[str, npt.NDArray[Any]]:
        """Return all outputs by name; as `run`."""
        for name, shape in self.inputs.items():
            if name not in feeds:
                raise InputError(f"{self.path} needs input {name}, which the bundle does not have; export again")
            array = feeds[name]
            same = [want if isinstance(want, int) else got for want, got in zip(shape, array.shape, strict=False)]
            if array.ndim != len(shape) or list(array.shape) != same or array.dtype != self._types[name]:
                raise InputError(f"{self.path}: {name} is {array.dtype} {list(array.shape)} instead of {shape}")
        results = self._session.run(None, {name: feeds[name] for name in self.inputs})
        return dict(zip(self.outputs, results, strict=True))
