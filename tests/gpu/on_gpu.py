"""A plug-in that puts a command on the pretended GPU: `edgefr simulate ... --device cuda --plugin tests.gpu.on_gpu`.

It is in force in the command's main thread, and in the processes that a sweep or a search starts.
"""

from edgefr.config.plugins import MODULES
from edgefr.engine import device
from edgefr.simulation import resolve
from tests.gpu.pretended import GPU, Pretended

MODULES.append(__name__)  # a worker imports what its parent had
device.torch_device = resolve.torch_device = lambda name: GPU
Pretended().__enter__()
