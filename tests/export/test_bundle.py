"""Exporting as used: which variant each class gets, what is written, how it compares, what is refused."""

import errno
import inspect
import shutil
from datetime import datetime
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch

import edgefr
from edge import Recommender, open_bundle
from edge.catalogue import Catalogue
from edgefr.cli.export import export as command
from edgefr.simulation.bundles import export_run
from export.batches import One
from export.bundle import Provenance
from export.model import HeldOut
from export.variants import ClassLimits, Rules
from privacy.errors import InputError
from tests.closeness import assert_same
from tests.export import worlds


def literal(kind: str, user: int) -> np.ndarray:
    """One user's scores of all items through the methods' own batch."""
    program, shared, private = worlds.trained(kind)
    mine = shared | {name: tensor[user] for name, tensor in private.items()}
    return worlds.literal(program, mine, worlds.column("history").of(user))


@pytest.mark.parametrize(
    ("kind", "variants"),
    [
        ("fedmf", ["f32", "f32", "f32", "i8"]),
        ("mean", ["f32", "f32", "i8", "i8"]),
        ("transfr", ["f32+encoder-f32", "f16+encoder-i8", "f16", "i8"]),
    ],
)
def test_every_class_gets_the_best_variant_that_fits(kind: str, variants: list[str]) -> None:
    out, rows = worlds.exported(kind)
    assert [rows[name]["variant"] for name in worlds.CLASSES] == variants
    assert [rows[name]["fits"] for name in worlds.CLASSES] == [True, True, True, False]
    for name, row in rows.items():
        stored = sum(p.stat().st_size for p in (out / name).rglob("*") if p.is_file() and p.name != "manifest.json")
        assert row["files_mb"] == pytest.approx(stored / 1e6)
        assert row["encoder"] is None or f"encoder-{row['encoder']}" in row["variant"]


@pytest.mark.parametrize("kind", ["fedmf", "fedncf", "pfedrec", "mean", "transfr"])
def test_fp32_bundles_score_like_the_program(kind: str) -> None:
    out, rows = worlds.exported(kind)
    recommender = Recommender(out / "laptop")
    for name in recommender.users:
        assert_same(recommender.scores(name), literal(kind, int(name[1:])), name=name)
    assert rows["laptop"]["parity_users"] == 3
    assert rows["laptop"]["max_score_error"] < 1e-5
    assert rows["laptop"]["top10_equal"] == 1.0


@pytest.mark.parametrize(("kind", "name"), [("transfr", "phone"), ("transfr", "speaker"), ("fedmf", "speaker")])
def test_the_row_reports_the_true_difference(kind: str, name: str) -> None:
    out, rows = worlds.exported(kind)
    recommender, errors, same = Recommender(out / name), [], []
    for user in recommender.users:
        expected, got = literal(kind, int(user[1:])), recommender.scores(user)
        errors.append(np.abs(expected - got).max())
        left = np.setdiff1d(np.arange(worlds.ITEMS), worlds.column("seen").of(int(user[1:])))
        best = [set(left[np.argsort(-s[left], kind="stable")[:10]]) for s in (expected, got)]
        same.append(best[0] == best[1])
    assert rows[name]["max_score_error"] == pytest.approx(max(errors), rel=0.05)
    assert rows[name]["top10_equal"] == np.mean(same)
    assert 1e-6 < rows[name]["max_score_error"] < 0.5


def test_a_bundle_has_the_documented_layout(tmp_path: Path) -> None:
    worlds.export(**worlds.arguments("transfr", tmp_path) | {"with_users": False})
    out, (carried, _) = tmp_path, worlds.exported("transfr")
    manifest = open_bundle(out / "phone").manifest
    assert [f.path for f in manifest.files] == [
        "MODEL_CARD.md",
        "adapters/shared.safetensors",
        "config.json",
        "index/ids.json",
        "index/text.f16.npy",
        "onnx/encoder.i8.onnx",
        "onnx/score.onnx",
        "private/init.safetensors",
        "tokenizer.json",
    ]
    assert (manifest.method, manifest.device_class, manifest.serial) == ("transfr", "phone", 1795255200)
    assert manifest.provenance == {"seed": 0, "data": "made up"}
    card = (out / "phone" / "MODEL_CARD.md").read_text()
    assert "Nobody's private state, history or name is in this bundle" in card
    assert "SIMULATED users" in (carried / "phone" / "MODEL_CARD.md").read_text()
    assert (manifest.model.users, open_bundle(carried / "phone").manifest.model.users) == (0, 3)
    assert {f.path for f in open_bundle(carried / "phone").manifest.files} - {f.path for f in manifest.files} == {
        "private/users.json",
        "private/users.safetensors",
    }
    assert "weights i8" in card
    assert "DOES NOT FIT" in (out / "speaker" / "MODEL_CARD.md").read_text()


def times(folder: Path) -> dict[Path, int]:
    """When each entry below a folder was last written."""
    return {path: path.stat().st_mtime_ns for path in sorted(folder.rglob("*"))}


def test_exporting_again_gives_the_same_bundle_and_changes_nothing(tmp_path: Path) -> None:
    first = worlds.export(**worlds.arguments("fedmf", tmp_path))
    before = times(tmp_path)
    second = worlds.export(**worlds.arguments("fedmf", tmp_path))
    assert [row["bundle_id"] for row in second] == [row["bundle_id"] for row in first]
    assert [row["written"] for row in first + second] == [True] * 4 + [False] * 4
    assert times(tmp_path) == before
    with pytest.raises(InputError, match=r"laptop holds another bundle .*choose another folder"):
        worlds.export(**worlds.arguments("fedmf", tmp_path) | {"created": "2027-01-01"})
    assert times(tmp_path) == before


def test_bundles_expire_when_asked_to(tmp_path: Path) -> None:
    arguments = worlds.arguments("fedmf", tmp_path / "a") | {
        "classes": {"laptop": ClassLimits(8000, 20)},
        "users_of": {},
    }
    days = 36_000  # the world's run was made in 2026
    worlds.export(**arguments, expires_days=days)
    manifest = open_bundle(tmp_path / "a" / "laptop").manifest
    assert manifest.expires == "2125-06-15T10:00:00+00:00"
    assert "refused by devices from 2125-06-15" in (tmp_path / "a" / "laptop" / "MODEL_CARD.md").read_text()
    with pytest.raises(InputError, match="expired on 2125-06-15"):
        open_bundle(tmp_path / "a" / "laptop", now=datetime(2125, 6, 16))
    assert worlds.export(**arguments, expires_days=days)[0]["written"] is False


def test_a_client_without_a_head_is_exported_without_one(tmp_path: Path) -> None:
    arguments = worlds.arguments("transfr", tmp_path) | {
        "encoder": None,
        "classes": {"laptop": ClassLimits(8000, 20)},
    }
    arguments |= {"private": {"user": arguments["private"]["user"]}, "users_of": {"laptop": [0, 5]}}
    worlds.export(**arguments)
    recommender = Recommender(tmp_path / "laptop")
    vectors = arguments["program"].vectors(arguments["shared"], One(*[torch.arange(worlds.ITEMS)] * 4))
    expected = vectors @ arguments["private"]["user"][5]
    assert_same(recommender.scores("u5"), expected)


def test_a_class_without_users_serves_new_devices(tmp_path: Path) -> None:
    arguments = worlds.arguments("fedmf", tmp_path)
    rows = worlds.export(**arguments | {"classes": {"laptop": ClassLimits(8000, 20)}, "users_of": {}, "seed": 4})
    assert (rows[0]["parity_users"], rows[0]["max_score_error"], rows[0]["top10_equal"]) == (0, None, None)
    fresh = arguments["program"].init_private(4, torch.tensor([worlds.USERS]))["user"][0]
    expected = arguments["shared"]["item"] @ fresh
    assert_same(Recommender(tmp_path / "laptop").scores(), expected)


def test_a_failed_write_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import privacy.files

    def full(folder: Path, target: Path) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(privacy.files.os, "rename", full)
    with pytest.raises(InputError, match=r"cannot write .*laptop: No space left on device; nothing was changed"):
        worlds.export(**worlds.arguments("fedmf", tmp_path))
    assert list(tmp_path.iterdir()) == []


def diverged(arguments: dict) -> dict:
    shared = {name: tensor.clone() for name, tensor in arguments["shared"].items()}
    shared["item"][3, 2] = float("nan")
    return {"shared": shared}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda a: {"classes": {}}, "no device classes"),
        (lambda a: {"classes": {"../x": ClassLimits(1, 1)}, "users_of": {}}, "cannot name a folder"),
        (lambda a: {"users_of": {"lapto": [0]}}, "unknown device class 'lapto'; did you mean 'laptop'"),
        (lambda a: {"users_of": {"laptop": [12]}}, "user number 12, but there are 12 users"),
        (lambda a: {"item_ids": ["i0"] * worlds.ITEMS}, "item ids repeat"),
        (
            lambda a: {"item_ids": ["i\x1b[2J", *a["item_ids"][1:]]},
            r"item id 'i\\x1b\[2J' has signs that cannot be shown",
        ),
        (lambda a: {"titles": ["x"]}, "60 ids, 1 titles"),
        (lambda a: {"users": ["u0"] * worlds.USERS}, "user ids repeat"),
        (lambda a: {"expires_days": 0}, "expires_days must be from 1 to 36,500, got 0"),
        (lambda a: {"created": "2020-01-01", "expires_days": 30}, "expired on 2020-01-31T00:00:00.00:00; give more"),
        (lambda a: {"created": "yesterday"}, "ISO 8601.*'yesterday'"),
        (lambda a: {"provenance": {"made": object()}}, "provenance 'made' is not plain JSON"),
        (lambda a: {"shared": {}}, "shared tensor 'item' is missing"),
        (lambda a: {"shared": a["shared"] | {"itme": a["shared"]["item"]}}, "'itme' is not one of fedmf's"),
        (lambda a: {"private": {"user": torch.zeros(12, 9)}}, r"'user' is \[12, 9\] instead of \[12, 8\]"),
        (
            lambda a: {"seen": worlds.Column(np.array([60]), np.array([0] * 12 + [1]))},
            "outside the catalogue",
        ),
        (lambda a: {"seen": worlds.Column(np.array([6]), np.array([0, 1]))}, "1 users instead of 12"),
        (diverged, "has diverged"),
    ],
)
def test_parts_that_do_not_belong_together_are_refused(change, message: str, tmp_path: Path) -> None:
    arguments = worlds.arguments("fedmf", tmp_path / "out")
    with pytest.raises(InputError, match=message):
        worlds.export(**arguments | change(arguments))
    assert not (tmp_path / "out").exists() or list((tmp_path / "out").iterdir()) == []


def test_a_history_is_asked_for(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="transfr reads past positives: give history"):
        worlds.export(**worlds.arguments("mean", tmp_path) | {"history": None})


def test_a_folder_that_holds_something_else_is_refused_first(tmp_path: Path) -> None:
    (tmp_path / "phone").mkdir()
    (tmp_path / "phone" / "thesis.txt").write_text("mine")
    with pytest.raises(InputError, match=r"phone is in the way: .*no manifest\.json"):
        worlds.export(**worlds.arguments("fedmf", tmp_path))
    assert [p.name for p in tmp_path.rglob("*")] == ["phone", "thesis.txt"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda s: (s / "tokenizer.json").unlink(), r"has no tokenizer\.json"),
        (lambda s: (s / "model.safetensors").unlink(), "does not load as a transformers folder"),
        (
            lambda s: (s / "model.safetensors").write_bytes(b"nothing"),
            "does not load as a transformers folder",
        ),
    ],
)
def test_a_broken_encoder_folder_is_refused(change, message: str, tmp_path: Path) -> None:
    broken = shutil.copytree(worlds.student(), tmp_path / "student")
    change(broken)
    with pytest.raises(InputError, match=message):
        worlds.export(**worlds.arguments("transfr", tmp_path / "out") | {"encoder": broken})


def test_settings_the_encoder_cannot_take_are_refused(tmp_path: Path) -> None:
    arguments = worlds.arguments("transfr", tmp_path)
    with pytest.raises(InputError, match=r"max_tokens must be from 3 to 32.*got 33"):
        worlds.export(**arguments | {"max_tokens": 33})
    with pytest.raises(InputError, match="unknown pooling 'max'"):
        worlds.export(**arguments | {"pooling": "max"})


def test_an_encoder_that_gives_other_vectors_on_the_device_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import export.encoders

    true = export.encoders.torch_vectors
    graph = onnx.load(worlds.exported("transfr")[0] / "laptop" / "onnx" / "encoder.f32.onnx")
    monkeypatch.setenv("EDGEFR_CACHE", str(tmp_path / "cache"))  # where no such encoder was staged before
    monkeypatch.setattr(export.encoders, "encoder_graph", lambda *arguments: graph)
    monkeypatch.setattr(export.encoders, "torch_vectors", lambda *arguments: true(*arguments) + np.float32(2e-4))
    with pytest.raises(InputError, match=r"its tokenizer\.json and its tokenizer disagree"):
        worlds.export(**worlds.arguments("transfr", tmp_path))


def test_only_offered_items_are_recommended(tmp_path: Path) -> None:
    arguments = worlds.arguments("mean", tmp_path / "bundles")
    worlds.export(**arguments, offered=[1, 4, 7])
    bundle = next(p for p in (tmp_path / "bundles").iterdir() if p.is_dir())
    allowed = {arguments["item_ids"][item] for item in (1, 4, 7)}
    recommender = Recommender(bundle)
    found = {item for user in [None, *recommender.users] for item, _, _ in recommender.recommend(10, user=user)}
    assert found
    assert found <= allowed


HELD = HeldOut(np.arange(12), np.arange(12) + 20)


def test_rows_say_what_a_variant_keeps_and_what_it_costs(tmp_path: Path) -> None:
    slow = ClassLimits(8000, 20, seconds=lambda work: work.flops / 1e9, watts=2.0)
    arguments = worlds.arguments("transfr", tmp_path) | {"classes": {"laptop": slow}, "users_of": {}}
    (row,) = worlds.export(**arguments, held_out=HELD)
    assert row["variant"] == "f16+encoder-f16"  # keeps all of f32's to the second place, at half the size
    assert 0.995 < row["overlap"] <= 1
    assert row["hr_kept"] == 1.0
    assert row["memory_mb"] == pytest.approx(20 + 32 + 10, abs=0.5)
    # 60 items x (48 x 16 + 16 x 8 + 8 x 16) values, and one text of 16 tokens
    assert row["latency_ms"] == pytest.approx(1e3 * (122880 + 1277952) / 1e9)
    assert row["energy_mj"] == pytest.approx(2 * row["latency_ms"])
    assert open_bundle(tmp_path / "laptop").manifest.model.memory_mb == pytest.approx(row["memory_mb"], abs=1e-3)


def test_a_class_whose_every_variant_loses_too_much_fails_the_export(tmp_path: Path) -> None:
    arguments = worlds.arguments("mean", tmp_path) | {"users_of": {}, "held_out": HELD}
    arguments |= {"classes": {"watch": ClassLimits(8000, 20, storage_mb=0.014)}}
    with pytest.raises(InputError, match=r"device class watch: all that fits loses too much \(i8 keeps 0\.\d{3} of"):
        worlds.export(**arguments, rules=Rules(min_overlap=1.0))
    assert not (tmp_path / "watch").exists()


def test_bundles_expire_a_year_after_their_run_unless_somebody_says_otherwise() -> None:
    assert Provenance("2100-01-01T00:00:00+00:00").expires == "2101-01-01T00:00:00+00:00"
    assert Provenance("2100-01-01T00:00:00+00:00", expires_days=None).expires is None
    for made in (edgefr.export, export_run, command):
        assert inspect.signature(made).parameters["expires_days"].default == 365


def test_titles_of_a_bundle_have_nothing_that_a_terminal_acts_on(tmp_path: Path) -> None:
    arguments = worlds.arguments("fedmf", tmp_path / "out")
    titles = ["Heat\t(1995)\n", "\x1b]0;here\x07Heat", "\ud800Heat\x00", "\u202etaeH", *arguments["titles"][4:]]
    made = worlds.export(**arguments | {"titles": titles})
    bundle = open_bundle(tmp_path / "out" / made[0]["class"])
    assert Catalogue(bundle).titles[:5] == ["Heat (1995)", "]0;hereHeat", "Heat", "taeH", titles[4]]


def test_the_int8_encoder_stays_close_to_torch() -> None:
    _, rows = worlds.exported("transfr")
    assert rows["laptop"]["encoder_cosine"] == pytest.approx(1.0, abs=1e-5)
    assert 0.97 < rows["phone"]["encoder_cosine"] < 0.99999
    assert rows["stick"]["encoder_cosine"] is None


def test_a_variant_that_loses_too_much_is_refused_and_said_so(tmp_path: Path) -> None:
    arguments = worlds.arguments("transfr", tmp_path) | {"users_of": {}, "held_out": HELD}
    arguments |= {"classes": {"phone": ClassLimits(8000, 20, storage_mb=0.075), "laptop": ClassLimits(8000, 20)}}
    found = {row["class"]: row for row in worlds.export(**arguments, rules=Rules(max_loss=0.99, min_overlap=0.0))}
    assert found["phone"]["variant"] == "f16+encoder-i4"
    assert found["phone"]["overlap"] < 1
    shutil.rmtree(tmp_path)
    strict = Rules(max_loss=0.99, min_overlap=(1 + found["phone"]["overlap"]) / 2)
    found = {row["class"]: row for row in worlds.export(**arguments, rules=strict)}
    assert found["phone"]["variant"] in ("f32", "f16", "i8")
    why = {one["variant"]: one["why"] for one in found["phone"]["considered"]}
    assert "of the top 10, less than" in why["f16+encoder-i4"]
    assert why[found["phone"]["variant"]] is None


def test_a_variant_that_is_asked_for_is_given_to_every_class_as_it_is(tmp_path: Path) -> None:
    """It may lose more than is allowed, and need more than a class has; the row says both."""
    arguments = worlds.arguments("transfr", tmp_path) | {"users_of": {}, "held_out": HELD}
    arguments |= {"classes": {"watch": ClassLimits(70, 20), "laptop": ClassLimits(8000, 20)}}
    rows = worlds.export(**arguments, rules=Rules(min_overlap=1.0, variant="i8"))
    assert [row["variant"] for row in rows] == ["i8", "i8"]
    assert [row["fits"] for row in rows] == [memory <= 0.8 * 70 for memory in (rows[0]["memory_mb"],)] + [True]
    assert open_bundle(tmp_path / "watch").manifest.variant == "i8"
    with pytest.raises(InputError, match="unknown variant 'i9'"):
        worlds.export(**arguments | {"out": tmp_path / "other"}, rules=Rules(variant="i9"))


def test_bundles_of_an_export_share_their_files_and_each_opens_alone(tmp_path: Path) -> None:
    """What is the same in two classes lies on the disk once, and a copy of one folder is whole."""
    arguments = worlds.arguments("transfr", tmp_path / "out") | {"users_of": {}}
    arguments |= {"classes": {"one": ClassLimits(8000, 20), "other": ClassLimits(8000, 20)}}
    worlds.export(**arguments)
    first, second = tmp_path / "out" / "one", tmp_path / "out" / "other"
    files = [file.relative_to(first) for file in first.rglob("*") if file.is_file()]
    apart = {"manifest.json", "MODEL_CARD.md", "config.json", "private/users.json", "private/users.safetensors"}
    assert {str(name) for name in files if not (first / name).samefile(second / name)} == apart
    shutil.copytree(first, tmp_path / "alone")
    shutil.rmtree(tmp_path / "out")
    assert open_bundle(tmp_path / "alone").manifest.device_class == "one"
    assert all(file.stat().st_nlink == 1 for file in (tmp_path / "alone").rglob("*") if file.is_file())


def test_where_a_file_system_links_nothing_files_are_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*names: object) -> None:
        raise OSError(errno.EPERM, "no links here")

    monkeypatch.setattr("os.link", refused)
    arguments = worlds.arguments("mean", tmp_path) | {"users_of": {}}
    arguments |= {"classes": {"one": ClassLimits(8000, 20), "other": ClassLimits(8000, 20)}}
    worlds.export(**arguments)
    assert open_bundle(tmp_path / "one").manifest.variant == open_bundle(tmp_path / "other").manifest.variant
    assert not (tmp_path / "one/config.json").samefile(tmp_path / "other/config.json")
