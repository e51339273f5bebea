"""Which variant a class gets: the best that fits and keeps enough, or one line that says why there is none."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from export.quality import Quality
from export.variants import (
    Candidate,
    ClassLimits,
    GraphCost,
    Rules,
    Size,
    Variant,
    choose,
    energy_j,
    excess,
    latency_s,
    memory_mb,
    variants_of,
    why_not,
)
from privacy.errors import InputError

ROOMY = ClassLimits(8000, 46)


def quality(overlap: float, kept: float = 1.0) -> Quality:
    return Quality(100, overlap, 0.5 * kept, kept)


def candidate(table: str, encoder: str | None, files_mb: float, overlap: float = 1.0, kept: float = 1.0) -> Candidate:
    size = Size(int(files_mb * 1e6), int(0.9e6 * files_mb) if encoder else 0)
    return Candidate(Variant(table, encoder), size, (), quality(overlap, kept))


USUAL = [
    candidate("f32", "f32", 30),
    candidate("f16", "f16", 15, 0.9996),
    candidate("f16", "i8", 8, 0.97),
    candidate("f16", "i4", 7, 0.91),
    candidate("f32", None, 2),
    candidate("f16", None, 1, 0.999),
    candidate("i8", None, 0.5, 0.98),
]


def name(choice) -> str:
    return choice.candidate.variant.name


@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        (ClassLimits(8000, 46), "f16+encoder-f16"),  # as good as f32 to the second place, and half the size
        (ClassLimits(128, 46), "f16+encoder-i8"),  # 102.4 MB, of which 46 + 32 + 10 are taken
        (ClassLimits(8000, 46, storage_mb=7.5), "f16+encoder-i4"),
        (ClassLimits(8000, 46, storage_mb=6.9), "f16"),
        (ClassLimits(8000, 46, storage_mb=0.9), "i8"),
    ],
)
def test_the_best_that_fits(limits: ClassLimits, expected: str) -> None:
    choice = choose(USUAL, "phone", limits, Rules())
    assert (name(choice), choice.lacks) == (expected, None)


@given(
    st.permutations(USUAL),
    st.floats(0, 300),
    st.none() | st.floats(0.6, 40),
    st.floats(0, 0.2),
    st.floats(0.85, 1),
)
def test_nothing_better_fits_and_order_does_not_matter(
    candidates: list[Candidate], app: float, storage: float | None, loss: float, overlap: float
) -> None:
    limits, rules = ClassLimits(app, 46, storage), Rules(loss, overlap)

    def fine(c: Candidate) -> bool:
        stored = storage is None or c.size.files <= storage * 1e6
        enough = c.quality.overlap >= overlap and c.quality.kept >= 1 - loss
        return stored and memory_mb(c, limits) <= 0.8 * app and enough

    def rank(c: Candidate) -> tuple:
        return c.variant.encoder is not None, round(min(c.quality.overlap, c.quality.kept, 1), 2), -c.size.files

    best = max(filter(fine, candidates), key=rank, default=None)
    try:
        choice = choose(candidates, "phone", limits, rules)
    except InputError:
        assert best is None
        return
    if best is None:
        assert choice.candidate.variant.encoder is None
        assert choice.lacks
    else:
        assert choice.candidate == best
        assert choice.lacks is None
        assert not [c for c in candidates if rank(c) > rank(best) and why_not(c, limits, rules) is None]


def reasons(candidates: Sequence[Candidate], limits: ClassLimits, rules: Rules) -> dict[str, str | None]:
    return {c.variant.name: why_not(c, limits, rules) for c in candidates}


def test_a_variant_that_loses_too_much_is_refused_for_every_class() -> None:
    lossy = [replace(c, quality=quality(0.99, 0.94)) if c.variant.encoder in ("f16", "i8") else c for c in USUAL]
    limits, rules = ClassLimits(8000, 46, storage_mb=20), Rules(max_loss=0.05)
    assert name(choose(lossy, "phone", limits, rules)) == "f16+encoder-i4"
    refused = reasons(lossy, limits, rules)
    assert refused["f16+encoder-f16"] == "keeps 0.940 of HR@10, less than 0.950"
    assert refused["f32+encoder-f32"] == "needs 30 MB of storage, has 20"
    limits, rules = ClassLimits(8000, 46, storage_mb=7.5), Rules(min_overlap=0.95)
    assert reasons(USUAL, limits, rules)["f16+encoder-i4"] == "keeps 0.910 of the top 10, less than 0.950"
    assert name(choose(USUAL, "phone", limits, rules)) == "f16"


def test_a_graph_that_is_not_sound_is_never_used() -> None:
    choice = choose([replace(USUAL[0], unfit="mean cosine 0.1 to torch"), *USUAL[2:]], "phone", ROOMY, Rules())
    assert name(choice) == "f16+encoder-i8"
    some = [replace(USUAL[1], unfit="mean cosine 0.1 to torch"), USUAL[4]]
    assert reasons(some, ROOMY, Rules()) == {"f16+encoder-f16": "mean cosine 0.1 to torch", "f32": None}
    assert name(choose(some, "phone", ROOMY, Rules())) == "f32"


def test_cached_vectors_are_the_floor_even_where_they_do_not_fit() -> None:
    choice = choose(USUAL, "watch", ClassLimits(60, 46), Rules())
    assert (name(choice), choice.lacks) == ("i8", "needs 78.5 MB of memory, has 48")
    choice = choose(USUAL, "watch", ClassLimits(60, 46), Rules(min_overlap=0.99))
    assert name(choice) == "f16"  # the smallest that keeps enough


def test_memory_follows_from_sizes_alone() -> None:
    """By what a process took on a host the same run shipped other files from two of five hosts."""
    plain = USUAL[1]
    assert memory_mb(plain, ROOMY) == pytest.approx(46 + 32 + 10 + 15)
    assert memory_mb(USUAL[5], ROOMY) == pytest.approx(46 + 32 + 1)
    assert memory_mb(plain, ClassLimits(8000, 20)) == pytest.approx(20 + 32 + 10 + 15)
    assert excess(plain, ClassLimits(110, 46), Rules()) == "needs 103 MB of memory, has 88"


def test_deadline_and_energy_are_those_of_the_class() -> None:
    works = (GraphCost(40e6, 1e6), GraphCost(60e6, 2e6, integer=True))
    slow = ClassLimits(8000, 46, seconds=lambda work: work.flops / (2e9 if work.integer else 1e9), watts=2.5)
    one = replace(USUAL[1], works=works)
    assert latency_s(one, slow) == pytest.approx(0.07)
    assert energy_j(one, slow) == pytest.approx(0.175)
    assert excess(one, slow, Rules(deadline_s=0.05)) == "needs 70 ms, has 50"
    assert excess(one, slow, Rules(budget_j=0.1)) == "needs 175 mJ, has 100"
    assert excess(one, slow, Rules(deadline_s=0.071, budget_j=0.18)) is None
    assert latency_s(one, ROOMY) is None
    assert excess(one, ROOMY, Rules(deadline_s=1e-9, budget_j=1e-9)) is None
    assert name(choose([one, *USUAL[4:]], "watch", slow, Rules(deadline_s=0.05))) == "f16"


def test_when_all_that_fits_loses_too_much_the_export_fails_naming_class_and_figures() -> None:
    only_i8 = ClassLimits(8000, 46, storage_mb=0.6)
    with pytest.raises(InputError, match=r"device class watch: .*\(i8 keeps 0\.980 of the top 10, less than 0\.990\)"):
        choose(USUAL, "watch", only_i8, Rules(min_overlap=0.99))
    with pytest.raises(InputError, match=r"i8 keeps 0\.980"):
        choose([USUAL[-1]], "watch", ClassLimits(1, 46), Rules(min_overlap=0.99))


def test_without_measurements_the_larger_is_the_better() -> None:
    unknown = [replace(c, quality=None) for c in USUAL]
    assert name(choose(unknown, "phone", ROOMY, Rules())) == "f32+encoder-f32"
    assert name(choose(unknown, "phone", ClassLimits(8000, 46, storage_mb=10), Rules())) == "f16+encoder-i8"


def test_every_encoder_is_paired_once() -> None:
    names = [variant.name for variant in variants_of(["f32", "i4", "1x84-f32", "1x84-i8"])]
    assert names == [
        "f32+encoder-f32",
        "f16+encoder-i4",
        "f32+encoder-1x84-f32",
        "f16+encoder-1x84-i8",
        "f32",
        "f16",
        "i8",
    ]
