import numpy as np
import pytest

from edgefr.data.datasets import load
from edgefr.data.readers import demo
from edgefr.data.readers.demo import STYLES, TOPICS
from edgefr.data.splits.leave_one_out import CrossDomain, LeaveOneOut
from edgefr.simulation.evaluation import references
from edgefr.simulation.evaluation.ranking import evaluate
from privacy.errors import InputError


def bags_of_words(texts):
    """Word counts per text: the plainest text vectors there are."""
    split = [text.lower().replace(".", " ").replace(",", " ").split() for text in texts]
    number = {word: n for n, word in enumerate(sorted({w for words in split for w in words}))}
    out = np.zeros((len(texts), len(number)), np.float32)
    for row, words in enumerate(split):
        np.add.at(out[row], [number[w] for w in words], 1)
    seen = (out > 0).mean(axis=0)
    return out * -np.log(seen)  # rare words tell more


@pytest.fixture(scope="module")
def table():
    return load("demo")


def test_same_seed_same_data_and_parts_change_nothing(table, monkeypatch):
    monkeypatch.setattr(demo, "_USERS_AT_ONCE", 77)
    again, other = load("demo"), load("demo", seed=1)
    for name in ("user", "item", "time", "offsets"):
        assert (getattr(table, name) == getattr(again, name)).all()
    assert table.catalogue.text == again.catalogue.text
    assert table.catalogue.text != other.catalogue.text
    assert len(table.item) != len(other.item) or (table.item != other.item).any()


def test_shape_of_the_default(table):
    found = table.statistics()
    assert (found["users"], found["listed_items"], found["items_with_text"]) == (600, 800, 800)
    assert found["repeated_pairs"] == 0
    assert found["items_per_user"]["mean"] == pytest.approx(30, rel=0.1)
    assert found["users_in_several_domains"] == pytest.approx(0.7 * 600, rel=0.1)
    assert set(found["domains"]) == {"books", "films"}
    counts = np.diff(table.offsets)
    assert counts.max() > 5 * np.median(counts)  # users of very different activity
    popular = np.sort(np.bincount(table.item, minlength=800))[::-1]
    assert popular[:80].sum() > 3 * popular[400:480].sum()
    steps = np.diff(table.time)[table.user[1:] == table.user[:-1]]
    assert (steps >= 0).all()


def test_size_follows_the_options():
    table = load("demo", options={"users": 2000, "items": 100, "interactions": 8})
    assert len(table.users) == len(table.offsets) - 1 == 2000
    assert len(table.catalogue) == 100
    assert len(table.item) / 2000 == pytest.approx(8, rel=0.15)
    assert np.diff(table.offsets).max() <= 25


def test_tastes_drift():
    """What users have late is nearer to the rest of what they have late than to what they had early."""
    table = load("demo", options={"users": 3000})
    topics = list(TOPICS)
    topic = np.array([topics.index(text.split(", ")[1]) for text in table.catalogue.text])[table.item]
    late = table.time >= np.quantile(table.time, 0.75)
    early = table.time <= np.quantile(table.time, 0.25)

    def taste(rows):
        out = np.zeros((3000, len(topics)))
        np.add.at(out, (table.user[rows], topic[rows]), 1)
        return out

    odd = np.arange(len(topic)) % 2 == 1
    one, two, before = taste(late & odd), taste(late & ~odd), taste(early)
    both = (one.sum(1) > 3) & (two.sum(1) > 3) & (before.sum(1) > 3)

    def likeness(a, b):
        unit = [x[both] / np.linalg.norm(x[both], axis=1, keepdims=True) for x in (a, b)]
        return (unit[0] * unit[1]).sum(1).mean()

    assert both.sum() > 100
    assert likeness(one, two) > likeness(one, before) + 0.1


def test_texts_tell_topic_and_style(table):
    assert len(set(table.catalogue.text)) > 780
    assert all(len(words) == 10 for words in TOPICS.values())
    for text in table.catalogue.text:
        category, title, rest = text.split(". ", 2)
        domain, topic, style = category.split(", ")
        assert domain in ("Books", "Films")
        assert sum(word in text.lower() for word in TOPICS[topic]) >= 4
        assert STYLES[style][1] in rest
        assert title


def test_text_carries_taste_within_and_across_domains(table):
    vectors = bags_of_words(table.catalogue.text)
    (main,) = LeaveOneOut().apply(table, 0)
    source, target = CrossDomain(source="books", target="films").apply(table, 0)

    def hits(scorer, split):
        return evaluate(scorer, split, "test", "sampled").metrics([10])["HR@10"]

    for split, train in ((main, True), (source, True), (target, False)):
        floor = hits(references.random(0, split), split)
        assert floor == pytest.approx(0.1, abs=0.05)
        assert hits(references.popularity(split), split) > 0.2
        assert hits(references.text_mean(vectors, split, train=train), split) > 0.35


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"user": 5}, "option user of data set 'demo': unknown key 'user'; did you mean 'users'"),
        ({"users": 0}, "option users of data set 'demo': .*greater than or equal to 1; got 0"),
        ({"items": 50}, "option items of data set 'demo': .*100"),
        ({"interactions": float("nan")}, "option interactions of data set 'demo'"),
    ],
)
def test_wrong_options_are_refused(options, message):
    with pytest.raises(InputError, match=message):
        load("demo", options=options)
