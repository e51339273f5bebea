"""Tables of data-set statistics show what papers print beside what the archives at hand hold, counted anew.

Nothing is trained for such a table, so it has no cells. Its file has the printed counts (none where the paper has no
such number), their decimals, and a remark where what is printed is known to be wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import groupby
from pathlib import Path

from edgefr.config.sheet import Sheet
from edgefr.report.pages import Record
from edgefr.studies.reproductions.cells import Ask, FinishedRuns
from edgefr.studies.reproductions.exhibits import Exhibit
from edgefr.studies.reproductions.published import lines, parsed, specification
from edgefr.studies.reproductions.tables import Made
from privacy.progress import Progress

Counts = Mapping[str, float]
Count = Callable[[str, Sequence[str], Path | None], Counts]
"""What counts the statistics of a line: its name, its data sets, the folder of archives."""


def statistics(paper: str, name: str, count: Count) -> Exhibit:
    """Return a table of statistics as an exhibit."""
    title, printed = specification(paper)["exhibits"][name]["title"], lines(paper, name)
    parts = [(label, list(own)) for label, own in groupby(printed, lambda line: line["label"])]

    def make(ask: Ask, found: FinishedRuns, names: Sequence[str], progress: Progress | None) -> Made:
        records = list[Record]()
        for number, (label, own) in enumerate(parts):
            if progress is not None:
                progress("count", number, len(parts), label)
            needed = own[0]["data"].split()
            counts = count(label, needed, ask.data_dir) if set(needed) <= set(names) else None
            records += [compared(line, counts) for line in own]
        rows = list[dict[str, str]]()
        for record in records:
            row, places = {"data": record["data"], "what": record["statistic"]}, record["places"]
            for column, kind in (("printed", "printed"), ("counted here", "counted")):
                row[column] = "-" if record[kind] is None else f"{record[kind]:,.{places}f}"
            rows.append(row | {"remark": record["remark"]})
        return Made([Sheet(title, rows, words=["data", "what", "remark"])], records)

    data = tuple(dict.fromkeys(data for line in printed for data in line["data"].split()))
    return Exhibit.of(paper, name, lambda ask, data: (), make, data)


def compared(line: Mapping[str, str], counts: Counts | None) -> Record:
    """Return the record of a printed statistic beside those counted here; None where the archive is not at hand."""
    what, printed, places = line["statistic"], parsed(line["printed"]), int(line["places"])
    counted = (counts or {}).get(what)
    if counts is None:
        remark = "its archive is not at hand"
    elif counted is None or printed is None:
        remark = "not counted here" if counted is None else "not in the paper"
    else:  # as finely as it is printed
        same = abs(counted - printed) <= 0.5 * 10.0**-places + 1e-9
        remark = "same" if same else f"differs by {counted - printed:+,.{places}f}"
    head = {"data": line["label"], "statistic": what, "printed": printed, "counted": counted}
    return {**head, "remark": line["remark"] or remark, "places": places}
