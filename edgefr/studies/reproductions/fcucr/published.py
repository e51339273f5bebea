"""These are the published numbers of "Learning Evolving Preferences" (FCUCR, WWW 2026), by table and data set.

Data sets carry this program's names. A pair is HR@10 and NDCG@10 over the target and 100 sampled items, mean of 5 runs.
"""

from __future__ import annotations

from collections.abc import Mapping

METRICS = ("HR@10", "NDCG@10")
DATA = ("xing", "retailrocket", "lastfm-1k", "tmall")

Pair = tuple[float, float]

_TABLE_2 = {
    "pfedrec": (0.1852, 0.0898, 0.2603, 0.1706, 0.1596, 0.0835, 0.2669, 0.1451),
    "fedrap": (0.2013, 0.1318, 0.3183, 0.2198, 0.2191, 0.1198, 0.2411, 0.1309),
    "gpfedrec": (0.1804, 0.0839, 0.2303, 0.1322, 0.1532, 0.0777, 0.2216, 0.1208),
    "dmi-gnn": (0.2561, 0.1584, 0.2876, 0.1983, 0.3216, 0.2060, 0.2068, 0.1145),
    "hearint": (0.1387, 0.0708, 0.2305, 0.1293, 0.2404, 0.1302, 0.2027, 0.1182),
    "miasrec": (0.1692, 0.0910, 0.2473, 0.1439, 0.2894, 0.1756, 0.2451, 0.1385),
    "gru4rec": (0.1765, 0.0939, 0.2392, 0.1432, 0.3291, 0.1918, 0.2274, 0.1248),
    "fcucr-gru4rec": (0.2311, 0.1563, 0.3454, 0.2687, 0.3362, 0.1946, 0.2394, 0.1420),
    "sasrec": (0.1800, 0.0954, 0.2574, 0.1527, 0.3271, 0.1907, 0.2898, 0.1571),
    "fcucr-sasrec": (0.2882, 0.1863, 0.3602, 0.2879, 0.3426, 0.1944, 0.3074, 0.1947),
    "tisasrec": (0.2375, 0.1549, 0.2608, 0.1602, 0.3359, 0.1964, 0.2718, 0.1507),
    "fcucr-tisasrec": (0.2983, 0.1891, 0.3750, 0.2996, 0.3553, 0.2187, 0.2967, 0.1593),
}
_TABLE_3 = {
    "fcucr-sasrec": _TABLE_2["fcucr-sasrec"],
    "no-tasd": (0.2731, 0.1795, 0.3360, 0.2590, 0.3309, 0.1967, 0.2926, 0.1860),
    "no-iupr": (0.2556, 0.1754, 0.3324, 0.2692, 0.3287, 0.1912, 0.2520, 0.1412),
}


def _by_data(rows: Mapping[str, tuple[float, ...]]) -> dict[str, dict[str, Pair]]:
    return {d: {row: (v[2 * at], v[2 * at + 1]) for row, v in rows.items()} for at, d in enumerate(DATA)}


TABLE_2 = _by_data(_TABLE_2)
TABLE_3 = _by_data(_TABLE_3)

WINDOWS = (1, 2, 3, 5, None)
"""Rounds whose prototypes are kept (Table 4); None: all."""

INTERVALS = (1, 2, 3, 4, 5)
"""Rounds from one transfer of prototypes to the next (Table 5)."""

TABLE_4: dict[str, tuple[Pair, ...]] = {
    "xing": ((0.2528, 0.1696), (0.2857, 0.1985), (0.2801, 0.1949), (0.2829, 0.1858), (0.2882, 0.1863)),
    "retailrocket": ((0.3360, 0.2767), (0.3427, 0.2744), (0.3817, 0.2974), (0.3737, 0.2936), (0.3602, 0.2879)),
    "lastfm-1k": ((0.2894, 0.1723), (0.3383, 0.2102), (0.3596, 0.2213), (0.3777, 0.2397), (0.3426, 0.1944)),
    "tmall": ((0.2921, 0.1821), (0.3144, 0.2034), (0.2961, 0.1883), (0.3007, 0.1931), (0.3074, 0.1947)),
}
TABLE_5: dict[str, tuple[Pair, ...]] = {
    "xing": ((0.2882, 0.1863), (0.2563, 0.1786), (0.2689, 0.1844), (0.2423, 0.1936), (0.2493, 0.2031)),
    "retailrocket": ((0.3602, 0.2879), (0.3562, 0.2781), (0.3360, 0.2654), (0.3199, 0.2648), (0.3118, 0.2524)),
    "lastfm-1k": ((0.3426, 0.1944), (0.3121, 0.1890), (0.2867, 0.1838), (0.2731, 0.1782), (0.2658, 0.1825)),
    "tmall": ((0.3074, 0.1947), (0.3008, 0.1921), (0.2965, 0.1884), (0.2889, 0.1850), (0.2915, 0.1873)),
}

SECONDS_4: dict[str, tuple[float, ...]] = {
    "xing": (622, 640, 649, 668, 672),
    "retailrocket": (41, 44, 48, 50, 62),
    "lastfm-1k": (2460, 2640, 2880, 3120, 4080),
    "tmall": (5400, 6060, 6480, 6720, 7980),
}
SECONDS_5: dict[str, tuple[float, ...]] = {
    "xing": (672, 643, 634, 619, 598),
    "retailrocket": (62, 58, 54, 48, 40),
    "lastfm-1k": (4080, 3780, 3000, 2880, 2760),
    "tmall": (7980, 7080, 6120, 5400, 4740),
}
"""Seconds per round as printed, on the authors' GPUs."""

TOP_K = (1, 5, 20, 100, 200, 1000)
LAMBDAS = (0.1, 1.0, 5.0, 10.0, 20.0, 50.0)
"""Points of Figure 3; the paper prints no numbers for them."""

NOISE = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6)
"""Standard deviations of the noise of Figure 7 (§5.6, D.2)."""

NOMINAL_EPSILON = {0.1: 48.45, 0.2: 24.22, 0.3: 16.15, 0.4: 12.11, 0.5: 9.69, 0.6: 8.07}
"""sqrt(2 ln(1.25 / delta)) / std with delta = 1e-5, which reproduces the printed 48.5 to 8.1 (§5.6): one release, of
sensitivity 1, as if the noise were Gaussian."""
