"""Served rounds whose uploads are summed under masks: exact, whoever goes away when, and no upload is in the clear."""

from __future__ import annotations

import json
import shutil
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from cloud.secure_sum import SecureSum
from edge.bundle import open_bundle
from edge.connection import Server
from edge.policy import OPEN, Policy
from edge.remote import TrafficCounts, join
from edge.secure_sum import Participant
from edge.sum_messages import STEPS, Asked, KeysMessage, Step
from edgefr.serving import secure_sums as sealing
from edgefr.serving.origin import Origin
from edgefr.serving.secure_sums import SealedRound, SumTerms, Total
from edgefr.serving.serve import serve
from edgefr.simulation.runs.run import Run
from edgefr.simulation.runs.upload_trust import SEEN, Collecting
from privacy.errors import InputError
from tests.cli.commands import edgefr
from tests.contract import bundles
from tests.devices import open_device
from tests.remote import worlds
from tests.remote.test_server import NUMBER, USER, Broker, one_line
from tests.remote.test_server import broker as broker
from tests.remote.worlds import CLASS, FEDMF, TRUSTED, Twins, killable, noisy, serving, session, take_part, time_up

SEALED = Collecting(sealed=True)
LOCAL: dict[str, Any] = {"privacy.trust": "local", "privacy.mechanism": "laplace", "privacy.sigma": 0.2}


@cache
def _local() -> Twins:
    """FedMF whose devices add the noise; its folders are only read."""
    return Twins.of(FEDMF | LOCAL, worlds.kept())


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps after the first do not wait long for who is gone."""
    monkeypatch.setattr(sealing, "STEP_S", 3.0)


class Heard:
    """The vectors that devices masked, and the totals that the server opened, by round."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch):
        self.vectors: list[list[npt.NDArray[np.int32]]] = []
        self.totals: list[Total | None] = []
        masked, collect = Participant.masked, SealedRound.collect

        def hides(part: Participant, vector: npt.NDArray[np.int32], inbox: Any) -> Any:
            found = masked(part, vector, inbox)
            self.vectors[-1].append(vector.copy())
            assert not np.array_equal(found.view(np.int32), vector)
            return found

        def collects(sealed: SealedRound, *asked: Any) -> Total | None:
            self.vectors.append([])
            self.totals.append(collect(sealed, *asked))
            return self.totals[-1]

        monkeypatch.setattr(Participant, "masked", hides)
        monkeypatch.setattr(SealedRound, "collect", collects)


def test_a_sealed_round_ends_where_a_plain_one_does_bit_for_bit(tmp_path: Path) -> None:
    """The same devices with the same releases, noise and all, once in the clear and once under masks."""
    plain = _local().own(tmp_path)
    hidden = Twins(plain.simulated, Run(shutil.copytree(plain.begun.path, tmp_path / "hidden")))
    for user in plain.users:
        open_device(plain.bundle, tmp_path / "plain" / user, user=user).learn(plain.items(user))
        shutil.copytree(tmp_path / "plain" / user, tmp_path / "sealed" / user)
    found = {}
    for name, twins, how in (("plain", plain, SEEN), ("sealed", hidden, SEALED)):
        with serving(twins.begun, tmp_path / f"served {name}", 1, collecting=how) as (url, future):
            take_part(twins, url, tmp_path / name, list(twins.users))
            found[name] = future.result(60)
    assert found["plain"].summary["uploads"] == found["sealed"].summary["uploads"] == 6
    np.testing.assert_array_equal(found["plain"].shared["item"].numpy(), found["sealed"].shared["item"].numpy())
    before = plain.begun.read_tensors("model")["shared.item"].numpy()
    assert np.abs(found["sealed"].shared["item"].numpy() - before).max() > 1e-2
    assert found["plain"].summary["collected"] == "the server sees uploads"
    assert found["sealed"].summary["collected"] == "sealed by secure aggregation"
    assert found["plain"].summary["adversary"] == "the server, which sees each noised upload"
    assert found["sealed"].summary["adversary"] == "the server, which sees sums of noised uploads"
    spent = [one.summary["privacy"]["eps_guaranteed"] for one in found.values()]
    assert spent[0] == spent[1] < 100


def test_whoever_goes_away_at_whichever_step_the_total_is_of_the_others_to_the_integer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    twins, heard, tell = worlds.fedmf().own(tmp_path), Heard(monkeypatch), Server.tell
    users = list(twins.users)

    def leaves(server: Server, step: Step, number: int, content: bytes) -> bool:
        if (server.identity.record.user, step) == (users[number - 1], STEPS[number - 1]):
            return False
        return tell(server, step, number, content)

    monkeypatch.setattr(Server, "tell", leaves)
    progress = time_up(monkeypatch, {(1, "keys"): 5, (2, "shares"): 5, (3, "vector"): 5, (4, "agree"): 5})
    with serving(twins.begun, tmp_path / "served", 4, collecting=SEALED, progress=progress) as (url, future):
        counts = take_part(twins, url, tmp_path / "states", users)
        result = future.result(60)
    assert [len(vectors) for vectors in heard.vectors] == [5, 5, 6, 6]
    assert result.summary["missing"] == [1, 1, 1, 0]
    assert result.summary["uploads"] == 5 + 5 + 5 + 6
    assert result.summary["given_up"] == {}
    for number in (0, 1, 3):  # in the third round the vector of one was masked and never sent
        total = heard.totals[number]
        assert total is not None
        assert total.steps.tolist() == np.sum(heard.vectors[number], axis=0, dtype=np.int64).tolist()
    third = heard.totals[2]
    assert third is not None
    left = np.sum(heard.vectors[2], axis=0, dtype=np.int64) - third.steps
    assert any(np.array_equal(left, vector) for vector in heard.vectors[2])
    assert [counts[user].taken for user in users] == [3, 3, 3, 3, 4, 4]
    assert [counts[user].late for user in users] == [1, 1, 1, 1, 0, 0]


def test_where_too_few_are_left_nothing_is_opened_and_the_next_round_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three of six are enough to publish, and too few to open a sum of six: nobody is asked for a share."""
    twins, heard, tell, shown = worlds.fedmf().own(tmp_path), Heard(monkeypatch), Server.tell, []
    users, reveal = list(twins.users), Participant.reveal

    def leaves(server: Server, step: Step, number: int, content: bytes) -> bool:
        if number == 1 and step == "vector" and server.identity.record.user in users[:3]:
            return False
        return tell(server, step, number, content)

    monkeypatch.setattr(Server, "tell", leaves)
    monkeypatch.setattr(Participant, "reveal", lambda *given: shown.append(1) or reveal(*given))
    progress = time_up(monkeypatch, {(1, "vector"): 3})
    result = session(twins, tmp_path / "states", 2, collecting=SEALED, progress=progress)
    assert result.summary["given_up"] == {"1": "the 3 devices that are left are too few to open the sum"}
    assert (result.summary["withheld_rounds"], result.summary["missing"]) == ([1], [6, 0])
    assert heard.totals[0] is None
    assert len(shown) == 6
    assert [opened.sealed for opened, _ in twins.begun.lineage.rounds] == [True, True]
    assert open_device(twins.bundle, tmp_path / "states" / users[0]).status()["releases"] == 2


def test_a_server_that_tells_devices_different_lists_gets_no_share_of_any(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It asks for one device's own mask by some, and for the keys of its partners by the others; then it is honest."""
    twins, come_to, reveal, shown = worlds.fedmf().own(tmp_path), SealedRound._come_to, Participant.reveal, list[int]()

    def lies(sealed: SealedRound, number: int, step: Step) -> Any:
        if step == "vector" and sealed.round == 1:
            sent, arrived = sealed.sum.sets
            return Asked.of(sent, arrived - {number % len(arrived) + 1})
        return come_to(sealed, number, step)

    def reveals(part: Participant, signatures: dict[int, bytes]) -> Any:
        found = reveal(part, signatures)
        shown.append(part.number)
        return found

    monkeypatch.setattr(SealedRound, "_come_to", lies)
    monkeypatch.setattr(
        SecureSum, "take_signature", lambda server, n, signature: server.signatures.update({n: signature})
    )
    monkeypatch.setattr(Participant, "reveal", reveals)
    with serving(twins.begun, tmp_path / "served", 2, collecting=SEALED, timeout_s=8.0) as (url, future):
        counts = take_part(twins, url, tmp_path / "states", list(twins.users))
        result = future.result(60)
    assert list(result.summary["given_up"]) == ["1"]
    assert sorted(shown) == [1, 2, 3, 4, 5, 6], "of the second round alone"
    assert all(found.unsafe == 1 and found.taken == 1 for found in counts.values())
    assert all("devices were told that the same vectors arrived" in str(found.refused) for found in counts.values())


ENDS = {
    "two have announced keys": ("a message of a sum", 5 * 6 + 2),
    "three vectors are in the sum": ("a message of a sum", 5 * 6 + 2 * 6 + 3),
    "the sum is open and nothing came of it yet": ("a sum", 2),
}
"""When a server dies in its second round: at which call of what, a message of each device a step."""


@pytest.mark.parametrize("case", ENDS)
def test_a_killed_server_gives_a_sealed_round_up_and_its_devices_stay_charged(tmp_path: Path, case: str) -> None:
    twins = _local().own(tmp_path)
    point, call = ENDS[case]
    with killable(twins, tmp_path / "states") as told:
        assert told({"point": point, "how": "after", "call": call, "rounds": 9, "sealed": True}) == -9
        assert twins.begun.lineage.open is not None
        assert told({"rounds": 1, "sealed": True}) == 0
    devices = [open_device(twins.bundle, tmp_path / "states" / user, user=user) for user in twins.users]
    rounds = twins.begun.lineage.rounds
    assert [(opened.round, opened.sealed, closed is not None and closed.burnt) for opened, closed in rounds] == [
        (1, True, False),
        (2, True, True),
        (3, True, False),
    ]
    ledger = twins.begun.lineage.ledger()
    assert ledger is not None
    assert ledger.releases().tolist() == [3] * 6
    assert [device.status()["releases"] for device in devices] == [3] * 6
    assert [device.status()["round"] for device in devices] == [3] * 6
    assert not (twins.begun.path / "private" / "answers").exists()


def test_an_epsilon_of_the_sum_is_stated_for_sealed_sums_or_a_server_that_was_named(tmp_path: Path) -> None:
    twins, spent = noisy(tmp_path), []
    for how in (SEALED, TRUSTED, SEEN):
        with serving(twins.begun, None, 1, collecting=how) as (url, future):  # type: ignore[arg-type]
            take_part(twins, url, tmp_path / "states", list(twins.users))
            spent.append(future.result(60).summary)
    assert [round(one["privacy"]["eps_guaranteed"], 2) for one in spent[:2]] == [7.07, 14.14]
    assert spent[2]["privacy"]["eps_guaranteed"] == "inf"
    assert spent[2]["privacy"]["method"] == "in 1 rounds a server that nobody named as trusted saw uploads"
    assert [one["collected"] for one in spent] == [
        "sealed by secure aggregation",
        "the server sees uploads and is trusted with them: the server of the tests",
        "the server sees uploads",
    ]
    assert [one["adversary"].partition(":")[0] for one in spent] == [
        "observers of the broadcasts; the server, which adds the noise, sees each round's exact total",
        "observers of the broadcasts; the server of the tests is trusted with single uploads",
        "nobody",
    ]
    found = json.loads(edgefr("privacy", twins.begun.path, "--json", cache=tmp_path).stdout)
    assert (found["served"]["eps_guaranteed"], found["simulated"]["eps_guaranteed"]) == ("inf", 0.0)
    assert found["collected"] == {one["collected"]: 1 for one in spent}
    shown = edgefr("privacy", twins.begun.path, cache=tmp_path).stdout
    assert "1 served rounds: sealed by secure aggregation\n" in shown


def test_what_cannot_be_sealed_says_so(tmp_path: Path) -> None:
    def why(collecting: Collecting = SEALED, min_answers: int | None = None, **more: Any) -> str:
        run = worlds.simulate(settings | more, 0, tmp_path / f"run {len(list(tmp_path.iterdir()))}")
        with pytest.raises(InputError) as error:
            serve(run, CLASS, 1, collecting=collecting, min_answers=min_answers, ready=lambda url: None)
        assert not (run.path / "lineage").exists()
        return str(error.value)

    settings: dict[str, Any] = FEDMF
    assert "median compares single uploads, and a sum under masks has none to show" in why(
        **{"aggregation.rule": "median"}
    )
    assert "give --min-answers from 3 to 6" in why(min_answers=2)
    central = {"privacy.trust": "central", "privacy.mechanism": "laplace", "privacy.sigma": 1.0, "privacy.at_least": 5}
    assert "a round invites 6 clients, and 4 must answer; give --min-answers from 5 to 6" in why(
        min_answers=4, **central
    )
    assert "under local trust nobody needs to be trusted" in why(TRUSTED)
    assert "weighs all uploads alike" in why(**{"aggregation.weights": "size"})
    assert "the server sees no upload" in why(Collecting(True, "somebody"))
    settings = {name: value for name, value in FEDMF.items() if not name.startswith("privacy")}
    assert "have no privacy.clip" in why()


def test_a_device_may_demand_sealed_sums(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    twins, progress = noisy(tmp_path), time_up(monkeypatch, {1: 5})
    users, policy = list(twins.users), OPEN.model_copy(update={"sealed": True})
    states, item = tmp_path / "states", "policy sealed: the server would see the update itself"

    def part(url: str, user: str, policy: Policy) -> TrafficCounts:
        worlds.known(twins.begun, states / user, user)
        return join(open_device(twins.bundle, states / user, user=user, policy=policy), url, twins.items(user))

    with serving(twins.begun, None, 1, timeout_s=9.0, min_answers=3, progress=progress) as (url, future):  # type: ignore[arg-type]
        stopped = part(url, users[0], policy).stopped
        take_part(twins, url, states, users[1:])
        assert future.result(60).summary["uploads"] == 5
    assert stopped is not None
    assert item in stopped
    device = open_device(twins.bundle, states / users[0], policy=policy)
    with pytest.raises(InputError, match=item):
        device.learn()
    assert device.status()["releases"] == 0
    with serving(twins.begun, None, 1, collecting=SEALED) as (url, future):  # type: ignore[arg-type]
        with ThreadPoolExecutor(1) as pool:
            sealed = pool.submit(part, url, users[0], policy)
            take_part(twins, url, states, users[1:])
            assert sealed.result(60).taken == 1
        assert future.result(60).summary["uploads"] == 6


def test_an_update_is_in_one_sum_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first device dies when its vector has left, and comes again while the round is open."""
    twins, heard, tell = worlds.fedmf().own(tmp_path), Heard(monkeypatch), Server.tell
    first, *others = twins.users
    deaths: list[int] = []

    def dies(server: Server, step: Step, number: int, content: bytes) -> bool:
        taken = tell(server, step, number, content)
        if server.identity.record.user == first and step == "vector" and not deaths:
            deaths.append(number)
            raise KeyboardInterrupt
        return taken

    monkeypatch.setattr(Server, "tell", dies)
    with serving(twins.begun, tmp_path / "served", 2, collecting=SEALED, timeout_s=8.0) as (url, future):
        with ThreadPoolExecutor(1) as pool:
            rest = pool.submit(take_part, twins, url, tmp_path / "states", others)
            with pytest.raises(KeyboardInterrupt):
                take_part(twins, url, tmp_path / "states", [first])
            again = take_part(twins, url, tmp_path / "states", [first])[first]
            rest.result(60)
        result = future.result(60)
    assert (again.taken, again.late) == (1, 1)
    assert [len(vectors) for vectors in heard.vectors] == [6, 6], "its vector of the first round was masked once"
    assert result.summary["missing"] == [0, 0], "it had arrived, and what it did not reveal five others did"
    for total, vectors in zip(heard.totals, heard.vectors, strict=True):
        assert total is not None
        assert total.steps.tolist() == np.sum(vectors, axis=0, dtype=np.int64).tolist()


def test_nothing_is_taken_in_the_clear_while_a_round_is_sealed(broker: Broker) -> None:
    origin = Origin.of(open_bundle(bundles.bundle("fedmf")), bundles.USERS)
    terms = SumTerms(origin.learning.uploaded, 2.0**-15, 1 << 20, 1e9, 2)
    sealed = SealedRound(origin.bundle, NUMBER, terms, [USER, bundles.user(0), bundles.user(3)], 3)
    broker.broker.open(NUMBER, {origin.bundle: b""}, [USER, bundles.user(0), bundles.user(3)], sealed=sealed)
    one_line(*broker.post(broker.release), 409, "uploads of this round are summed under masks")
    assert broker.broker.counts.uploads == 0
    keys = KeysMessage.of(Participant(b"", 1).keys).model_dump_json().encode()
    path = f"/sum/keys?round={NUMBER}"
    assert broker.ask("POST", path, keys) == (200, b"taken\n")
    assert broker.ask("POST", path, keys) == (200, b"taken\n")
    one_line(*broker.ask("POST", path, keys, bundles.user(0)), 409, "another device has announced this key")
    one_line(*broker.ask("POST", path, keys, bundles.user(4)), 409, "goes on without this device")
    one_line(*broker.ask("POST", path, b"{}", bundles.user(3)), 400, "not a message of a secure sum")
    one_line(*broker.ask("POST", f"/sum/keys?round={NUMBER + 1}", keys), 409, "no sum of round")
    one_line(*broker.ask("POST", f"/sum/vector?round={NUMBER}", b"1234"), 409, "is over for this device")
    one_line(*broker.ask("GET", f"/sum/shares?round={NUMBER}"), 409, "goes on without this device")
    one_line(*broker.ask("GET", "/sum/total"), 404, "no such page")
    seat = Server(broker.server.url, broker.identity()).task(0, 1 << 20)
    assert seat is not None
    assert seat.seat == sealed.seat(USER)
