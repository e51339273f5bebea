"""F3CRec keeps what clients knew of earlier blocks, on the device and at the server (CIKM 2025).

Owns: what a strategy remembers and replays. Does not own: the strategies' names and settings
(`edgefr.experiment.continual`), the server's temporal mean (`cloud.rules`).
"""
