"""Text encoders, an entry each: how a run reads items' texts, and what its bundles carry for it.

Owns: distilled students, words and tables of words in a run. Does not own: training them (`cloud`), reading on a device
(`edge`).
"""
