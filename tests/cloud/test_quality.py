import numpy as np
import pytest

from cloud.distill import cosine_after_fit, nearest, neighbours_overlap


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
