"""An experiment in, a run's folder out.

Owns: the loop of stages and rounds, who takes part, evaluation, the run's files, checkpoints and bundles. Does not own:
rounds (`edgefr.engine`), real devices (`edgefr.serving`), questions to many runs (`edgefr.studies`).
"""
