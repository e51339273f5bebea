"""This measures how much of the teacher's space a student keeps, judged on vectors of the same texts."""

import numpy as np
import numpy.typing as npt

from cloud import random_streams as purposes
from privacy import keyed

Matrix = npt.NDArray[np.floating]


def cosine_after_fit(student: Matrix, teacher: Matrix, seed: int) -> float | None:
    """Return the mean cosine between teacher vectors and the best linear map of student vectors, on held-out texts.

    `student` [n, f], `teacher` [n, f']. The map (with an offset) is fitted by least squares on a keyed 80 % of the
    texts and judged on the rest. None when there are too few texts to fit it (fewer than f + 1 to fit on).
    """
    count, width = student.shape
    held_out = np.zeros(count, dtype=bool)
    held_out[keyed.choose(keyed.key(seed, purposes.HELD_OUT), np.arange(count), count // 5)] = True
    if not held_out.any() or count - held_out.sum() <= width:
        return None
    inputs = np.hstack([student, np.ones((count, 1))]).astype(np.float64)
    fit, *_ = np.linalg.lstsq(inputs[~held_out], teacher[~held_out].astype(np.float64), rcond=None)
    return float((unit(inputs[held_out] @ fit) * unit(teacher[held_out])).sum(1).mean())


def neighbours_overlap(student: Matrix, teacher: Matrix, count: int = 10) -> float | None:
    """Return the share of each text's `count` nearest neighbours that both spaces agree on, mean over texts.

    `student` [n, f], `teacher` [n, f']; a text is not its own neighbour. None when there are no more than
    `count` other texts, since every text would be everyone's neighbour.
    """
    if len(student) <= count + 1:
        return None
    mine, theirs = (nearest(vectors, count) for vectors in (student, teacher))
    return float((mine[:, :, None] == theirs[:, None, :]).any(2).mean())


def nearest(vectors: Matrix, count: int) -> npt.NDArray[np.int64]:
    """Return the `count` other rows of highest cosine, nearest first, ties by number: [n, count]."""
    normal = unit(vectors)
    similarity = normal @ normal.T
    np.fill_diagonal(similarity, -np.inf)
    return np.argsort(-similarity, axis=1, kind="stable")[:, :count]


def unit(vectors: Matrix) -> Matrix:
    """Return rows of length 1; a zero row stays zero."""
    length = np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors / np.where(length == 0, 1, length)
