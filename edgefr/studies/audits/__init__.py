"""Audits: attacks on what really leaves a device, by playing one more round of a finished run through its own code.

Owns: attackers and what they see. Does not own: the statistics of guessing (`privacy.audits`), training, release and
noise (`edgefr.engine`).
"""
