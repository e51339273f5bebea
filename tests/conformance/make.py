"""The conformance kit is made here: `python -m tests.conformance.make [CASE ...]`; a bundle takes a minute or more.

The answers that it expects are this device's own, which tests/contract holds to the simulator's; `--answers` writes
them anew of the bundles that are there.
"""

from __future__ import annotations

import json
import math
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

import edgefr
from edge.bundle import Bundle, open_bundle
from edge.catalogue import Catalogue
from edge.clients import read_tensors
from edge.conformance import answer
from edge.delta import Delta, write_delta
from edge.learning import Learning
from edge.model import Model
from edge.signature import place
from edgefr.serving.conformance import SCHEMA
from edgefr.simulation.bundles import export_run
from edgefr.simulation.runs.layout import PRIVATE, SIGNING_KEY
from export.sign import load_private, signature_of
from privacy import keyed
from privacy.files import write_atomic

ROOT = Path(__file__).resolve().parents[2]
KIT = ROOT / "conformance"
CLASS = "laptop_x86"
BASE = (
    "data_options={users: 40, items: 120, interactions: 12}",
    "rounds=2",
    f"fleet.share={{{CLASS}: 1.0}}",
)
SAMPLED = "protocol.negatives=20"
BLOCKS = ("protocol.increments=2", "protocol.min_interactions=3")
STUDENT = "STUDENT"
"""Stands for the folder of the small text encoder."""
NOISE = ("privacy.mechanism=gaussian", "privacy.clip=1", "privacy.epsilon=8")
CASES: dict[str, tuple[str, ...]] = {
    "fedmf": ("method=fedmf", "model={dim: 4}"),
    "fedmf-noised": ("method=fedmf", "model={dim: 4}", *NOISE, "privacy.trust=local"),
    "fedncf": ("method=fedncf", "model={dim: 4}"),
    "pfedrec": ("method=pfedrec", "model={dim: 4}", "batch_size=16", "local_epochs=3"),
    "fedrecon": ("method=fedrecon", "model={dim: 4}"),
    # At FedCAR's own rate, 80 for each item, 50 steps magnify rounding: WebAssembly came out 1.02e-5 off.
    "fedcar": ("method=fedcar", "model={dim: 4, item_lr: 1}"),
    "fcf": ("method=fcf", "model={dim: 2, alpha: 10, ridge: 1}"),
    "f3crec": ("method=f3crec", "model={dim: 4, init_scale: 1.0}", *BLOCKS),
    "fcucr": ("method=fcucr", "model={dim: 4, length: 5, init_scale: 0.5, lr: 0.01}", "protocol.gap_minutes=40000"),
    "transfr-pieces": (
        *("method=transfr", "encoder.distill=null", "encoder.encode.max_tokens=24", "model={adapter: [8], head: [8]}"),
        f"encoder.teacher={STUDENT}",
    ),
    "transfr": ("method=transfr", "encoder.kind=static", "encoder.words=200", "model={adapter: [16, 8], head: [8]}"),
}
"""Each case's settings: every way to learn that ships is in one."""


PEOPLE = {"7": slice(0, 12), "2305843009213693957": slice(40, 43)}
"""Devices by the number that keys their draws, and which items they have had."""
LESS = ("2305843009213693957",)
"""Devices of which less is asked, so that the kit stays small."""
ENCODERS = ("transfr-pieces",)
"""Cases of which only texts are asked, and lists."""
TEXTS = ["", "The silent sea", "Grünes Wasser, 2. Teil", "zzzz"]
PIECES = ["e\u0301TE\u0301 (2.)", "海 sea", "a\x00b\u00ad\u0378c", "[MASK]sea", "sea🌊", "sea " * 100, "s" * 101, " \t"]
"""Texts for word pieces: accents, ideographs, controls, what nobody assigned, a special token, too many, too long."""


def ship(name: str, scratch: Path) -> None:
    """Write one bundle of the kit and an update of it, signed by a key that goes away with `scratch`."""
    settings = [one.replace(STUDENT, str(student(scratch))) if STUDENT in one else one for one in CASES[name]]
    run = edgefr.simulate(
        edgefr.load_experiment(overrides=[*BASE, *([] if name == "f3crec" else [SAMPLED]), *settings]),
        ROOT / "devices.yaml",
        out=scratch / name,
        page=False,
    )
    export_run(run, scratch / "out" / name, expires_days=None)
    target = KIT / name
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(scratch / "out" / name / CLASS, target)
    bundle = open_bundle(target)
    delta = write_delta(KIT / "updates" / f"{name}.safetensors", update_of(bundle))
    signed = signature_of("delta", delta.read_bytes(), load_private(run.path / PRIVATE / SIGNING_KEY))
    write_atomic(place(delta), signed)


def student(scratch: Path) -> Path:
    """Write a BERT of one layer whose pieces are letters and a few words, with random but keyed weights."""
    from tokenizers import BertWordPieceTokenizer
    from transformers import BertConfig, BertModel, BertTokenizerFast

    path = scratch / "student"
    letters = "abcdefghijklmnopqrstuvwxyz0123456789"
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    pieces = [
        *special,
        *letters,
        *(f"##{one}" for one in letters),
        *("the", "sea", "##ing", "silent", "海", "(", ")", "."),
    ]
    BertWordPieceTokenizer({piece: n for n, piece in enumerate(pieces)}).save(str(scratch / "pieces.json"))
    BertTokenizerFast(tokenizer_file=str(scratch / "pieces.json")).save_pretrained(path)
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    model = BertModel(BertConfig(vocab_size=len(pieces), max_position_embeddings=32, **sizes)).eval()
    with torch.no_grad():
        for name, weight in model.named_parameters():
            drawn = keyed.normal(keyed.key(0, name), np.arange(weight.numel())).astype(np.float32)
            weight.copy_(torch.from_numpy(drawn).reshape(weight.shape) * 0.2 + name.endswith("LayerNorm.weight"))
    model.save_pretrained(path)
    return path


def update_of(bundle: Bundle) -> Delta:
    """Return an update of every shared tensor that rounds train, of every third row of tables."""
    learning = bundle.config.learning
    assert learning is not None
    dense, rows = {}, {}
    shared, tables = read_tensors(bundle, bundle.config.shared), Model(bundle, KIT).tables()
    for tensor in learning.released:
        values = shared.get(tensor, tables.get(tensor))
        assert values is not None
        moved = (values + 0.05 * np.sin(np.arange(values.size)).reshape(values.shape)).astype(np.float32)
        if tensor in tables:
            rows[tensor] = np.arange(0, len(moved), 3), moved[::3]
        else:
            dense[tensor] = moved
    return Delta(bundle.manifest.bundle_id, learning.round, learning.round + 1, dense, rows)


def questions(name: str, bundle: Bundle) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield what is asked about a bundle: what it is about, and the question; paths are those within the kit."""
    learning, config, ids = bundle.config.learning, bundle.config, Catalogue(bundle).ids
    assert learning is not None
    yield "open", {"ask": "open", "bundle": name, "trusted": [bundle.signed_by]}
    for number, some in PEOPLE.items():
        who = {"bundle": name, "number": number, "items": ids[some], **history(learning, ids, ids[some])}
        work = {**who, "when": "round", "round": learning.round + 1, "epochs": None}
        if name in ENCODERS:
            yield from list(lists(name, learning, who))[:2]
            break
        yield "examples", {"ask": "examples", **work, "epochs": 2}
        yield "round", {"ask": "train", **work, "steps": None}
        yield from lists(name, learning, who)
        if number not in LESS:
            yield from more(learning, work)
        if config.explain is not None:
            yield "reasons", {"ask": "explain", **who, "about": ids[60:63]}
    if config.encoder is not None:
        yield (
            "texts",
            {
                "ask": "encode",
                "bundle": name,
                "texts": [*TEXTS, *PIECES[: len(PIECES) * (name in ENCODERS)], *Catalogue(bundle).titles[:5]],
            },
        )


def history(learning: Learning, ids: list[str], had: list[str]) -> dict[str, Any]:
    """Return what a device has beside its items: those of an earlier block, or when it had each of its session.

    Both have done a round's work: what is replayed has moved, and there is a teacher.
    """
    if learning.replay is not None:
        return {"earlier": ids[50:62], "practised": True}
    if learning.sessions is None:
        return {}
    return {"times": [1_700_000_000 + 100 * place * place for place in range(len(had))], "practised": True}


def more(learning: Learning, work: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    yield "first step", {"ask": "train", **work, "steps": 1}
    yield "50 steps", {"ask": "train", **work, "epochs": 50, "steps": 50}
    yield "release", {"ask": "release", **work, "steps": None}
    if any(phase.when == "final" for phase in learning.phases):
        yield "local training", {"ask": "train", **work, "when": "final", "epochs": 2, "steps": None}
    if learning.exchange is not None and learning.exchange.publish is not None:
        yield "message", {"ask": "message", **work, "steps": None}


def lists(name: str, learning: Learning, who: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield what is asked about lists; who keeps nothing of a user from round to round trains locally before each."""
    final = any(phase.when == "final" for phase in learning.phases)
    anew = any(tensor.anew is not None for tensor in learning.tensors)
    plain = {"ask": "recommend", **who, "k": 10, "learn": False, "delta": None, "personal": anew}
    yield "list", plain
    yield "list after a round", {**plain, "learn": True}
    yield "list after an update", {**plain, "learn": True, "delta": f"updates/{name}.safetensors"}
    if learning.sessions is not None and learning.sessions.reply is not None:
        size = math.prod(learning.tensor(learning.sessions.reply).shape)
        yield "list after a reply", {**plain, "learn": True, "reply": [(n % 5 - 2) / 4 for n in range(size)]}
    if final and not anew:
        yield "list after local training", {**plain, "personal": True}


def drawn() -> list[dict[str, Any]]:
    """Return questions about draws alone."""
    first = {"seed": "0", "purpose": "federated negatives", "path": [3, 0], "clients": ["0", "7"], "bound": 120}
    large = {
        "seed": str(2**63 - 1),
        "purpose": "init user",
        "path": [],
        "clients": [str(2**62 - 1)],
        "bound": 2**31 - 1,
    }
    return [asked_and_answered("draws", "draws", {"ask": "draws", "count": 16, **one}) for one in (first, large)]


def asked_and_answered(case: str, what: str, asked: dict[str, Any]) -> dict[str, Any]:
    whole = {name: str(KIT / asked[name]) for name in ("bundle", "delta") if asked.get(name)}
    told = answer({"id": 0, **asked, **whole})
    if "answer" not in told:
        raise ValueError(f"{case}, {what}: {told}")
    return {"case": case, "what": what, "asked": asked, "expected": told["answer"]}


def main() -> None:
    chosen = [name for name in sys.argv[1:] if name != "--answers"] or list(CASES)
    with tempfile.TemporaryDirectory() as folder:
        for name in chosen:
            if "--answers" not in sys.argv:
                ship(name, Path(folder))
    path = KIT / "kit.json"
    kept = json.loads(path.read_text(encoding="utf-8"))["questions"] if path.exists() else []
    asked = drawn()
    for name in CASES:
        if name in chosen:
            asked += [asked_and_answered(name, *one) for one in questions(name, open_bundle(KIT / name))]
        else:
            asked += [one for one in kept if one["case"] == name]
    kit = {"schema": SCHEMA, "questions": asked}
    write_atomic(path, json.dumps(kit, ensure_ascii=False).replace('{"case"', '\n{"case"') + "\n")
    size = sum(file.stat().st_size for file in KIT.rglob("*") if file.is_file())
    print(f"{len(asked)} questions; the kit has {size:,} bytes")


if __name__ == "__main__":
    main()
