"""Public data sets, a reader each, and the built-in generator.

Owns: which files an archive has and what their columns mean. Does not own: people's own files (`edgefr.data.files`).
"""
