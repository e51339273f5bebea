"""Fed-SASRec reads everything that a client has as one sequence.

Owns: its program and settings. Does not own: the encoder's layers (`edgefr.methods.fcucr.layers`).
"""
