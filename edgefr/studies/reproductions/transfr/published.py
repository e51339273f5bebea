"""These are TransFR's printed numbers of Tables 4 to 6: HR@10 and NDCG@10 of its three tasks, and their averages.

Its figures have no numbers. The data are not at hand, so nothing here is a number that one of ours should equal.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

METRICS = ("HR@10", "NDCG@10")
TASKS = ("Music→Books", "Music→Movies", "Books→Movies", "average")

LABELS: Mapping[str, str] = {
    "pmf": "PMF",
    "ncf": "NCF",
    "cmf": "CMF",
    "emcdr-lin": "EMCDR (linear)",
    "emcdr-mlp": "EMCDR (MLP)",
    "fcf": "FCF",
    "fedsasrec": "FedSASRec",
    "feddcsr": "FedDCSR",
    "transfr": "TransFR",
}
"""Rows in the paper's order, as it calls them."""

Row = Sequence[float]
"""Values by task, in the order of `TASKS`."""

SOURCE: Mapping[str, Mapping[str, Row]] = {
    "HR@10": {
        **dict.fromkeys(("pmf", "cmf", "emcdr-lin", "emcdr-mlp"), (0.2232, 0.2245, 0.1792, 0.2090)),
        "ncf": (0.2297, 0.2396, 0.1832, 0.2175),
        "fcf": (0.1533, 0.1803, 0.1220, 0.1519),
        "fedsasrec": (0.1723, 0.1903, 0.1419, 0.1682),
        "feddcsr": (0.2417, 0.2221, 0.1994, 0.2211),
        "transfr": (0.2386, 0.2311, 0.2146, 0.2281),
    },
    "NDCG@10": {
        **dict.fromkeys(("pmf", "cmf", "emcdr-lin", "emcdr-mlp"), (0.1392, 0.1132, 0.0921, 0.1148)),
        "ncf": (0.1401, 0.1212, 0.1021, 0.1211),
        "fcf": (0.0982, 0.0721, 0.0798, 0.0834),
        "fedsasrec": (0.1021, 0.0981, 0.0822, 0.0941),
        "feddcsr": (0.1192, 0.1143, 0.0943, 0.1093),
        "transfr": (0.1209, 0.1132, 0.1054, 0.1132),
    },
}
"""Tables 5 and 6: in the source."""

COLD: Mapping[str, Mapping[str, Row]] = {
    "HR@10": {
        "pmf": (0.1403, 0.1225, 0.1284, 0.1304),
        "ncf": (0.1692, 0.1294, 0.1309, 0.1432),
        "cmf": (0.1833, 0.1378, 0.1455, 0.1555),
        "emcdr-lin": (0.2009, 0.1488, 0.1483, 0.1660),
        "emcdr-mlp": (0.2149, 0.1893, 0.1652, 0.1898),
        "fcf": (0.1380, 0.1154, 0.1004, 0.1179),
        "fedsasrec": (0.1594, 0.1335, 0.1246, 0.1392),
        "feddcsr": (0.2217, 0.1881, 0.1719, 0.1939),
        "transfr": (0.2310, 0.2001, 0.1932, 0.2081),
    },
    "NDCG@10": {
        "pmf": (0.0707, 0.0619, 0.0597, 0.0641),
        "ncf": (0.0932, 0.0673, 0.0638, 0.0748),
        "cmf": (0.0955, 0.0764, 0.0662, 0.0794),
        "emcdr-lin": (0.1031, 0.0882, 0.0694, 0.0869),
        "emcdr-mlp": (0.1121, 0.0901, 0.0705, 0.0909),
        "fcf": (0.0663, 0.0583, 0.0421, 0.0556),
        "fedsasrec": (0.0943, 0.0754, 0.0501, 0.0733),
        "feddcsr": (0.1085, 0.0892, 0.0732, 0.0903),
        "transfr": (0.1126, 0.0934, 0.0830, 0.0963),
    },
}
"""Table 4: cold start in the target. Tables 5 and 6 print the same of everything but TransFR."""

TRANSFERRED: Mapping[str, Row] = {
    "HR@10": (0.2335, 0.2123, 0.2089, 0.2182),
    "NDCG@10": (0.1133, 0.0934, 0.0893, 0.0987),
}
"""Tables 5 and 6: TransFR in the target, after local training there."""

DELTA: Mapping[str, Mapping[str, Row]] = {
    "HR@10": {
        "pmf": (37.14, 45.43, 28.35, 37.60),
        "ncf": (26.34, 45.99, 28.55, 34.18),
        "cmf": (17.88, 38.62, 18.81, 25.57),
        "emcdr-lin": (9.99, 33.72, 17.24, 20.56),
        "emcdr-mlp": (3.72, 15.68, 7.81, 9.17),
        "fcf": (9.98, 36.00, 17.70, 22.34),
        "fedsasrec": (7.49, 29.85, 12.19, 17.24),
        "feddcsr": (8.27, 15.31, 13.79, 12.29),
        "transfr": (2.14, 8.14, 2.66, 4.33),
    },
    "NDCG@10": {
        "pmf": (49.21, 45.32, 35.18, 44.18),
        "ncf": (33.48, 44.47, 37.51, 38.28),
        "cmf": (31.39, 32.51, 28.12, 30.89),
        "emcdr-lin": (25.93, 22.08, 24.65, 24.33),
        "emcdr-mlp": (19.47, 20.41, 23.45, 20.84),
        "fcf": (32.48, 19.14, 47.24, 33.35),
        "fedsasrec": (7.64, 23.14, 39.05, 22.17),
        "feddcsr": (8.98, 21.96, 22.38, 17.36),
        "transfr": (6.29, 17.49, 15.28, 12.81),
    },
}
"""Tables 5 and 6: what is lost from source to target, in % of the source."""


def target(metric: str, row: str) -> Row:
    """Return what Tables 5 and 6 print of a row in the target."""
    return TRANSFERRED[metric] if row == "transfr" else COLD[metric][row]
