"""What keys random draws is what it was: other strings are other draws, and so other results everywhere."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import cloud.random_streams
import edge.random_streams
import edgefr.config.random_streams
import export.random_streams
import privacy.compress
from privacy import keyed
from privacy.noise_key import NoiseKey
from tests.caches import new_cache
from tests.export.worlds import student
from tests.golden.cases import combinations, ready
from tests.golden.values import run

MODULES = (edge.random_streams, edgefr.config.random_streams, cloud.random_streams, export.random_streams)
MADE = {
    edge.random_streams.negatives("federated"): "federated negatives",
    edge.random_streams.order("federated"): "federated order",
    edgefr.config.random_streams.init("item"): "init item",
    edgefr.config.random_streams.noise("item"): "noise item",
    edgefr.config.random_streams.noise_of_steps("federated"): "noise of federated",
    edgefr.config.random_streams.records("federated", "order"): "federated order of records",
    edgefr.config.random_streams.candidates("main", "valid"): "negatives/main/valid",
    edgefr.config.random_streams.session_candidates("test"): "negatives/sessions/test",
    edgefr.config.random_streams.null("game"): "null of game",
    edgefr.config.random_streams.dropped("embedding"): "dropped values embedding",
    export.random_streams.graph_gate("item"): "graph gate item",
    export.random_streams.rehearsal("item"): "rehearsal item",
}
RUNS = (
    "transfr mlp, cross-domain, none, paper",
    "transfr lora, leave-one-out, central, paper",
    "f3crec on fedncf, blocks, local, paper",
    "fedrap, leave-one-out, none, paper",
    "gpfedrec, sessions, none, paper",
    "fcucr on sasrec, sessions, local, paper",
    "gru4rec, sessions, none, paper",
    "tisasrec, sessions, none, paper",
    "fedmf, a projection",
    "fedmf, DP-SGD",
    "pfedrec, leave-one-out, central, paper",
)
ASKED = Path(__file__).parent / "purposes.txt"
"""Everything that keyed a draw in `RUNS`, a line each."""
CONSTANTS = Path(__file__).parent / "constants.txt"
"""Every purpose that has a name, a line each."""
NOISED = Path(__file__).parent / "noises.txt"
"""Everything that simulated noise was drawn for in `RUNS`, with the secret of the run, a line each."""


def test_constants_are_what_they_were() -> None:
    found = [f"privacy.compress.PURPOSE = {privacy.compress.PURPOSE}"]
    for module in MODULES:
        found += [f"{module.__name__}.{n} = {v}" for n, v in vars(module).items() if n.isupper() and isinstance(v, str)]
    assert sorted(found) == sorted(CONSTANTS.read_text().splitlines())


def test_names_make_them_as_they_did() -> None:
    assert all(made == expected for made, expected in MADE.items())


def test_runs_ask_for_what_they_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    draws, noises = asked_in_runs(tmp_path, monkeypatch)
    assert draws == ASKED.read_text().splitlines()
    assert noises == NOISED.read_text().splitlines()
    assert not set(draws) & set(noises), "noise is never keyed by the public seed alone"


def asked_in_runs(folder: Path, patch: pytest.MonkeyPatch) -> tuple[list[str], list[str]]:
    """What keys the draws of small runs, and what their noise is for: each sorted."""
    asked: set[str] = set()
    noised: set[str] = set()
    real = keyed.key

    def noting(made: Any) -> Any:
        def drawn(secret: NoiseKey, seed: int, purpose: str, *path: int) -> Any:
            noised.add(purpose)
            return made(secret, seed, purpose, *path)

        return drawn

    for name in ("stream", "base"):
        patch.setattr(NoiseKey, name, noting(getattr(NoiseKey, name)))

    def key(seed: int, purpose: str, *path: int) -> int:
        asked.add(purpose)
        return real(seed, purpose, *path)

    texts = student()
    patch.setenv("EDGEFR_CACHE", str(new_cache(folder / "cache")))
    patch.setattr(keyed, "key", key)
    for number, case in enumerate(RUNS):
        run([*ready(combinations()[case], texts), "seed=7"], folder / str(number))
    return sorted(asked), sorted(noised)


if __name__ == "__main__":  # python -m tests.golden.test_purposes writes them down
    import tempfile

    with tempfile.TemporaryDirectory() as place, pytest.MonkeyPatch.context() as patch:
        for kept, lines in zip((ASKED, NOISED), asked_in_runs(Path(place), patch), strict=True):
            kept.write_text("".join(f"{line}\n" for line in lines))
