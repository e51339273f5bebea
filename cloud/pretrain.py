"""A BERT is trained from scratch as a masked language model, for those who want no ready-made teacher."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from cloud import random_streams as purposes
from cloud.batches import by_length, corpus, digest_of, tokenise, visit
from cloud.model_folder import check, save, usable_device
from cloud.settings import PretrainSettings
from cloud.train import TrainingSchedule, few_threads, seeded, train
from privacy.errors import InputError
from privacy.files import write_json
from privacy.progress import Progress

RECIPE = 1  # raise it when the same settings would give another model
LETTERS = 1000  # most letters of an alphabet that get a token of their own
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


@few_threads()
def pretrain(
    texts: Sequence[str],
    settings: PretrainSettings,
    out: Path,
    device: str = "cpu",
    progress: Progress | None = None,
) -> Path:
    """Train a WordPiece tokenizer and a BERT on `texts`; returns `out`, an ordinary transformers folder.

    A killed run goes on from its last checkpoint; the same call on a finished `out` returns at once. Raises
    `InputError` for no text, an `out` that holds anything else, an unusable device, a full disk.
    """
    out, distinct = Path(out), corpus(texts)
    named = json.dumps([RECIPE, digest_of(distinct), settings.model_dump()], sort_keys=True)
    identity = hashlib.sha256(named.encode()).hexdigest()
    if _state(out, identity) == "done":
        return check(out)
    usable_device(device)
    write_json(out / "pretrain.json", {"identity": identity, "done": False})
    tokenizer = tokenizer_of(distinct, settings.vocabulary, settings.max_tokens)
    model = _model(settings, len(tokenizer)).to(device)
    tokens = tokenise(tokenizer, distinct, settings.max_tokens)
    batches = by_length(tokens.lengths, settings.batch_size)
    collator = _collator(tokenizer, settings)

    def loss(number: int) -> tuple[Tensor, dict[str, Tensor]]:
        rows = batches[visit(len(batches), number, settings.seed, purposes.PRE_TRAINING_ORDER)]
        examples = [{"input_ids": tokens.values[tokens.offsets[i] : tokens.offsets[i + 1]].tolist()} for i in rows]
        kind = torch.device(device).type
        with seeded(settings.seed, purposes.MASKS, number):
            batch = collator(examples).to(device)
            with torch.autocast(kind, dtype=torch.bfloat16, enabled=kind == "cuda"):
                value = model(**batch).loss
        return value, {"masked tokens": value.detach()}

    checkpoint = out / "checkpoint.safetensors"
    plan = TrainingSchedule(settings.steps, settings.lr, settings.warmup)
    train("pretrain", dict(model.named_parameters()), loss, plan, checkpoint, progress)
    save(out, model.cpu(), tokenizer)
    write_json(out / "pretrain.json", {"identity": identity, "done": True})
    checkpoint.unlink(missing_ok=True)
    return out


def _state(out: Path, identity: str) -> str:
    """ "new", "begun" or "done". Raises `InputError` when `out` belongs to something else."""
    if not out.exists() or (out.is_dir() and not any(out.iterdir())):
        return "new"
    try:
        record = json.loads((out / "pretrain.json").read_text(encoding="utf-8"))
        mine, done = record["identity"] == identity, bool(record["done"])
    except (OSError, ValueError, KeyError, TypeError):
        mine, done = False, False
    if not mine:
        raise InputError(f"{out} holds something else than this training run; choose another folder")
    return "done" if done else "begun"


def tokenizer_of(texts: Sequence[str], vocabulary: int, max_tokens: int) -> Any:
    """Train a lower-casing WordPiece tokenizer of at most `vocabulary` tokens on `texts`.

    The trainer numbers letters inside words in the order of a hash table that differs from run to run, and
    breaks ties by those numbers. Naming the letters beforehand makes the same texts give the same tokenizer.
    """
    from tokenizers import BertWordPieceTokenizer
    from transformers import BertTokenizerFast  # type: ignore[attr-defined]

    trained = BertWordPieceTokenizer(lowercase=True)
    counts = Counter(letter for text in texts for letter in trained.normalize(text) if not letter.isspace())
    letters = sorted(sorted(counts, key=lambda letter: (-counts[letter], letter))[:LETTERS])
    named = SPECIAL + ["##" + letter for letter in letters]
    trained.train_from_iterator(
        texts,
        vocab_size=max(vocabulary, len(named) + len(letters)),
        min_frequency=2,
        limit_alphabet=LETTERS,
        special_tokens=named,
        show_progress=False,
    )
    plain = BertWordPieceTokenizer(vocab=trained.get_vocab(), lowercase=True)
    return BertTokenizerFast(tokenizer_object=plain._tokenizer, model_max_length=max_tokens)


def _model(settings: PretrainSettings, vocabulary: int) -> Any:
    from transformers import BertConfig, BertForMaskedLM

    config = BertConfig(
        vocab_size=vocabulary,
        hidden_size=settings.hidden,
        num_hidden_layers=settings.layers,
        num_attention_heads=settings.heads,
        intermediate_size=4 * settings.hidden,
    )
    with seeded(settings.seed, purposes.PRE_TRAINING):
        return BertForMaskedLM(config).train()


def _collator(tokenizer: Any, settings: PretrainSettings) -> Any:
    from transformers import DataCollatorForLanguageModeling

    return DataCollatorForLanguageModeling(tokenizer, mlm=True, mlm_probability=settings.mask_probability)
