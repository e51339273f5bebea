"""A run is a schedule of stages over tasks; each protocol has its kind of stage.

Owns: when a stage's rounds end, which model it keeps, what happens at its end. Does not own: the loop.
"""
