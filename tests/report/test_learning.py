"""The verdict on learning: it helped where it beats all that needs no learning by more than chance, and only there."""

import re

import numpy as np
import pytest

import edgefr
from edgefr.metrics.settings import CEILINGS, EASE, UNLEARNED, EvaluationSection
from edgefr.report.screen import _beside
from edgefr.report.verdict import Verdict
from edgefr.simulation.evaluation.measure import Measurements
from edgefr.simulation.summary.summary import learning

USERS = np.arange(200)
LEFT_OUT = {"protocol": "leave-one-out by clock time"}


def measured(**levels):
    """A table in which each name's metric is its level plus what all have in common."""
    common = np.random.default_rng(0).random(len(USERS))
    out = Measurements(EvaluationSection(), seed=0)
    for name, level in levels.items():
        own = np.random.default_rng(len(name)).normal(0, 0.01, len(USERS))
        out.users[name.replace("_", " "), "main", "full"] = (USERS, {"HR@5": common, "NDCG@5": common + level + own})
    return out


def said(**levels):
    found = measured(model=0.5, **levels)
    names = [name.replace("_", " ") for name in levels]
    return learning(found, "model", names, ["main"])


def test_it_helped_where_it_beats_everything():
    found = said(before_any_round=0.3, popularity=0.4, chance=0.0)
    assert found.helped
    assert str(found).startswith("model: learning helped: NDCG@5 1.0")
    assert str(found).endswith("over popularity, the best baseline")
    of_popularity = found.record()["against"]["popularity"]
    assert of_popularity["difference"] == pytest.approx(0.1, abs=0.005)
    assert 0.09 < of_popularity["low"] < of_popularity["difference"] < of_popularity["high"] < 0.11


@pytest.mark.parametrize("better", ["before_any_round", "popularity", "chance"])
@pytest.mark.parametrize("level", [0.5, 0.7])
def test_it_did_not_help_where_one_is_as_good(better, level):
    found = said(**{"before_any_round": 0.1, "popularity": 0.2, "chance": 0.0, better: level})
    assert not found.helped
    assert "learning helped" not in str(found)
    assert str(found).startswith(f"model: {Verdict.of('main', 'model', found.record()).words}: NDCG@5 ")
    name = better.replace("_", " ")
    assert str(found).count("against") == 1
    assert f"against {'the same model ' if name == UNLEARNED else ''}{name}" in str(found)
    gained = re.search(r", but (\S+) \[\S+ \S+\] over the same model before any round$", str(found))
    assert (gained is None) == (name == UNLEARNED), "what was gained is never left out"
    assert gained is None or float(gained[1]) == pytest.approx(0.4, abs=0.01)


def test_of_few_users_and_beside_nothing_it_is_not_said():
    found = measured(model=0.5, chance=0.0)
    for name in ("model", "chance"):
        users, metrics = found.users[name, "main", "full"]
        found.users[name, "main", "full"] = users[:9], {metric: values[:9] for metric, values in metrics.items()}
    few = learning(found, "model", ["chance"], ["main"])
    assert not few.helped
    assert "too few users to say" in str(few)
    assert "nan" not in str(few)
    assert learning(found, "model", [], ["main"]) is None
    assert few.record()["against"]["chance"]["low"] is None


def test_a_model_that_learned_nothing_ties_with_itself():
    found = measured(model=0.5)
    found.users[UNLEARNED, "main", "full"] = found.users["model", "main", "full"]
    assert not learning(found, "model", [UNLEARNED], ["main"]).helped


def test_full_ranking_decides_where_it_was_asked():
    found = measured(model=0.5, chance=0.0)
    found.users["model", "main", "sampled"] = found.users["chance", "main", "full"]
    assert learning(found, "model", ["chance"], ["main"]).ranking == "full"
    del found.users["model", "main", "full"]
    found.users["chance", "main", "sampled"] = found.users["chance", "main", "full"]
    assert learning(found, "model", ["chance"], ["main"]).ranking == "sampled"


def test_blocks_are_averaged():
    found = measured(model=0.5, chance=0.0)
    for name in ("model", "chance"):
        users, metrics = found.users[name, "main", "full"]
        found.users[name, "later", "full"] = users[:50], {n: 2 * values[:50] for n, values in metrics.items()}
    one = learning(found, "model", ["chance"], ["main", "later"])
    assert one.against[0].difference == pytest.approx(0.75, abs=0.01)
    assert one.users == 200


SMALL = [
    "data_options={users: 60, items: 120, interactions: 16}",
    "rounds=2",
    "evaluation.k=[5]",
    "model.dim=6",
]


@pytest.mark.parametrize(
    ("own", "stages"),
    [
        (["method=fedmf", "protocol.negatives=30"], 1),
        (["method=f3crec", "protocol.min_interactions=3", "protocol.increments=2"], 1),
        (["method=sasrec", "model.length=5", "protocol.gap_minutes=40000", "protocol.negatives=30"], 1),
    ],
)
def test_every_protocol_has_the_model_before_any_round(own, stages, tmp_path):
    run = edgefr.simulate(edgefr.load_experiment(overrides=SMALL + own), out=tmp_path / "r", bundles=False)
    summary = run.summary
    ((name, record),) = [(n, r) for found in summary["learning"].values() for n, r in found.items()]
    assert {UNLEARNED, "popularity", "chance"} <= record["against"].keys()
    assert record["helped"] == all((other["low"] or 0) > 0 for other in record["against"].values())
    ((line,),) = summary["verdicts"].values()
    assert line.startswith(f"{name}: {Verdict.of('main', name, record).words}: NDCG@5")
    assert ("learning helped" in line) == record["helped"]
    import pyarrow.parquet as pq

    rows = pq.read_table(run.path / "metrics.parquet").to_pylist()
    assert min(row["round"] for row in rows if row["round"] is not None) == 0


def first_lines(run):
    """What the first screen, the command that compares and the page say of a run."""
    from edgefr.report.web.answers import answers

    return " ".join(str(run.brief()).split()), answers(run.summary)[0]


def test_without_a_round_nothing_is_said_of_learning(tmp_path):
    small = edgefr.load_experiment(overrides=[*SMALL, "method=fedmf", "protocol.negatives=30", "rounds=0"])
    run = edgefr.simulate(small, out=tmp_path / "r", bundles=False)
    (record,) = run.summary["learning"]["main"].values()
    assert (record["learned"], record["helped"]) == (False, False)
    (line,) = run.summary["verdicts"]["main"]
    assert line.startswith("federated: the model has not been trained yet: NDCG@5")
    said, answer = first_lines(run)
    assert f"the model has not been trained yet (NDCG@5 {record['value']:.4f} before training)" in said
    assert "federated, before training" in said
    assert "learned 0." not in said
    assert (answer.words, answer.tone) == ("The model has not been trained yet", "neutral")
    page = (run.path / "report.html").read_text()
    assert "Learning curves" not in page, "a curve through one point"
    assert "Does learning help?" in page


@pytest.mark.parametrize("epochs", [0, 2])
def test_local_training_without_rounds_is_learning(epochs, tmp_path):
    local = [f"model.local_training_epochs={epochs}", "encoder.kind=hash", "protocol.negatives=30"]
    small = edgefr.load_experiment(overrides=[*SMALL[:1], SMALL[2], "method=transfr", *local, "rounds=0"])
    run = edgefr.simulate(small, out=tmp_path / "r", bundles=False)
    learned = {stage: record["learned"] for stage, record in run.summary["learning"]["main"].items()}
    assert learned == {"finetune": False, "localtrain": epochs > 0}
    assert ("the model has not been trained yet" in first_lines(run)[0]) == (epochs == 0)


def test_a_central_reference_learns_without_rounds(tmp_path):
    small = edgefr.load_experiment(overrides=[*SMALL[:1], SMALL[2], "method=ease", "protocol.negatives=30"])
    run = edgefr.simulate(small, out=tmp_path / "r", bundles=False)
    assert run.summary["rounds"] == 0
    assert all(record["learned"] for record in run.summary["learning"]["main"].values())
    assert "the model has not been trained yet" not in first_lines(run)[0]


def test_of_many_users_a_sample_is_kept():
    found = measured(model=0.5)
    kept = found.per_user(["model"], most=30)
    assert len(set(kept["user"].tolist())) == len(kept["user"]) == 30
    assert kept["NDCG@5"].tolist() == found.users["model", "main", "full"][1]["NDCG@5"][kept["user"]].tolist()
    assert found.per_user(["another"]) == {}


def test_metrics_of_single_users_stay_in_the_private_part(tmp_path):
    import pyarrow.parquet as pq

    small = edgefr.load_experiment(overrides=["method=fedmf", "protocol.negatives=30", *SMALL])
    run = edgefr.simulate(small, out=tmp_path / "r", bundles=False)
    path = run.path / "private" / "users.parquet"
    assert (path.parent.stat().st_mode & 0o777, path.stat().st_mode & 0o777) == (0o700, 0o600)
    rows = [row for row in pq.read_table(path).to_pylist() if row["ranking"] == "sampled"]
    assert {row["stage"] for row in rows} == {"federated", UNLEARNED}
    own = [row["NDCG@5"] for row in rows if row["stage"] == "federated"]
    assert np.mean(own) == pytest.approx(run.summary["metrics"]["NDCG@5"])
    assert len({row["user"] for row in rows}) == len(own)


def test_a_central_ceiling_decides_nothing_and_is_said_where_the_model_is_below_it():
    found = measured(model=0.5, popularity=0.4, **{"chance": 0.0})
    names = ["popularity", "chance"]
    for name, level in zip(CEILINGS, (0.9, 0.1), strict=True):
        users, metrics = found.users["model", "main", "full"]
        found.users[name, "main", "full"] = (
            users,
            {metric: values + level - 0.5 for metric, values in metrics.items()},
        )
    one = learning(found, "model", [*names, *CEILINGS], ["main"])
    assert one.helped
    assert [row.name for row in one.against] == names
    assert [row.name for row in one.ceilings] == list(CEILINGS)
    assert one.beside[0].name == EASE
    reached = f"{one.value + 0.4:.4f}"
    assert one.ceiling == f"{EASE} reaches {reached} on pooled data; the model is lower by 0.4000 [0.4000, 0.4000]"
    assert one.advice(LEFT_OUT) == "tune the method with edgefr tune, or run more rounds"
    assert one.advice({"protocol": "blocks by clock time"}) == "run more rounds"
    again = Verdict.of("main", "model", one.record())
    assert again == one
    old = {part: values for part, values in one.record().items() if part not in ("ceilings", "sampled")}
    assert (Verdict.of("main", "model", old).ceiling, Verdict.of("main", "model", old).disagreement) == (None, None)
    lower = learning(found, "model", [*names, CEILINGS[1]], ["main"])
    assert (lower.ceiling, lower.advice(LEFT_OUT)) == (None, None)


@pytest.mark.parametrize(("full", "sampled"), [(0.6, 0.4), (0.4, 0.6)])
def test_where_the_rankings_disagree_about_the_verdict_that_is_said(full, sampled):
    found = measured(model=0.5, popularity=full, chance=0.0)
    for name, level in (("model", 0.5), ("popularity", sampled), ("chance", 0.0)):
        users, metrics = measured(**{name: level}).users[name, "main", "full"]
        found.users[name, "main", "sampled"] = users, metrics
    one = learning(found, "model", ["popularity", "chance"], ["main"])
    assert (one.ranking, one.helped) == ("full", full < sampled)
    first, second = ("better", "not better") if full > sampled else ("not better", "better")
    assert re.fullmatch(
        rf"{first} than popularity on sampled candidates \(.+\), {second} in full ranking \(.+\); full ranking decides",
        one.disagreement,
    )
    assert f"rankings   {first} than popularity" in "\n".join(map(str, _beside(one, LEFT_OUT, 100)))
    found.users["popularity", "main", "sampled"] = found.users["popularity", "main", "full"]
    assert learning(found, "model", ["popularity", "chance"], ["main"]).disagreement is None


@pytest.mark.parametrize(
    ("better", "words"),
    [("popularity", "more rounds"), ("hybrid", "transfr"), ("before_any_round", "evaluation.keep=best")],
)
def test_where_learning_is_not_worth_it_what_to_change_is_said(better, words):
    found = said(**{"before_any_round": 0.1, "popularity": 0.2, "hybrid": 0.2, better: 0.7})
    assert words in found.advice(LEFT_OUT)
    assert any(words in line.plain for line in _beside(found, LEFT_OUT, 100))
    assert said(before_any_round=0.1, popularity=0.2).advice(LEFT_OUT) is None
