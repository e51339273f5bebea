"""Printed numbers agree with one another, so that none is a slip of ours."""

import pytest

from edgefr.studies.reproductions.f3crec.recipes import LABELS
from edgefr.studies.reproductions.f3crec.tables import METHODS, misprints
from edgefr.studies.reproductions.published import published

F3CREC = published("f3crec", "table-2")
MISPRINTED = {
    ("ml-latest-small", "pfedrec", "Recall@20"): ["rlp2"],
    ("lastfm-2k", "fedncf", "NDCG@20"): ["kd", "rlp2", "spp", "f3crec"],
    ("hetrec2011", "fedmf", "Recall@20"): ["f3crec"],
    ("hetrec2011", "fedncf", "Recall@20"): ["spp", "f3crec"],
}


def test_every_data_set_backbone_metric_and_method_is_there_but_for_one_without_memory():
    places = {key[:3] for key in F3CREC}
    assert len(places) == 4 * 3 * 2
    missing = {(*place, row) for place in places for row in METHODS} - F3CREC.keys()
    assert {(data, row) for data, _, _, row in missing} == {("hetrec2011", "rlp2")}
    assert len(missing) == 6


def test_averages_are_those_of_the_blocks_but_for_the_misprints():
    (said,) = misprints([*dict.fromkeys(data for data, *_ in F3CREC)])
    rows = {place: ", ".join(LABELS[row] for row in some) for place, some in MISPRINTED.items()}
    places = (f"{data} {LABELS[backbone]} {metric} ({rows[data, backbone, metric]})" for data, backbone, metric in rows)
    assert said.endswith(f"increments: {'; '.join(places)}")


def test_improvements_are_over_fine_tuning():
    for (*place, row), line in F3CREC.items():
        if row == "ft":
            assert line["over FT %"] is None
        elif tuple(place) not in MISPRINTED:
            expected = 100 * (line["mean"] / F3CREC[*place, "ft"]["mean"] - 1)
            assert line["over FT %"] == pytest.approx(expected, abs=0.16), (place, row)


@pytest.mark.parametrize("table", ["table-3", "table-6"])
def test_ablations_agree_with_table_2_and_with_their_decreases(table):
    rows = published("f3crec", table)
    assert len(rows) == 8
    for (data, row), line in rows.items():
        for metric in ("NDCG@20", "Recall@20"):
            whole = rows[data, "f3crec"][metric]
            if row in METHODS:
                assert line[metric] == F3CREC[data, "fedmf", metric, row]["mean"]
            decrease = None if row == "f3crec" else pytest.approx(100 * (line[metric] / whole - 1), abs=0.1)
            assert line[f"{metric} decrease %"] == decrease


def test_differences_of_table_7():
    for line in published("f3crec", "table-7").values():
        assert line["dynamic items"] - line["static items"] == pytest.approx(line["diff"], abs=1e-9)


def test_noise_of_table_8():
    rows = published("f3crec", "table-8")
    assert [noise for data, noise in rows if data == "ml-100k"] == ["0", "0.1", "0.2", "0.3", "0.4", "0.5"]
    for data in ("ml-100k", "ml-latest-small", "lastfm-2k"):  # hetrec2011's first column is not Table 2's
        assert rows[data, "0"]["NDCG@20"] == F3CREC[data, "fedmf", "NDCG@20", "f3crec"]["mean"]


def test_tables_of_fcucr_agree_with_one_another():
    two, three, four, five = (published("fcucr", f"table-{number}") for number in (2, 3, 4, 5))
    for data in ("xing", "retailrocket", "lastfm-1k", "tmall"):
        whole = two[data, "fcucr-sasrec"]
        assert three[data, "fcucr-sasrec"] == whole
        assert (
            four[data, "all"]
            == five[data, "1"]
            == whole | {"seconds per round": four[data, "all"]["seconds per round"]}
        )
    assert tuple(two["xing", "fcucr-tisasrec"].values()) == (0.2983, 0.1891)
    assert tuple(two["tmall", "gru4rec"].values()) == (0.2274, 0.1248)


@pytest.mark.parametrize("table", ["table-5", "table-6"])
def test_losses_of_transfr_follow_from_the_source_and_target(table):
    for (row,), line in published("transfr", table).items():
        tasks = [name.removesuffix(": source") for name in line if name.endswith(": source")]
        for task in tasks[:3]:
            lost = 100 * (1 - line[f"{task}: target"] / line[f"{task}: source"])
            assert line[f"{task}: lost %"] == pytest.approx(lost, abs=0.02), row
        for side in ("source", "target"):
            mean = sum(line[f"{task}: {side}"] for task in tasks[:3]) / 3
            assert line[f"average: {side}"] == pytest.approx(mean, abs=1.1e-4), row


def test_targets_of_transfr_are_those_of_cold_start_but_for_its_own_row():
    cold = published("transfr", "table-4")
    for table, metric in (("table-5", "HR@10"), ("table-6", "NDCG@10")):
        differ = {
            row
            for (row,), line in published("transfr", table).items()
            if any(cold[row,][f"{task}: {metric}"] != line[f"{task}: target"] for task in ("Music→Books", "average"))
        }
        assert differ == {"transfr"}
