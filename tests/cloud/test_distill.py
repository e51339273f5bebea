import json
import resource
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch

from cloud.batches import tokenise
from cloud.distill import _lessons, _start, _terms, cosine_after_fit, distill, nearest, neighbours_overlap, untrained
from cloud.distillation import DistillSettings
from cloud.encode import encode
from cloud.model_folder import digest, open_config, open_model, open_tokenizer, resolve
from cloud.settings import EncodeSettings
from cloud.student import layer_map, new_student, student_config
from privacy.errors import InputError


def weights(folder: Path) -> bytes:
    return (folder / "model.safetensors").read_bytes()


@pytest.mark.parametrize(("said", "before", "inside"), [(None, 2, 1), (None, 6, 3), (None, 32, 4), ("6", 6, 6)])
def test_as_many_threads_as_cores_are_not_taken(
    said: str | None, before: int, inside: int, texts: list[str], settings: DistillSettings, tmp_path: Path, monkeypatch
) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    if said is not None:
        monkeypatch.setenv("OMP_NUM_THREADS", said)
    kept = torch.get_num_threads()

    def first(*step: Any) -> None:
        raise InterruptedError(torch.get_num_threads())

    try:
        torch.set_num_threads(before)
        with pytest.raises(InterruptedError, match=f"^{inside}$"):
            distill(texts[:8], settings, tmp_path, progress=first)
        with pytest.raises(InterruptedError, match=f"^{inside}$"):
            encode(resolve(settings.teacher), texts[:8], EncodeSettings(max_tokens=16), progress=first)
        assert torch.get_num_threads() == before
    finally:
        torch.set_num_threads(kept)


def test_a_student_is_an_ordinary_transformers_folder(
    texts: list[str], settings: DistillSettings, tmp_path: Path
) -> None:
    from transformers import AutoModel, AutoTokenizer

    calls: list[tuple[str, int, int, str]] = []
    before = torch.get_rng_state()
    student = distill(texts, settings, tmp_path, progress=lambda *call: calls.append(call))
    assert torch.equal(before, torch.get_rng_state())
    model, loading = AutoModel.from_pretrained(student.path, output_loading_info=True)
    assert not loading["missing_keys"]
    assert not loading["unexpected_keys"]
    ids = AutoTokenizer.from_pretrained(student.path)(texts[:2], padding=True, return_tensors="pt")
    assert model(**ids).last_hidden_state.shape[-1] == 24
    assert not student.cached
    assert student.digest == digest(student.path)
    assert [call[:3] for call in calls] == [
        (
            "distill",
            step + 1,
            12,
        )
        for step in range(12)
    ]
    assert all(term in calls[-1][3] for term in ("embedding ", "attention ", "last_hidden "))
    report = student.report
    assert report["parameters"] == sum(p.numel() for p in model.parameters())
    assert 0 < report["size_ratio"] < 1
    assert -1 <= report["cosine_after_fit"] <= 1
    assert 0 <= report["neighbours_overlap_10"] <= 1
    assert report["encoding_speedup"] > 0
    assert json.loads((student.path / "report.json").read_text())["report"] == report
    assert sorted(safetensors.torch.load_file(student.path / "projections.safetensors")) == [
        "embedding",
        "last_hidden",
    ]


def test_learning_lowers_every_term(texts: list[str], settings: DistillSettings, tmp_path: Path) -> None:
    short = distill(texts, settings.model_copy(update={"steps": 1, "lr": 1e-9}), tmp_path).report["loss"]
    long = distill(texts, settings.model_copy(update={"steps": 150, "lr": 3e-3}), tmp_path).report["loss"]
    assert long["embedding"] < 0.7 * short["embedding"]
    assert long["attention"] < 0.9 * short["attention"]
    assert long["last_hidden"] < 0.7 * short["last_hidden"]


def test_the_same_call_is_cached_and_another_is_not(
    texts: list[str], settings: DistillSettings, tmp_path: Path
) -> None:
    first = distill(texts, settings, tmp_path)
    again = distill([*texts, "", texts[0]], settings, tmp_path)
    assert again.cached
    assert (again.path, again.digest, again.report) == (first.path, first.digest, first.report)
    changed = distill(texts, settings.model_copy(update={"seed": 1}), tmp_path)
    assert not changed.cached
    assert changed.digest != first.digest
    assert distill(texts[:-1], settings, tmp_path).path != first.path
    shutil.rmtree(first.path)
    assert distill(texts, settings, tmp_path).digest == first.digest
    (first.path / "model.safetensors").write_bytes(weights(first.path)[:-4] + b"abcd")
    with pytest.raises(InputError, match="is damaged; delete that folder"):
        distill(texts, settings, tmp_path)


def test_each_weight_weighs_its_own_term(texts: list[str], settings: DistillSettings, teacher: Path) -> None:
    """The loss of one batch with every weight doubled alone, against terms taken with all the other weights at zero."""
    model, tokens = open_model(teacher, "cpu", attention="eager"), tokenise(open_tokenizer(teacher), texts, 16)
    two = settings.model_copy(update={"layers": 2, "layer_map": [2, 3]})
    student, projections = _start(student_config(two, open_config(teacher)), two, model, [0, 2, 3], tokens)
    lesson = _lessons(model, tokens, [np.arange(8)], [0, 2, 3], "cpu")(0)

    def loss(weights: Sequence[float]) -> float:
        *layers, last = weights
        chosen = two.model_copy(update={"layer_weights": layers, "last_hidden_weight": last})
        with torch.no_grad():
            return float(_terms(student.eval(), projections, chosen, "cpu")(lesson)[0])

    alone = [loss(row) for row in np.eye(4).tolist()]
    assert min(alone) > 0
    usual = [1.0, 0.5, 2.0, 3.0]
    assert loss(usual) == pytest.approx(float(np.dot(usual, alone)), rel=1e-5)
    for place in range(4):
        changed = [2 * w if at == place else w for at, w in enumerate(usual)]
        assert loss(changed) - loss(usual) == pytest.approx(usual[place] * alone[place], rel=1e-3), place


KILLED = """
import os, signal, sys
from pathlib import Path
import torch
import cloud.train
from cloud.distill import distill
from cloud.distillation import DistillSettings
torch.set_num_threads(1)
cloud.train.CHECKPOINT_SECONDS = 0.0
def progress(stage, done, total, note):
    if done == 9:
        os.kill(os.getpid(), signal.SIGKILL)
settings, texts = (Path(name).read_text() for name in sys.argv[1:3])
settings = DistillSettings.model_validate_json(settings)
distill(texts.splitlines(), settings, Path(sys.argv[3]), progress=progress)
"""


def test_a_killed_run_resumes_to_the_same_weights(texts: list[str], settings: DistillSettings, tmp_path: Path) -> None:
    settings = settings.model_copy(update={"accumulate": 2})
    (tmp_path / "settings.json").write_text(settings.model_dump_json())
    (tmp_path / "texts").write_text("\n".join(texts))
    names = [str(tmp_path / name) for name in ("settings.json", "texts", "killed")]
    done = subprocess.run([sys.executable, "-c", KILLED, *names], capture_output=True, timeout=120)
    assert done.returncode == -signal.SIGKILL, done.stderr.decode()
    resumed = distill(texts, settings, tmp_path / "killed")
    whole = distill(texts, settings, tmp_path / "whole")
    assert resumed.report["resumed_at_step"] == 8
    assert whole.report["resumed_at_step"] == 0
    assert weights(resumed.path) == weights(whole.path)
    assert resumed.digest == whole.digest


def test_who_asks_for_a_student_that_is_being_made_waits_for_it(
    texts: list[str], settings: DistillSettings, tmp_path: Path
) -> None:
    with ThreadPoolExecutor(3) as pool:
        found = [pool.submit(distill, texts, settings, tmp_path / "shared") for _ in range(3)]
        made = [one.result() for one in found]
    assert sorted(one.cached for one in made) == [False, True, True]
    assert len({one.digest for one in made}) == 1
    with ThreadPoolExecutor(3) as pool:
        found = [pool.submit(untrained, settings, tmp_path / "shared") for _ in range(3)]
    assert sorted(one.result().cached for one in found) == [False, True, True]


def test_untrained_is_random_by_seed(settings: DistillSettings, texts: list[str], tmp_path: Path) -> None:
    first, again = untrained(settings, tmp_path / "a"), untrained(settings, tmp_path / "b")
    assert weights(first.path) == weights(again.path)
    assert untrained(settings, tmp_path / "a").cached
    assert weights(untrained(settings.model_copy(update={"seed": 1}), tmp_path / "a").path) != weights(first.path)
    tensors = safetensors.torch.load_file(first.path / "model.safetensors")
    assert tensors["embeddings.word_embeddings.weight"].std() == pytest.approx(0.02, rel=0.1)
    assert first.report["parameters"] == sum(t.numel() for t in tensors.values())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"heads": 3}, "heads is 3 but the teacher has 4.*set heads to 4"),
        ({"hidden": 30}, "hidden 30 is not a multiple of the 4 heads; try hidden: 32"),
        (
            {"layer_map": [4]},
            r"layer_map \[4\] asks for layers that the teacher has not \(1 to 3\).*layer_map: \[3\]",
        ),
        ({"layer_map": [0]}, r"layer_map \[0\] asks for layers"),
        ({"layers": 2, "layer_map": [3]}, r"names 1 layers for a student of 2; .*use layer_map: \[1, 3\]"),
        ({"layers": 2, "layer_map": None}, r"default map p\(z\) = 3z \[3, 6\].*use layer_map: \[1, 3\]"),
        (
            {"layers": 4, "layer_map": None},
            "a student of 4 layers needs a teacher of as many; this one has 3",
        ),
        ({"max_tokens": 33}, "max_tokens 33 is more than the teacher's 32 positions"),
        ({"hidden": 96}, "wider"),
        ({"teacher": "./nowhere"}, "there is no such folder"),
        ({"lr": 1e30, "init": "random"}, "no longer a number after .* steps; use a lower learning rate"),
    ],
)
def test_settings_that_do_not_fit(
    texts: list[str], settings: DistillSettings, tmp_path: Path, change: dict[str, Any], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        distill(texts, settings.model_copy(update=change), tmp_path)


def test_texts_and_device_that_do_not_fit(texts: list[str], settings: DistillSettings, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no text to learn from: no texts given"):
        distill([], settings, tmp_path)
    with pytest.raises(InputError, match="no text to learn from: every text is empty"):
        distill(["", " "], settings, tmp_path)
    with pytest.raises(InputError, match="device 'abacus' cannot be used here"):
        distill(texts, settings, tmp_path, device="abacus")
    (tmp_path / "file").write_text("x")
    with pytest.raises(InputError, match="cannot write"):
        distill(texts, settings, tmp_path / "file")


def test_a_full_disk_leaves_no_student_behind(texts: list[str], settings: DistillSettings, tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, hard))
    try:
        with pytest.raises(InputError, match=r"cannot write .*"):
            distill(texts, settings, tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert not list(tmp_path.glob("student-*[!t]"))
    assert not distill(texts, settings, tmp_path).cached


def test_a_damaged_checkpoint_says_so(texts: list[str], settings: DistillSettings, tmp_path: Path) -> None:
    def stop(stage: str, done: int, total: int, note: str) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        distill(texts, settings, tmp_path, progress=stop)
    student = distill(texts, settings, tmp_path)
    working = student.path.with_name(student.path.name + ".part")
    shutil.rmtree(student.path)
    working.mkdir(exist_ok=True)
    (working / "checkpoint.safetensors").write_bytes(b"nonsense")
    with pytest.raises(InputError, match=r"checkpoint.*damaged; delete it"):
        distill(texts, settings, tmp_path)


def test_a_lesson_has_the_attention_of_the_layers_that_are_named(texts: list[str], teacher: Path) -> None:
    """Layers count from 1; queries and keys of a layer are made of what the layer below it gives."""
    model, tokens = open_model(teacher, "cpu", attention="eager"), tokenise(open_tokenizer(teacher), texts, 16)
    lesson = _lessons(model, tokens, [np.arange(4)], [0, 1, 3], "cpu")(0)
    with torch.no_grad():
        states = model(lesson.ids, attention_mask=lesson.mask, output_hidden_states=True).hidden_states
        for layer, found in zip((1, 3), lesson.attention, strict=True):
            own = dict(model.named_parameters())
            heads, below = found.shape[1], states[layer - 1]
            query, key = (
                (below @ own[f"{name}.weight"].T + own[f"{name}.bias"]).unflatten(-1, (heads, -1)).transpose(1, 2)
                for name in (f"encoder.layer.{layer - 1}.attention.self.{part}" for part in ("query", "key"))
            )
            scores = query @ key.transpose(-1, -2) / query.shape[-1] ** 0.5
            scores = scores.masked_fill(lesson.mask[:, None, None] == 0, -torch.inf)
            torch.testing.assert_close(found, scores.softmax(-1), atol=1e-5, rtol=1e-4)
    assert torch.equal(lesson.embedding, states[0])
    assert torch.equal(lesson.last_hidden, states[-1])


def test_the_papers_student_has_14_5_million_parameters() -> None:
    from transformers import BertConfig

    config = student_config(DistillSettings(), BertConfig(vocab_size=30522))
    assert (config.num_hidden_layers, config.hidden_size, config.num_attention_heads) == (4, 312, 12)
    assert config.intermediate_size == 1200
    parameters = sum(p.numel() for p in new_student(config, 0).parameters())
    assert parameters == pytest.approx(14.5e6, rel=0.02)


def test_layer_maps() -> None:
    assert layer_map(DistillSettings(), 12) == [0, 3, 6, 9, 12]
    assert layer_map(DistillSettings(layers=2), 6) == [0, 3, 6]
    assert layer_map(DistillSettings(layers=2, layer_map=[5, 2]), 6) == [0, 5, 2]


# --- what a student kept


def vectors(rows: int, columns: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(rows, columns))


def test_nearest_equals_a_plain_loop() -> None:
    x = vectors(30, 4)
    for i in range(30):
        cosines = {j: x[i] @ x[j] / np.linalg.norm(x[i]) / np.linalg.norm(x[j]) for j in range(30) if j != i}
        assert nearest(x, 5)[i].tolist() == sorted(cosines, key=lambda j: -cosines[j])[:5]


def test_a_linear_image_is_recovered_and_noise_is_not() -> None:
    teacher = vectors(200, 6) + 3
    assert cosine_after_fit(teacher @ vectors(6, 6, 1) - 5, teacher, 0) == pytest.approx(1, abs=1e-9)
    centred = vectors(200, 6)
    judged = cosine_after_fit(vectors(200, 6, 2), centred, 0)
    assert judged is not None
    assert abs(judged) < 0.4


def test_overlap_of_same_and_of_unrelated_spaces() -> None:
    x = vectors(300, 8)
    rotation = np.linalg.qr(vectors(8, 8, 5))[0]
    assert neighbours_overlap(7 * x @ rotation, x) == 1
    unrelated = neighbours_overlap(vectors(300, 8, 9), x)
    assert unrelated == pytest.approx(10 / 299, abs=0.02)


def test_too_few_texts_are_not_judged() -> None:
    assert cosine_after_fit(vectors(9, 8), vectors(9, 8), 0) is None
    assert neighbours_overlap(vectors(11, 3), vectors(11, 3), 10) is None
