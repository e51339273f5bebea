"""Small exports the tests share: real programs, a tiny BERT, sixty items and a dozen users."""

import atexit
import shutil
import tempfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from cloud.pooling import POOLINGS
from edge.manifest import Promise
from edge.word_vectors import WordEncoder
from edgefr.experiment.method import METHODS
from edgefr.experiment.sections import STATIC, EncoderSection
from edgefr.experiment.text_encoder import ENCODERS
from edgefr.methods.transfr.program import TransFR
from edgefr.methods.transfr.settings import TransFRSettings
from edgefr.simulation.encoders.words import Tabled, counted
from export.batches import One
from export.bundle import Provenance, Targets, export_bundles
from export.encoders import Reads, TextEncoders
from export.given import Given
from export.model import Names, TrainedModel
from export.torch_encoder import load_encoder
from export.variants import ClassLimits
from export.word_encoders import Words
from privacy import keyed

ITEMS, USERS, WIDTH = 60, 12, 48
WORDS = [f"{a}{b}" for a in ("ba", "ce", "di", "fo", "gu", "ka", "le", "mi") for b in ("r", "n", "st", "l")]
READ = ("hash", "tfidf", "static+tfidf")
"""Kinds of exports whose texts are read without a language model."""
KEY = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
"""Signs the bundles that tests give to devices."""
CREATED = "2026-11-21T10:00:00+00:00"
# limits that reach every variant: an encoder needs 20 MB more, and storage tells the file sizes apart
CLASSES = {
    "laptop": ClassLimits(8000, 20),
    "phone": ClassLimits(8000, 20, storage_mb=0.11),
    "stick": ClassLimits(70, 20, storage_mb=0.016),
    "speaker": ClassLimits(40, 20),
}


@dataclass(frozen=True)
class Column:
    """Ragged item numbers."""

    values: np.ndarray
    offsets: np.ndarray

    def of(self, user: int) -> np.ndarray:
        """One user's items."""
        return self.values[self.offsets[user] : self.offsets[user + 1]]


def titles() -> list[str]:
    """A title of three words per item."""
    picks = keyed.integers(keyed.fold(keyed.key(0, "titles"), np.arange(ITEMS))[:, None], np.arange(3), len(WORDS))
    return [" ".join(WORDS[w] for w in row) for row in picks]


def column(purpose: str) -> Column:
    """Three to seven items per user; user 3 has none."""
    counts = 3 + keyed.integers(keyed.key(0, purpose), np.arange(USERS), 5)
    counts[3] = 0
    base = keyed.key(1, purpose)
    rows = [keyed.choose(base + user, np.arange(ITEMS), int(n)) for user, n in enumerate(counts)]
    return Column(np.concatenate(rows).astype(np.int32), np.concatenate([[0], np.cumsum(counts)]))


def folder(name: str) -> Path:
    """A temporary folder that goes away with the process."""
    path = Path(tempfile.mkdtemp(prefix=f"bundles-{name}-"))
    atexit.register(shutil.rmtree, path, ignore_errors=True)
    return path


@cache
def student() -> Path:
    """A BERT of two layers with a WordPiece tokenizer, random but keyed weights, as a transformers folder."""
    from tokenizers import BertWordPieceTokenizer
    from transformers import BertConfig, BertModel, BertTokenizerFast

    path = folder("student")
    letters = "abcdefghijklmnopqrstuvwxyz0123456789"
    vocabulary = [
        "[PAD]",
        "[UNK]",
        "[CLS]",
        "[SEP]",
        "[MASK]",
        *WORDS,
        *letters,
        *(f"##{c}" for c in letters),
    ]
    wordpiece = BertWordPieceTokenizer({word: n for n, word in enumerate(vocabulary)})
    wordpiece.save(str(path / "tokenizer.json"))
    BertTokenizerFast(tokenizer_file=str(path / "tokenizer.json")).save_pretrained(path)
    config = BertConfig(
        vocab_size=2000,
        hidden_size=WIDTH,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=96,
        max_position_embeddings=32,
    )
    model = BertModel(config).eval()
    with torch.no_grad():
        for name, weight in model.named_parameters():
            weight.copy_(weights(name, tuple(weight.shape)) * 0.2 + (1.0 if name.endswith("LayerNorm.weight") else 0.0))
    model.save_pretrained(path)
    return path


def weights(name: str, shape: tuple[int, ...]) -> torch.Tensor:
    """Keyed standard normal numbers."""
    draws = keyed.normal(keyed.key(0, name), np.arange(int(np.prod(shape))))
    return torch.from_numpy(draws.reshape(shape).astype(np.float32))


@cache
def text() -> torch.Tensor:
    """The student's mean-pooled vectors of the titles, [items, width], one title at a time."""
    from transformers import AutoTokenizer

    tokenizer, module = AutoTokenizer.from_pretrained(student()), load_encoder(student(), POOLINGS["mean"].pool)
    with torch.no_grad():
        tokens = [tokenizer(title, return_tensors="pt") for title in titles()]
        return torch.cat([module(t["input_ids"], t["attention_mask"]) for t in tokens])


@cache
def words(kind: str) -> Words:
    """What reads the titles' words: hash, or a table that was learned of all titles but the last ten."""
    encoder, table = ENCODERS[kind], None
    if isinstance(encoder, Tabled):
        teacher = {"teacher": str(student())} if kind in STATIC else {}
        asked = EncoderSection.model_validate({"kind": kind, "width": WIDTH, **teacher})
        table = encoder.table(counted(titles()[:-10], True, 40), asked)[0]
    pairs = table is not None
    return Words(kind, WIDTH, pairs, WordEncoder(WIDTH, pairs, table).encode(titles()), table)


def program(kind: str) -> Any:
    """fedmf, fedncf, pfedrec; transfr (private user vector); mean (TransFR with the history as its user vector);
    hash and tfidf (TransFR of vectors of words)."""
    if kind in ("fedmf", "fedncf", "pfedrec"):
        row = METHODS[kind]
        return row.program(row.settings.model_validate({"dim": 8}), Given(ITEMS, 1))
    encoder = "mean" if kind == "mean" else "vector"
    vectors = torch.from_numpy(words(kind).vectors) if kind in READ else text()
    return TransFR(TransFRSettings(adapter=[16, 8], head=[8, 8], user_encoder=encoder), vectors, 1)


def trained(kind: str) -> tuple[Any, dict[str, torch.Tensor], dict[str, torch.Tensor]]:
    """A program with shared and private tensors that differ from where they start and from user to user."""
    made = program(kind)
    start = made.init_shared(0), made.init_private(0, torch.arange(USERS))
    shared, private = ({n: t + 0.1 * weights(n, tuple(t.shape)) for n, t in tensors.items()} for tensors in start)
    return made, shared, private


def literal(program: Any, tensors: dict[str, torch.Tensor], past: np.ndarray) -> np.ndarray:
    """One client's scores of all items, with the batch that simulation uses."""

    def batch(items: np.ndarray, history: One | None = None) -> One:
        numbers = torch.from_numpy(items.astype(np.int64))
        ones = torch.ones(len(items))
        return One(numbers, numbers, ones, ones / max(1, len(items)), history)

    history = batch(past) if program.needs_history else None
    items = batch(np.arange(ITEMS), history)
    with torch.no_grad():
        vectors = program.vectors(tensors, items)
        own = None if history is None else program.vectors(tensors, history)
        return program.score(tensors, items, vectors, program.user(tensors, items, own, vectors)).numpy()


def export(
    *,
    out: Path,
    users: list[str],
    item_ids: list[str],
    titles: list[str],
    classes: dict[str, ClassLimits],
    users_of: dict[str, list[int]],
    created: str,
    provenance: dict[str, Any],
    encoder: Path | None = None,
    pooling: Any = "mean",
    max_tokens: int = 8,
    seed: int = 0,
    expires_days: int | None = None,
    offered: list[int] | None = None,
    with_users: bool = True,
    promise: Promise | None = None,
    counted: bool = False,
    reads: Reads | None = None,
    **others: Any,
) -> list[dict[str, Any]]:
    """`export_bundles` of plain values by name, so that a test changes one of them; tests of parity carry users."""
    asked = {name: others.pop(name) for name in ("learning", "rules", "progress", "key") if name in others}
    model = TrainedModel(names=Names(users, item_ids, titles), pool=offered, **others)
    text = reads if encoder is None else TextEncoders(encoder, POOLINGS[pooling], max_tokens)
    origin = Provenance(created, provenance, seed, expires_days, promise, counted)
    return export_bundles(out, model, Targets(classes, users_of, with_users), origin, text=text, **asked)


def arguments(kind: str, out: Path) -> dict[str, Any]:
    """Everything `export` takes."""
    made, shared, private = trained(kind)
    return {
        "out": out,
        "program": made,
        "shared": shared,
        "private": private,
        "users": [f"u{n}" for n in range(USERS)],
        "history": column("history") if made.needs_history else None,
        "seen": column("seen"),
        "item_ids": [f"i{n}" for n in range(ITEMS)],
        "titles": titles(),
        "encoder": student() if kind == "transfr" else None,
        "reads": words(kind) if kind in READ else None,
        "pooling": "mean",
        "max_tokens": 16,
        "classes": CLASSES,
        "users_of": {name: list(range(n, USERS, len(CLASSES))) for n, name in enumerate(CLASSES)},
        "created": CREATED,
        "provenance": {"seed": 0, "data": "made up"},
    }


@cache
def exported(kind: str) -> tuple[Path, dict[str, dict[str, Any]]]:
    """Bundles of all classes, and their rows by class. Read only: copy before changing one."""
    out = folder(kind)
    return out, {row["class"]: row for row in export(**arguments(kind, out))}
