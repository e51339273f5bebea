"""These are FedCAR's printed numbers: HR@10 and NDCG@10 on sampled candidates (Tables 2 and 3), and its noise."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

DATA = ("ml-100k", "ml-latest-small")
"""The paper has no MovieLens-latest-small; its other data sets have no recipes here."""
METRICS = ("HR@10", "NDCG@10")

Row = tuple[float, float]

TABLE_2: Mapping[str, Mapping[str, Row]] = {
    "ml-100k": {
        "mf-bpr": (0.6617, 0.3884),
        "mf-bce": (0.6617, 0.3884),
        "neumf": (0.6416, 0.3682),
        "fedmf": (0.1782, 0.0900),
        "fedncf": (0.1208, 0.0531),
        "fedrecon": (0.3584, 0.1948),
        "pfedrec": (0.5101, 0.2754),
        "gpfedrec": (0.5027, 0.2754),
        "fedcar": (0.5270, 0.2837),
    },
}
TABLE_3: Mapping[str, Mapping[str, Row]] = {
    "ml-100k": {"fedcar": (0.5270, 0.2837), "fedcar-context": (0.5175, 0.2830), "gpfedrec": (0.5027, 0.2754)},
}
NOISE: Sequence[float] = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5)
"""The scales of Figure 5, which the paper draws for Last.fm-2K and prints no numbers of."""
