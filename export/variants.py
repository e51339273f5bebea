"""Which bundle a device class gets: the best variant that fits its memory and storage."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from edge.manifest import TableType

SHARE = 0.8  # of the memory an app may use: the rest is for what is not modelled
# measured with bundles of 0.3 to 90 MB in Python: fits their peak memory within 2 MB
LIBRARIES_MB = 30.0  # what the device code loads beside the bare runtime, and one call's buffers
ENCODER_MB = 20.0  # tokenizer and one text's activations
ENCODER_SHARE = 0.5  # of the encoder's file, held twice while it loads


@dataclass(frozen=True)
class ClassLimits:
    """What a class allows, MB (10^6 bytes): memory of an app and of the bare runtime, storage (None: any)."""

    app_mb: float
    runtime_mb: float
    storage_mb: float | None = None


@dataclass(frozen=True)
class Variant:
    """Type of the cached item vectors, and of the encoder's weights (None: no encoder)."""

    table: TableType
    encoder: Literal["i8", "f32"] | None

    @property
    def name(self) -> str:
        """For example "f16+encoder-i8" or "i8"."""
        return self.table if self.encoder is None else f"{self.table}+encoder-{self.encoder}"


@dataclass(frozen=True)
class Size:
    """Bytes of a variant: every file a device keeps, and those of the encoder alone."""

    files: int
    encoder: int


# best first; the last of each is the floor every class gets
WITH_ENCODER = (Variant("f32", "f32"), Variant("f16", "i8"), Variant("f16", None), Variant("i8", None))
TABLES_ONLY = (Variant("f32", None), Variant("f16", None), Variant("i8", None))


def memory_mb(size: Size, limits: ClassLimits) -> float:
    """Estimated peak memory, MB: runtime, libraries, files, and what an encoder needs to load and run."""
    encoder = ENCODER_SHARE * size.encoder / 1e6 + ENCODER_MB if size.encoder else 0.0
    return limits.runtime_mb + LIBRARIES_MB + size.files / 1e6 + encoder


def choose(sizes: Mapping[Variant, Size], limits: ClassLimits) -> tuple[Variant, bool]:
    """The first of `sizes` (best first) within 0.8 of the app's memory and the storage; whether it fits.

    When none does, the last one (cached int8 vectors) with False.

    >>> sizes = {Variant("f16", "i8"): Size(20_000_000, 14_000_000), Variant("i8", None): Size(1_000_000, 0)}
    >>> choose(sizes, ClassLimits(app_mb=150, runtime_mb=20))
    (Variant(table='f16', encoder='i8'), True)
    >>> choose(sizes, ClassLimits(app_mb=80, runtime_mb=20))
    (Variant(table='i8', encoder=None), True)
    """
    for variant, size in sizes.items():
        stored = limits.storage_mb is None or size.files / 1e6 <= limits.storage_mb
        if stored and memory_mb(size, limits) <= SHARE * limits.app_mb:
            return variant, True
    return list(sizes)[-1], False
