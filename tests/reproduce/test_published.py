import pytest

from edgefr.studies.reproductions.f3crec import published

CELLS = [(key, name, row) for key, rows in published.TABLE_2.items() for name, row in rows.items()]


def test_every_data_set_backbone_metric_and_method_is_there():
    assert len(published.TABLE_2) == 4 * 3 * 2
    for (data, _, _), rows in published.TABLE_2.items():
        missing = set(published.METHODS) - set(rows)
        assert missing == ({"rlp2"} if data == "hetrec2011" else set())


def test_averages_are_those_of_the_blocks_but_for_the_misprints():
    off = {(key, name) for key, name, row in CELLS if abs(sum(row[:3]) / 3 - row.average) > 0.0002}
    assert off == {(key, name) for key, names in published.MISPRINTED.items() for name in names}


@pytest.mark.parametrize(("key", "name", "row"), CELLS)
def test_improvements_are_over_fine_tuning(key, name, row):
    if name == "ft":
        assert row.improvement is None
    elif key not in published.MISPRINTED:
        expected = 100 * (row.average / published.TABLE_2[key]["ft"].average - 1)
        assert row.improvement == pytest.approx(expected, abs=0.16)


@pytest.mark.parametrize("table", [published.TABLE_3, published.TABLE_6])
@pytest.mark.parametrize("data", ["ml-100k", "lastfm-2k"])
def test_ablations_agree_with_table_2_and_with_their_decreases(table, data):
    for at, metric in ((0, "NDCG@20"), (2, "Recall@20")):
        main = published.TABLE_2[data, "fedmf", metric]
        assert table[data]["f3crec"][at] == main["f3crec"].average
        assert table[data]["ft"][at] == main["ft"].average
        for row in table[data].values():
            decrease = None if row[at + 1] is None else 100 * (row[at] / table[data]["f3crec"][at] - 1)
            assert row[at + 1] == (None if decrease is None else pytest.approx(decrease, abs=0.1))


def test_differences_of_table_7():
    for rows in published.TABLE_7.values():
        for static, dynamic, difference in rows.values():
            assert dynamic - static == pytest.approx(difference, abs=1e-9)


def test_noise_of_table_8():
    for data, rows in published.TABLE_8.items():
        assert all(len(values) == len(published.NOISE) for values in rows.values())
        if data != "hetrec2011":  # whose first column is not Table 2's
            assert rows["NDCG@20"][0] == published.TABLE_2[data, "fedmf", "NDCG@20"]["f3crec"].average
