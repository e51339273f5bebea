"""A run is a folder: what was asked, what happened, what came out.

Owns: its files, checkpoints, saved model and lineage. Does not own: what is measured, or pages (`edgefr.report`).
"""
