"""RetailRocket's visits as its Kaggle archive has them: `events.csv`, clock times in milliseconds."""

from __future__ import annotations

from pathlib import Path

from edgefr.data.interactions import Dataset
from edgefr.data.readers.archive import Public, open_archive
from edgefr.data.readers.events import MILLISECONDS, Layout, read_events
from privacy.progress import Progress

RETAILROCKET = Public("https://www.kaggle.com/datasets/retailrocket/ecommerce-dataset", "CC BY-NC-SA 4.0")

_LAYOUT = Layout(
    "visitorid",
    "itemid",
    "timestamp",
    "event",
    MILLISECONDS,
    ("view", "addtocart", "transaction"),
    kinds_written=True,
    dropped=("addtocart", "transaction"),
)


def read(data_dir: Path, progress: Progress | None) -> Dataset:
    """Read 2,756,101 events of 1,407,580 visitors; sessions are of views unless protocol.drop says otherwise."""
    with open_archive(data_dir, "retailrocket", RETAILROCKET) as archive:
        return read_events(archive, "events.csv", "retailrocket", "products", _LAYOUT)
