"""Which variants of methods are tested with every commit; all others take turns with what is slow.

One of each paper's method and of each kind of program: a table of items, whole gradients in closed form, an encoder's
vectors, LoRA, several heads, sessions.
"""

import pytest

VARIANTS = ("fedmf", "fcf", "transfr mean", "transfr lora", "fedcar", "fcucr", "sasrec, full softmax")

in_turns = pytest.mark.turns(*VARIANTS)
