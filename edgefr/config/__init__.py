"""This room reads what people write: YAML with line numbers, one-line errors, checked arguments, plug-ins.

Owns: reading and refusing settings, the extras' packaged files, progress, and what a shell shows of a value. Does not
own: what any setting means.
"""
