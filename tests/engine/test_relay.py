"""Messages that go to one other client: what reaches whom, with which noise, and what a ledger counts of it."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from edgefr.engine import inline
from edgefr.engine.federation import Federation
from edgefr.engine.footprint import round_work
from edgefr.engine.transfer import Relay
from edgefr.experiment import load_experiment
from edgefr.methods.fedcar.messages import messages
from edgefr.methods.fedcar.program import MESSAGE
from privacy.errors import InputError
from privacy.noise_key import NoiseKey
from privacy.plan import plan
from privacy.prototypes import RELAYED, Prototypes
from tests.contract.programs import CLIENTS, program, work

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


def test_a_cohort_of_one_keeps_what_it_had() -> None:
    assert not relayed(sent(np.array([3])), clients=np.array([3])).any()


def test_a_message_that_is_not_finite_reaches_nobody() -> None:
    broken = sent()
    broken[2, 1] = torch.nan
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


def test_a_round_relays_what_trained_encoders_are() -> None:
    local = program("fedcar")
    made = load_experiment(overrides=["method=fedcar", "model.negative_noise=0"])
    how = {"aggregation": made.aggregation, "device": torch.device("cpu"), "executor": inline.run}
    plain = plan(made.privacy, 7, 3, CLIENTS, prototypes=made.prototypes)
    federation = Federation(local, clients=CLIENTS, seed=3, shard_size=2, plan=plain, **how)
    federation.transfer = Relay(MESSAGE, messages(made.settings, made), 3, KEY)  # type: ignore[arg-type]
    todo = work(local)
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


def test_messages_travel_both_ways_in_the_fleets_cost() -> None:
    local, alone = program("fedcar"), program("fedcar, context alone")
    todo, who = work(local), np.arange(4)
    with_, without = (round_work(p, p.phases, todo.sampler, who, np.zeros(4, bool)) for p in (local, alone))
    size = 4 * local.encoder.values
    assert with_.bytes_up - without.bytes_up == size
    assert (with_.bytes_down - without.bytes_down == size).all()


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
