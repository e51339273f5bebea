"""Put beside each other what readers of texts are worth before anything is learned of users.

    python experiments/readers/untrained.py OUT.csv DATA [OVERRIDE ...]

An item is scored by how near its text is to the mean of the user's items. DATA "amazon-arts-office" is asked across
domains in both directions: known items of the source, items of the target by users known from the source alone (cold).
Other data are asked by leave-one-out. Columns: HR@10 of the test item among itself and 99 sampled ones, NDCG@10 by full
ranking; MB of the reader's files in a run (of a BERT as float32). Readers are rows of `READERS`; an OVERRIDE is of all.
"""

from __future__ import annotations

import csv
import sys
from pathlib import Path

from edgefr.data.prepared_data import Prepared
from edgefr.experiment.experiment import load_experiment
from edgefr.simulation.evaluation.ranking import evaluate
from edgefr.simulation.evaluation.references import text_mean
from edgefr.simulation.prepare import prepare

READERS: dict[str, tuple[str, ...]] = {
    "hash 256": ("encoder.kind=hash",),
    "tfidf 256": ("encoder.kind=tfidf",),
    "static 64": ("encoder.kind=static", "encoder.width=64"),
    "static 256": ("encoder.kind=static",),
    "static+tfidf 128": ("encoder.kind=static+tfidf", "encoder.width=128"),
    "static+tfidf 256": ("encoder.kind=static+tfidf",),
    "static+tfidf 512": ("encoder.kind=static+tfidf", "encoder.width=512"),
    "student 2 x 156": ("encoder.encode.max_tokens=32",),
    "teacher 6 x 384": ("encoder.distill=null", "encoder.encode.max_tokens=32"),
}
DIRECTIONS = (("arts", "office"), ("office", "arts"))


def tasks(data: str) -> dict[str, tuple[str, ...]]:
    """Return the overrides of every task that a data set is asked."""
    if data != "amazon-arts-office":
        return {data: (f"data={data}",)}
    across = ("data=amazon-arts-office", "protocol.name=cross-domain")
    return {f"{a} to {b}": (*across, f"protocol.source={a}", f"protocol.target={b}") for a, b in DIRECTIONS}


def measured(name: str, prepared: Prepared) -> dict[str, float]:
    """Return both metrics of the text mean on every split."""
    assert prepared.text is not None
    out: dict[str, float] = {}
    for split in prepared.splits.values():
        cold = split.name == "target"
        score = text_mean(prepared.text.vectors, split, train=not cold)
        for metric, ranking in (("HR@10", "sampled"), ("NDCG@10", "full")):
            found = evaluate(score, split, "test", ranking).metrics([10])[metric]  # type: ignore[arg-type]
            out[f"{name}, {'cold' if cold else 'known'} {metric}"] = round(found, 4)
    return out


def row(reader: str, data: str, overrides: list[str]) -> dict[str, float | str]:
    """Return one reader's row: what it is worth, and what its reader takes."""
    out: dict[str, float | str] = {"reader": reader}
    for name, asked in tasks(data).items():
        experiment = load_experiment(overrides=[*asked, "method=transfr", *READERS[reader], *overrides])
        prepared = prepare(experiment, None, "cpu")
        out |= measured(name, prepared)
        folder = prepared.text.folder if prepared.text is not None else None
        files = [] if folder is None else [path for path in Path(folder).iterdir() if path.suffix != ".json"]
        out["MB"] = round(sum(path.stat().st_size for path in files) / 1e6, 2)
    return out


def main(out: Path, data: str, overrides: list[str]) -> None:
    """Measure every reader, write what there is after each."""
    rows: list[dict[str, float | str]] = []
    for reader in READERS:
        rows.append(row(reader, data, overrides))
        print(*rows[-1].values(), sep=", ", flush=True)
        with out.open("w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, list(rows[-1]), lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    main(Path(sys.argv[1]), sys.argv[2], sys.argv[3:])
