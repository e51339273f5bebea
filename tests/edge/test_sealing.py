"""An update leaves a device in one secure sum, whole steps of its grid, and what a policy keeps in stays in."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from edge.connection import RoundTask, Server
from edge.device import Device
from edge.identity import Identity
from edge.policy import OPEN
from edge.release import Withheld
from edge.remote import Sealing, TrafficCounts, join, unanswered
from edge.secure_sum import Participant, SumRefused
from edge.state import STATE
from edge.sum_messages import KeysMessage, Neighbours, Seat, Shares, opened
from edge.update import ClientUpdate, whole_steps
from privacy.errors import InputError
from privacy.masks import agreed, public_of, stream
from tests.cli.commands import ROOT
from tests.contract import bundles
from tests.contract.programs import interactions
from tests.devices import open_device

USER, SEAT = bundles.user(7), Seat(1, bytes(16))
CLIPPED = {"clip": 1.0}


class Asked:
    """A server of three devices, with which this one gets as far as the threshold lets it."""

    def __init__(self, neighbours: int, threshold: int | None = None):
        self.others = {n: Participant(b"another session", n).keys for n in range(2, neighbours + 2)}
        self.threshold = threshold or neighbours
        self.steps: list[str] = []

    def tell(self, step: str, number: int, content: bytes) -> bool:
        self.steps.append(step)
        if step == "keys":
            signers = {1: opened(KeysMessage, content).keys.sign, **{n: keys.sign for n, keys in self.others.items()}}
            self.near = Neighbours.of(self.threshold, self.others, signers).model_dump_json().encode()
        return step == "keys"

    def told(self, step: str, number: int, limit: int) -> bytes:
        return self.near


def sealing(device: Device, server: Any) -> Sealing:
    return Sealing(device, server, RoundTask(device.learning.round + 1, b"", done=False, seat=SEAT), TrafficCounts())


def test_an_update_that_was_in_a_sum_is_in_no_other(tmp_path: Path) -> None:
    device, server = open_device(bundles.bundle("fedmf", **CLIPPED), tmp_path, user=USER), Asked(2)
    update, number = device.learn(interactions()[7], masked=True), device.learning.round + 1
    assert not sealing(device, server).sent(update)
    assert server.steps == ["keys", "shares"], "the server goes on without it"
    device.leave_masked(number)
    with pytest.raises(Withheld, match="leaves in no other"):
        device.leave_masked(number)
    again = open_device(bundles.bundle("fedmf", **CLIPPED), tmp_path, user=USER)
    assert again.has_left_masked(number)
    assert not again.has_left_masked(number + 1)
    assert not sealing(again, server).sent(again.learn(masked=True))
    assert server.steps == ["keys", "shares"], "nothing more was told"


def test_a_device_that_is_told_a_lower_threshold_sends_no_share(tmp_path: Path) -> None:
    """Of nine neighbours one may help the server, so six must answer alike, and five is what a spying server says."""
    device, number = open_device(bundles.bundle("fedmf", **CLIPPED), tmp_path, user=USER), 2
    update = device.learn(interactions()[7], masked=True)
    for told in (5, 7, 9):
        server = Asked(9, told)
        with pytest.raises(SumRefused, match=f"9 neighbours and a threshold of {told} is refused: 6 must be needed"):
            sealing(device, server).sent(update)
        assert server.steps == ["keys"]
    assert not device.has_left_masked(number)
    server = Asked(9, 6)
    assert not sealing(device, server).sent(update)
    assert server.steps == ["keys", "shares"]


def test_what_was_made_for_a_sum_is_not_sent_in_the_clear_by_a_device_that_comes_back(tmp_path: Path) -> None:
    masked, clear = (open_device(bundles.bundle("fedmf", **CLIPPED), tmp_path / n, user=USER) for n in ("m", "c"))
    masked.learn(interactions()[7], masked=True)
    assert unanswered(clear) is None, "it has learned nothing yet"
    made = clear.learn(interactions()[7])
    assert unanswered(masked) is None
    again = unanswered(open_device(bundles.bundle("fedmf", **CLIPPED), tmp_path / "c", user=USER))
    assert again is not None
    assert again.to_bytes() == made.to_bytes()
    strict = open_device(
        bundles.bundle("fedmf", **CLIPPED), tmp_path / "c", user=USER, policy=OPEN.model_copy(update={"sealed": True})
    )
    assert unanswered(strict) is None


def test_what_was_made_for_a_sum_is_not_handed_out_in_the_clear_when_it_is_asked_for_again(tmp_path: Path) -> None:
    """A server that offers the same round again, without a seat, would get the very update that it may not see."""
    device = open_device(bundles.bundle("fedmf", **CLIPPED), tmp_path, user=USER)
    made = device.learn(interactions()[7], masked=True)
    for left in (False, True):
        if left:
            device.leave_masked(made.round)
        before = (tmp_path / STATE).read_bytes()
        with pytest.raises(Withheld, match=f"round {made.round} was made for a secure sum, and leaves under masks"):
            open_device(bundles.bundle("fedmf", **CLIPPED), tmp_path, user=USER).learn(interactions()[3])
        assert (tmp_path / STATE).read_bytes() == before
        assert device.learn(masked=True).to_bytes() == made.to_bytes()


def test_what_was_in_a_sum_is_not_sent_in_the_clear_though_it_was_made_to_be(tmp_path: Path) -> None:
    device = open_device(bundles.bundle("fedmf", **CLIPPED), tmp_path, user=USER)
    made = device.learn(interactions()[7])
    assert device.learn(masked=True).to_bytes() == made.to_bytes()
    assert unanswered(device) is not None
    device.leave_masked(made.round)
    assert unanswered(device) is None
    with pytest.raises(Withheld, match="was made for a secure sum"):
        device.learn()


def test_a_server_that_offers_a_summed_round_again_without_a_seat_gets_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    device = open_device(bundles.bundle("fedmf", **CLIPPED), tmp_path, user=USER)
    device.leave_masked(device.learn(interactions()[7], masked=True).round)
    number, sent = device.learning.round + 1, list[bytes]()
    tasks = [RoundTask(number, b"", done=False), RoundTask(number, b"", done=True)]
    monkeypatch.setattr(Server, "task", lambda self, after, limit: tasks.pop(0))
    monkeypatch.setattr(Server, "send", lambda self, number, content: sent.append(content) or True)
    Identity.made(tmp_path).enrolled(USER, None)
    counts = join(device, "http://127.0.0.1:9")
    assert counts.stopped is not None
    assert "made for a secure sum" in counts.stopped
    assert (sent, counts.taken) == ([], 0)


def test_whole_steps_are_those_of_the_release_or_of_the_clips_grid(tmp_path: Path) -> None:
    learning = open_device(bundles.bundle("fedmf", **CLIPPED), tmp_path / "a", user=USER).learning
    rows = np.zeros((2, learning.tensor("item").shape[1]), np.float32)
    rows[0, 0], rows[1, 1] = 0.5, -(2.0**-15) * 3.9
    steps = whole_steps(
        ClientUpdate("0" * 64, 2, np.zeros(0, np.float32), {"item": (np.array([1, 4]), rows)}), learning
    )
    table = steps.reshape(learning.tensor("item").shape)
    assert (steps.dtype, int(np.count_nonzero(steps))) == (np.int32, 2)
    assert (int(table[1, 0]), int(table[4, 1])) == (1 << 14, -3)
    given = np.arange(learning.uploaded, dtype=np.int32)
    assert whole_steps(ClientUpdate("0" * 64, 2, given, {}), learning) is given
    unclipped = open_device(bundles.bundle("fedmf"), tmp_path / "b", user=USER)
    with pytest.raises(InputError, match="without a clip"):
        whole_steps(unclipped.learn(interactions()[7]), unclipped.learning)


def test_with_sealed_in_its_policy_nothing_leaves_a_device_in_the_clear(tmp_path: Path) -> None:
    policy = OPEN.model_copy(update={"sealed": True})
    device = open_device(bundles.bundle("fedmf", **CLIPPED), tmp_path, user=USER, policy=policy)
    with pytest.raises(Withheld, match="policy sealed: the server would see the update itself"):
        device.learn(interactions()[7])
    assert device.status()["releases"] == 0
    device.learn(interactions()[7], masked=True)
    with pytest.raises(Withheld, match="allow it with sealed: false"):
        device.learn()
    assert device.status()["releases"] == 1


def test_the_protocols_example_of_a_mask_is_right() -> None:
    """The figures were worked out from RFC 5869 and RFC 8439 step by step, without the code here."""
    one, other = bytes(range(32)), bytes(range(32, 64))
    session = Seat(1, b"\x11" * 16).session("0" * 64, 3)
    seed = agreed(one, public_of(other), session, "mask", (1, 2))
    assert seed == agreed(other, public_of(one), session, "mask", (2, 1))
    told = [session.hex(), seed.hex(), " ".join(map(str, stream(seed, 4).tolist()))]
    assert told == [
        "a4d689ed3f864fc3c233f98c6725330f02b07bfcf11cb6a50f90411ca0e3b6da",
        "efbea3a4ac3a91764b6a4cef96f60b531cb7e2a96fcaede6a028e70fd1563920",
        "725947470 3510019240 1319165984 1954764523",
    ]
    page = (ROOT / "docs" / "protocol.md").read_text(encoding="utf-8")
    assert "\n".join(f"    {line}" for line in told) in page


@pytest.mark.parametrize(
    ("trust", "others", "refused"),
    [("central", 2, True), ("central", 3, False), (None, 2, True), (None, 3, False), ("local", 2, False)],
)
def test_a_device_opens_no_sum_of_fewer_than_its_policy_asks_for(trust: str | None, others: int, refused: bool) -> None:
    """Without a guarantee the sum is all that hides an update."""
    manifest = SimpleNamespace(privacy=None if trust is None else SimpleNamespace(trust=trust))
    device: Any = SimpleNamespace(
        bundle=SimpleNamespace(manifest=manifest), policy=OPEN.model_copy(update={"least_cohort": 4})
    )
    joined = sealing_of(device)
    if not refused:
        joined._enough(others)
        return
    with pytest.raises(SumRefused, match=r"policy least_cohort: this device sees 2 others .* and 3 are asked for"):
        joined._enough(others)


@pytest.mark.parametrize("promised", [True, False])
def test_where_too_few_are_left_in_a_sum_the_round_is_left_out_and_the_device_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, promised: bool
) -> None:
    """A round with too few in it says nothing of the next: a device that took it for the end would not come back."""
    policy = OPEN.model_copy(update={"least_cohort": 4})
    clipped = bundles.bundle("fedmf", **CLIPPED)
    bundle = bundles.promising("fedmf", 5.0, 3, trust="central") if promised else clipped
    device = open_device(bundle, tmp_path, user=USER, policy=policy)
    server, asked, number = Asked(2), list[int](), device.learning.round + 1
    tasks = [RoundTask(number, b"", done=False, seat=SEAT), RoundTask(number - 1, b"", done=True)]
    monkeypatch.setattr(Server, "task", lambda self, after, limit: asked.append(after) or tasks.pop(0))
    monkeypatch.setattr(Server, "tell", lambda self, *said: server.tell(*said))
    monkeypatch.setattr(Server, "told", lambda self, *said: server.told(*said))
    Identity.made(tmp_path).enrolled(USER, None)
    counts = join(device, "http://127.0.0.1:9", interactions()[7])
    assert (counts.stopped, counts.unsafe, counts.taken, asked) == (None, 1, 0, [0, number])
    assert counts.refused is not None
    assert "this device sees 2 others in the sum of round 2, and 3 are asked for" in counts.refused
    assert server.steps == ["keys"]
    assert not device.has_left_masked(number)


def sealing_of(device: Any) -> Sealing:
    nobody: Any = None
    return Sealing(device, nobody, RoundTask(2, b"", done=False, seat=SEAT), TrafficCounts())


class Summed:
    """A server of this device and two others, which sees what the device has written down when its vector arrives."""

    def __init__(self, device: Device, number: int):
        self.device, self.number = device, number
        self.session = SEAT.session(device.bundle.manifest.bundle_id, number)
        self.others = {n: Participant(self.session, n) for n in (2, 3)}
        self.had_left: bool | None = None

    def tell(self, step: str, number: int, content: bytes) -> bool:
        if step == "keys":
            self.keys = {n: other.keys for n, other in self.others.items()}
            self.keys[1] = opened(KeysMessage, content).keys
        if step == "vector":
            self.had_left = self.device.has_left_masked(self.number)
        return step != "vector"

    def told(self, step: str, number: int, limit: int) -> bytes:
        signers = {n: keys.sign for n, keys in self.keys.items()}
        if step == "keys":
            near = {n: keys for n, keys in self.keys.items() if n != 1}
            return Neighbours.of(2, near, signers).model_dump_json().encode()
        shares = {
            n: other.share({o: keys for o, keys in self.keys.items() if o != n}, signers, 2)[1]
            for n, other in self.others.items()
        }
        return Shares.of(shares).model_dump_json().encode()


def test_a_state_says_that_a_vector_left_before_it_leaves(tmp_path: Path) -> None:
    device = open_device(bundles.bundle("fedmf", **CLIPPED), tmp_path, user=USER)
    update, number = device.learn(interactions()[7], masked=True), device.learning.round + 1
    server = Summed(device, number)
    assert not sealing(device, server).sent(update)
    assert server.had_left is True
