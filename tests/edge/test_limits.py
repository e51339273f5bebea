"""Limits of training: what is exceeded, and from when on."""

from __future__ import annotations

import pytest

from edge import limited_process as limits
from edge.limited_process import Limits
from privacy.errors import InputError


def test_time_is_up_after_its_seconds_and_not_at_them(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(limits.time, "monotonic", lambda: now[0])
    exceeded = Limits(seconds=5).start()
    for later, expected in ((0.0, None), (5.0, None), (5.5, "time")):
        now[0] = 100.0 + later
        assert exceeded() == expected


def test_memory_is_exceeded_above_its_megabytes_and_not_at_them(monkeypatch: pytest.MonkeyPatch) -> None:
    used = [40.0]
    monkeypatch.setattr(limits, "resident_mb", lambda: used[0])
    exceeded = Limits(ram_mb=50).start()
    for megabytes, expected in ((40.0, None), (50.0, None), (50.5, "memory")):
        used[0] = megabytes
        assert exceeded() == expected
    assert Limits().start()() is None


@pytest.mark.parametrize("values", [{"ram_mb": 0}, {"seconds": 0}, {"seconds": -1}, {"ram_mb": float("nan")}])
def test_limits_are_above_0(values: dict[str, float]) -> None:
    with pytest.raises(InputError, match=f"max_{next(iter(values))} must be above 0"):
        Limits(**values)
