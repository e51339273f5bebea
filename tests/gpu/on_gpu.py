"""A plug-in that puts a command on the pretended GPU: `edgefr simulate ... --device cuda --plugin tests.gpu.on_gpu`.

It is in force in the command's main thread, and in the processes that a sweep or a search starts.
"""

from edgefr.config.plugins import MODULES
from edgefr.simulation import simulate as pipeline
from tests.gpu.pretended import GPU, Pretended

MODULES.append(__name__)  # a worker imports what its parent had
pipeline.torch_device = lambda name: GPU
Pretended().__enter__()
