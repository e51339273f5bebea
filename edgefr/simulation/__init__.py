"""This room runs an experiment: it takes one, and makes a run's folder of it.

Owns: the loop of stages and rounds, who takes part, evaluation, the run's files, checkpoints and bundles. Does not own:
rounds (`edgefr.engine`), real devices (`edgefr.serving`), questions to many runs (`edgefr.studies`).
"""
