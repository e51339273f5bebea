"""One table written in any format and way that is accepted is read row by row as it is, in its order."""

from __future__ import annotations

import csv
import io
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyarrow import parquet

from edgefr.data import datasets as data

NAME = st.text(st.sampled_from("abAB09é\"'|;,.-_#"), min_size=1, max_size=6).filter(
    lambda name: name.lower() not in ("na", "-") and "::" not in name and not name.isdigit()
)
TIME = st.integers(0, 4000).map(lambda tick: Decimal(1_600_000_000) + Decimal(tick) / 8)
ROWS = st.lists(st.tuples(NAME, NAME, TIME), min_size=1, max_size=30)
SEPARATED = {"csv": ",", "semicolons.csv": ";", "bars.txt": "|", "tsv": "\t", "dat": "::"}
FORMS = st.sampled_from([*SEPARATED, "jsonl", "parquet", "floats.parquet", "inter"])
ENCODINGS = st.sampled_from([None, "utf-8-sig", "latin-1", "utf-16"])


def written(rows: list[tuple[str, str, Decimal]], form: str, encoding: str | None, folder: Path) -> dict[str, Any]:
    """Write the rows; return the options by which they are read."""
    path, options = folder / f"table.{form}", dict[str, Any]()
    if form in SEPARATED:
        sign, text = SEPARATED[form], io.StringIO()
        table = [("user", "item", "time"), *((u, i, str(t)) for u, i, t in rows)]
        if len(sign) > 1:
            text.write("".join(sign.join(row) + "\n" for row in table))
        else:
            csv.writer(text, delimiter=sign, lineterminator="\n", quoting=csv.QUOTE_ALL).writerows(table)
        path.write_text(text.getvalue(), encoding or "utf-8")
        if encoding not in (None, "utf-8-sig"):
            options["encoding"] = encoding
    elif form == "jsonl":
        lines = (json.dumps({"user": u, "item": i, "time": float(t)}, ensure_ascii=False) for u, i, t in rows)
        path.write_text("".join(line + "\n" for line in lines), "utf-8")
    elif form == "inter":
        head = "user:token\titem:token\ttime:float\n"
        path.write_text(head + "".join(f"{u}\t{i}\t{t}\n" for u, i, t in rows), "utf-8")
    else:
        users, items, times = zip(*rows, strict=True)
        ticks = pa.array([int(time * 1000) for time in times]).cast(pa.timestamp("ms"))
        when = pa.array([float(time) for time in times]) if form == "floats.parquet" else ticks
        parquet.write_table(pa.table({"user": users, "item": items, "time": when}), path)
    return options


@settings(max_examples=120, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rows=ROWS, form=FORMS, encoding=ENCODINGS)
def test_any_table_is_read_as_it_was_written(
    rows: list[tuple[str, str, Decimal]], form: str, encoding: str | None, tmp_path: Path
) -> None:
    options = written(rows, form, encoding, tmp_path)
    found = data.load(
        str(tmp_path / f"table.{form}"),
        options={**options, "repeats": "keep", "time": "s"} | ({"time": "auto"} if form == "parquet" else {}),
    )
    read = list(zip(found.users[found.user], found.catalogue.ids[found.item], found.moment.tolist(), strict=True))
    ticks = {time: place for place, time in enumerate(sorted({time for *_, time in rows}))}
    seen = {moment: place for place, moment in enumerate(sorted(set(found.moment.tolist())))}
    assert sorted((u, i, seen[moment]) for u, i, moment in read) == sorted((u, i, ticks[t]) for u, i, t in rows)
    for user in set(found.users.tolist()):
        own = [seen[moment] for u, _, moment in read if u == user]
        assert own == sorted(own), "a user's rows are in the order of time"
    spans = np.diff(sorted(set(found.moment.tolist())))
    expected = np.diff([float(time) for time in sorted(ticks)])
    if len(spans):
        assert np.allclose(spans / spans[0], expected / expected[0]), "no time lost a fraction"
