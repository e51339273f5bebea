"""The papers whose tables and figures are run again are entries of one table."""

from __future__ import annotations

from edgefr.studies.reproductions.exhibits import Paper
from edgefr.studies.reproductions.f3crec.tables import F3CREC
from edgefr.studies.reproductions.fcucr.tables import FCUCR
from edgefr.studies.reproductions.fedcar.tables import FEDCAR
from edgefr.studies.reproductions.leaderboard.tables import LEADERBOARD
from edgefr.studies.reproductions.transfr.tables import TRANSFR
from privacy.table import Table

PAPERS: Table[Paper] = Table("paper", Paper)
for _paper in (F3CREC, FCUCR, FEDCAR, TRANSFR, LEADERBOARD):
    PAPERS.register(_paper)
