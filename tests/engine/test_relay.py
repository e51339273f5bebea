"""Messages that go to one other client: what reaches whom, with which noise, and what a ledger counts of it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from edgefr.engine.executors import inline
from edgefr.engine.federation import Federation
from edgefr.engine.transfer import Relay, senders
from edgefr.experiment.experiment import load_experiment
from edgefr.methods.fedcar.program import MESSAGE
from edgefr.methods.fedcar.settings import messages
from edgefr.simulation.participation import Participation
from privacy.errors import InputError
from privacy.noise_key import NoiseKey
from privacy.plan import plan
from privacy.prototypes import RELAYED, Prototypes
from tests.contract.programs import CLIENTS, program, work
from tests.federations import begun

KEY, SECRET = NoiseKey(b"k" * 16), NoiseKey(b"s" * 16)
CLIENT_NUMBERS = np.array([3, 0, 7, 19, 12])


def sent(clients: np.ndarray = CLIENT_NUMBERS, width: int = 4) -> torch.Tensor:
    return torch.arange(len(clients), dtype=torch.float32)[:, None].expand(-1, width).clone() + 1


def relayed(
    messages: torch.Tensor, key: NoiseKey = KEY, number: int = 2, clients=CLIENT_NUMBERS, **terms
) -> torch.Tensor:
    relay = Relay("message", Prototypes(messages.shape[1], 9, through="relay", recipients=RELAYED, **terms), 5, key)
    private = {"message": torch.zeros(CLIENTS, messages.shape[1])}
    for at in range(0, len(clients), 2):  # as shards hand them in
        relay.take(clients[at : at + 2], messages[at : at + 2])
    relay.after(number, private, work(program("fedcar")).sampler)
    relay.ended(number, private)
    return private["message"]


def test_everybody_gets_what_one_other_sent_and_nothing_says_whose() -> None:
    got = relayed(sent())
    assert sorted(got[torch.from_numpy(CLIENT_NUMBERS), 0].tolist()) == [1, 2, 3, 4, 5]
    assert (got[torch.from_numpy(CLIENT_NUMBERS)] != sent()).all()
    others = np.setdiff1d(np.arange(CLIENTS), CLIENT_NUMBERS)
    assert not got[torch.from_numpy(others)].any()
    assert got.shape == (CLIENTS, 4)  # a message's values and no fact beside them


def test_whose_it_is_follows_from_the_secret_key_and_the_round_alone() -> None:
    order = np.array([4, 2, 0, 1, 3])
    shuffled = relayed(sent()[torch.from_numpy(order)], clients=CLIENT_NUMBERS[order])
    assert torch.equal(relayed(sent()), shuffled)
    assert any(not torch.equal(relayed(sent(), number=n), relayed(sent(), SECRET, n)) for n in range(1, 6))
    assert any(not torch.equal(relayed(sent(), number=n), relayed(sent(), number=n + 1)) for n in range(1, 6))


def test_messages_of_all_groups_are_relayed_together() -> None:
    """Clients that began in different rounds: three groups of one, of whom each gets another's."""
    relay = Relay("message", Prototypes(4, 9, through="relay", recipients=RELAYED), 5, KEY)
    private = {"message": torch.zeros(CLIENTS, 4)}
    for number, at in ((4, 0), (2, 1), (3, 2)):
        relay.take(CLIENT_NUMBERS[at : at + 1], sent()[at : at + 1])
        relay.after(number, private, work(program("fedcar")).sampler)
    assert not private["message"].any()
    relay.ended(5, private)
    got = private["message"][torch.from_numpy(CLIENT_NUMBERS[:3]), 0]
    assert sorted(got.tolist()) == [1, 2, 3]
    assert (got != torch.tensor([1.0, 2.0, 3.0])).all()


@pytest.mark.parametrize("value", [torch.nan, torch.inf, 1e7])
def test_a_message_that_no_device_could_use_reaches_nobody(value: float) -> None:
    broken = sent()
    broken[2, 1] = value
    got = relayed(broken)
    assert torch.isfinite(got).all()
    assert not got[CLIENT_NUMBERS[2]].any()
    assert sorted(got[torch.from_numpy(CLIENT_NUMBERS), 0].tolist()) == [0, 1, 2, 4, 5]


def test_the_methods_own_noise_is_laplace_on_every_value() -> None:
    clients = np.arange(CLIENTS)
    messages = torch.zeros(CLIENTS, 2000)
    noise = relayed(messages, clients=clients, nominal=0.1).numpy()
    assert np.abs(noise).mean() == pytest.approx(0.1, rel=0.05)  # the mean of |Laplace(b)| is b
    assert np.std(noise) == pytest.approx(0.1 * np.sqrt(2), rel=0.05)
    assert np.unique(noise).size > 0.99 * noise.size
    assert not np.array_equal(noise, relayed(messages, SECRET, clients=clients, nominal=0.1).numpy())


def private_experiment(**changes):
    asked = ["method=fedcar", "privacy.mechanism=gaussian", "privacy.trust=local", "privacy.clip=0.5"]
    asked += ["privacy.sigma=8", "rounds=7", *(f"{name}={value}" for name, value in changes.items())]
    return load_experiment(overrides=asked)


def test_a_message_is_a_release_of_its_own() -> None:
    """Its own clip, noise and event, beside the update's, once a round, to the server and one client."""
    made = private_experiment(**{"privacy.prototype_clip": 0.25})
    terms = made.prototypes
    assert terms is not None
    resolved = plan(made.privacy, made.rounds, 3, 10, prototypes=terms)
    own = resolved.prototypes
    assert own is not None
    assert (own.clip, own.event.recipient, own.release[1]) == (0.25, RELAYED, 7)
    assert own.event.multiplier == pytest.approx(resolved.event.multiplier, rel=1e-3)
    alone = plan(made.privacy, made.rounds, 3, 10)
    assert resolved.promised.epsilon > alone.promised.epsilon
    got = relayed(sent(), clip=0.25, norm="l2")
    assert got[torch.from_numpy(CLIENT_NUMBERS)].norm(dim=1).numpy() == pytest.approx(0.25, abs=1e-6)


def test_every_client_of_a_round_is_charged_for_update_and_message() -> None:
    made, local = private_experiment(), program("fedcar")
    resolved = plan(made.privacy, 7, 3, CLIENTS, prototypes=made.prototypes)
    how = {"aggregation": made.aggregation, "device": torch.device("cpu")}
    federation = Federation(local, clients=CLIENTS, seed=1, shard_size=4, plan=resolved, **how)
    assert federation.events(1) == (resolved.event,)
    assert resolved.prototypes is not None
    federation.transfer = Relay(MESSAGE, resolved.prototypes, 1, KEY)
    assert federation.events(1) == (resolved.event, resolved.prototypes.event)


def relaying() -> tuple[Any, Federation, Any]:
    """A program whose trained encoders are relayed without noise, its federation, and everybody's work."""
    local = program("fedcar")
    made = load_experiment(overrides=["method=fedcar", "model.negative_noise=0"])
    how = {"aggregation": made.aggregation, "device": torch.device("cpu"), "executor": inline.run}
    plain = plan(made.privacy, 7, 3, CLIENTS, prototypes=made.prototypes)
    federation = Federation(local, clients=CLIENTS, seed=3, shard_size=2, plan=plain, **how)
    federation.transfer = Relay(MESSAGE, messages(made.settings, made), 3, KEY)  # type: ignore[arg-type]
    todo = work(local)
    return local, federation, todo


def test_a_round_relays_what_trained_encoders_are() -> None:
    local, federation, todo = relaying()
    federation.round(2, CLIENT_NUMBERS, todo.sampler, todo.context)
    before = local.encoder.joined({name: federation.private[f"previous.{name}"] for name in local.encoder.shapes})
    mine, heard = (
        before[torch.from_numpy(CLIENT_NUMBERS)],
        federation.private[MESSAGE][torch.from_numpy(CLIENT_NUMBERS)],
    )
    found = [int((mine - one).abs().amax(1).argmin()) for one in heard]
    torch.testing.assert_close(heard, mine[found])
    assert sorted(found) == list(range(len(CLIENT_NUMBERS)))
    assert all(at != whose for at, whose in enumerate(found))


def test_a_diverged_client_sends_nothing_and_has_what_it_had() -> None:
    """Else its message would make others diverge, and what it keeps would leave it diverged for ever."""
    (_, federation, todo), sick = relaying(), int(CLIENT_NUMBERS[0])
    federation.private["scorer.weight"][sick] *= 1e15
    before = {name: value[sick].clone() for name, value in federation.private.items()}
    federation.round(2, CLIENT_NUMBERS, todo.sampler, todo.context)
    assert federation.counters.dropped == 1
    for name, value in federation.private.items():
        assert torch.equal(value[sick], before[name]), name
        assert torch.isfinite(value).all()
    others = [int(number) for number in CLIENT_NUMBERS[1:]]
    assert federation.private[MESSAGE][others].norm(dim=1).max() < 100
    federation.round(3, CLIENT_NUMBERS, todo.sampler, todo.context)
    assert federation.counters.dropped == 2, "nobody else is made to diverge"
    federation.private["scorer.weight"][sick] /= 1e15
    federation.round(4, CLIENT_NUMBERS, todo.sampler, todo.context)
    assert federation.counters.dropped == 2, "who is mended takes part again"


CHOSEN = {
    "fedcar": ("model.dim=4", "model.context=2", "model.negative=vectors"),
    "fcucr": ("model.dim=6", "model.length=5", "protocol.gap_minutes=40000"),
}
SENT = {  # method, what else, and the numbers up and down by round
    "a vector is relayed": ("fedcar", (), [(4, 4), (4, 4)]),
    "an encoder is relayed": ("fedcar", ("model.negative=encoder",), [(96, 96), (96, 96)]),  # 2 x 4, 5 of 4 x 4, 2 of 4
    "nothing is contrasted": ("fedcar", ("model.negative=none",), [(0, 0), (0, 0)]),
    "a prototype is answered": ("fcucr", (), [(6, 6), (6, 6)]),
    "every second round": ("fcucr", ("knowledge.interval=2",), [(6, 6), (0, 0)]),
    "a query is sent beside it": ("fcucr", ("fidelity=released",), [(60, 30), (60, 30)]),  # of 5 x 6 numbers
    "none are sent": ("fcucr", ("model.prototypes=none",), [(0, 0), (0, 0)]),
}


@pytest.mark.parametrize("case", SENT)
def test_messages_travel_both_ways_in_the_fleets_cost(case: str) -> None:
    """Four bytes a number, above those of the tensors, and the clock counts them."""
    method, more, numbers = SENT[case]
    data = "data_options={users: 60, items: 120, interactions: 16}"
    made = load_experiment(overrides=[f"method={method}", data, "protocol.negatives=20", *CHOSEN[method], *more])
    run = begun(made)
    federation, participation = run.federation, run.participation
    assert isinstance(participation, Participation)
    everyone = np.flatnonzero(run.stage.task.train.counts)[:4]
    trained = sum(federation.program.specs[name].size for name in federation._shapes())
    every = sum(spec.size for spec in federation.program.specs.values() if spec.place == "shared")
    participation.met[:] = True
    for number, (up, down) in enumerate(numbers, 1):
        participation.number = number
        _, sampler = run.stage.turn(run, number)
        found = participation._work(everyone, sampler)
        assert found.bytes_up == 4 * (trained + up)
        assert np.all(found.bytes_down == 4 * (every + down))
        assert found.message_bytes == 4 * up


def test_what_has_no_place_beside_messages_is_refused() -> None:
    with pytest.raises(InputError, match=r"set model\.negative=none"):
        load_experiment(overrides=["method=fedcar", "privacy.mechanism=gaussian", "privacy.clip=1", "privacy.sigma=1"])
    with pytest.raises(InputError, match="nothing is contrasted"):
        load_experiment(overrides=["method=fedcar", "model.context=0"])
    with pytest.raises(InputError, match="negative_noise"):
        load_experiment(overrides=["method=fedcar", "model.negative=none", "model.negative_noise=0.2"])
    with pytest.raises(InputError, match="knowledge"):
        load_experiment(overrides=["method=fedcar", "knowledge.interval=3"])
    assert private_experiment().draws_noise
    assert not load_experiment(overrides=["method=fedcar", "model.negative=none"]).draws_noise


# --- who gets whose: a circle of a round's clients that only the server knows


@given(st.lists(st.integers(0, 2**64 - 1), min_size=2, max_size=40))
@settings(max_examples=80)
def test_every_message_goes_to_exactly_one_other_client(draws: list[int]) -> None:
    whose = senders(np.array(draws, np.uint64))
    assert sorted(whose.tolist()) == list(range(len(draws)))  # each once: no message is released to two
    assert (whose != np.arange(len(draws))).all()  # nobody's own


def test_pairs_follow_the_draws_alone() -> None:
    draws = np.random.default_rng(0).integers(0, 2**63, 30).astype(np.uint64)
    order = np.random.default_rng(1).permutation(30)
    whose, shuffled = senders(draws), senders(draws[order])
    assert (order[shuffled] == whose[order]).all()


def test_a_cohort_of_one_gets_nothing() -> None:
    assert [senders(np.array(draws, np.uint64)).tolist() for draws in ([5], [])] == [[], []]
    assert not relayed(sent(np.array([3])), clients=np.array([3])).any()


def test_a_contrast_whose_encoder_no_round_trains_is_refused() -> None:
    with pytest.raises(InputError, match=r"privacy\.tensors: .* or model\.negative=none"):
        load_experiment(overrides=["method=fedcar", "privacy.tensors=[item]"])
    for fine in ("model.negative=none", "privacy.tensors=[item, encoder.wide]"):
        load_experiment(overrides=["method=fedcar", "privacy.tensors=[item]", fine])
