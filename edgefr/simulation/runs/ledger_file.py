"""A ledger is a parquet file: what every client has released, a row per client and event."""

from __future__ import annotations

from pathlib import Path

from privacy.errors import InputError
from privacy.files import write_atomic
from privacy.ledger import COLUMNS, Ledger


def write_ledger_file(path: Path, ledger: Ledger, run: str) -> None:
    """Save a ledger; `run`: sha256 of the experiment.yaml that it belongs to."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pa.table(ledger.columns()).replace_schema_metadata(ledger.facts() | {"run": run})
    write_atomic(path, lambda file: pq.write_table(table, file))


def read_ledger_file(path: Path) -> Ledger | None:
    """Read a ledger back; None where there is no file. Raises `InputError` for one that is damaged."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    if not path.exists():
        return None
    try:
        table = pq.read_table(path)
        metadata = table.schema.metadata or {}
        facts = {key.decode(): value.decode() for key, value in metadata.items()}
        columns = {name: table[name].to_numpy() for name in COLUMNS}
    except (OSError, KeyError, ValueError, pa.ArrowException) as error:
        reason = " ".join(str(error).split())[:120]
        raise InputError(f"{path} is not a whole ledger: {reason}; run the experiment again") from error
    return Ledger.from_columns(facts, columns)
