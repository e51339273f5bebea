"""TransFR with LoRA in the encoder: the functional BERT against transformers and peft, and what starts where."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from edgefr.experiment.experiment import load_experiment
from edgefr.methods.transfr.bert import Bert, TitleReader
from edgefr.methods.transfr.lora import LoRATransFR, lora_shapes
from edgefr.methods.transfr.program import TransFR
from edgefr.methods.transfr.settings import TransFRSettings
from export.batches import One
from privacy.errors import InputError
from tests.closeness import assert_same
from tests.export.worlds import student
from tests.methods import berts

ITEMS = 20
EMPTY = 5  # has no title


def program(pooling: str = "mean", **values: object) -> LoRATransFR:
    chosen = TransFRSettings.model_validate(
        {"client": "lora", "adapter": [18, 8], "head": [8], "lora_rank": 2} | values
    )
    reader = berts.reader(ITEMS, pooling)
    with torch.no_grad():
        text = reader.bert(reader.tokens, {}, 1.0)
    return LoRATransFR(chosen, reader, text, local_epochs=2)


def test_the_reader_of_tests_is_what_is_read_of_a_model_of_transformers() -> None:
    made, read = berts.bert("mean", 2), Bert.of(berts.model(), "mean")
    assert replace(made, weights={}) == replace(read, weights={})
    assert list(made.weights) == list(read.weights)
    assert all(torch.equal(made.weights[name], weight) for name, weight in read.weights.items())


def batch(items: torch.Tensor) -> One:
    return One(items, items, torch.ones(items.shape), torch.full(items.shape, 1 / max(1, items.shape[-1])))


def by_transformers(model: torch.nn.Module, tokens: torch.Tensor, pooling: str) -> torch.Tensor:
    """The model's own vectors of titles that have tokens."""
    mask = (tokens != 0).long()
    with torch.no_grad():
        states = model(input_ids=tokens.long(), attention_mask=mask).last_hidden_state
    weight = mask.unsqueeze(-1).float()
    return states[:, 0] if pooling == "cls" else (states * weight).sum(1) / weight.sum(1)


@pytest.mark.parametrize("pooling", ["mean", "cls"])
def test_with_b_zero_it_is_the_model_of_transformers(pooling: str) -> None:
    made = program(pooling)
    found = made.read(made.init_shared(0), batch(torch.arange(ITEMS)))
    filled = torch.arange(ITEMS) != EMPTY
    expected = by_transformers(berts.model(), berts.titles(ITEMS)[filled], pooling)
    assert_same(found[filled], expected)
    assert torch.equal(found[EMPTY], torch.zeros(berts.WIDTH)), "no title, no vector"


@pytest.mark.parametrize("activation", ["gelu", "gelu_new", "relu"])
def test_activations_are_those_of_transformers(activation: str) -> None:
    from transformers import BertConfig, BertModel

    config = BertConfig(
        vocab_size=50,
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=4,
        intermediate_size=24,
        hidden_act=activation,
        layer_norm_eps=1e-3,
        pad_token_id=0,
    )
    model = BertModel(config).eval()
    with torch.no_grad():
        for name, weight in model.named_parameters():
            weight.copy_(berts.numbers(name, tuple(weight.shape)))
    tokens = berts.titles(5)
    with torch.no_grad():
        found = Bert.of(model, "mean")(tokens, {}, 1.0)
    assert_same(found, by_transformers(model, tokens, "mean"))


def test_each_client_has_matrices_of_its_own() -> None:
    made = program()
    shapes = {name: made.specs[name].shape for name in made.lora}
    clients = {n: 0.3 * berts.numbers(n, (3, *shape)) for n, shape in shapes.items()}
    items = torch.from_numpy(np.random.default_rng(0).integers(0, ITEMS, (3, 7)))
    together = made.read(clients, batch(items))
    assert together.shape == (3, 7, berts.WIDTH)
    for c in range(3):
        alone = made.read({name: value[c] for name, value in clients.items()}, batch(items[c]))
        assert_same(together[c], alone)
    assert float((together[0] - made.read(made.init_shared(0), batch(items[0]))).abs().max()) > 0.01


@given(st.integers(0, 5), st.integers(0, 2**31), st.sampled_from(["mean", "cls"]))
@settings(max_examples=20, deadline=None)
def test_padding_and_neighbours_change_nothing(more: int, seed: int, pooling: str) -> None:
    """A title's vector is its own: whatever is padded behind it, whichever titles are beside it."""
    reader, rng = berts.reader(ITEMS, pooling), np.random.default_rng(seed)
    lora = {n: 0.3 * berts.numbers(n, s) for n, s in lora_shapes(range(2), berts.WIDTH, 2, ["query", "value"]).items()}
    order = torch.from_numpy(rng.permutation(ITEMS)[: rng.integers(1, ITEMS)])
    longer = torch.nn.functional.pad(reader.tokens, (0, more))
    with torch.no_grad():
        whole, some = reader.bert(reader.tokens, lora, 1.5), reader.bert(longer[order], lora, 1.5)
    assert_same(some, whole[order])


def test_gradients_are_those_of_peft() -> None:
    """The same loss through peft's own modules gives the same gradient of every matrix."""
    from peft import LoraConfig, get_peft_model
    from transformers import BertModel

    made = program(lora_alpha=6)
    lora = {n: (0.3 * berts.numbers(n, made.specs[n].shape)).requires_grad_() for n in made.lora}
    aim = berts.numbers("aim", (ITEMS, berts.WIDTH))
    filled = torch.arange(ITEMS) != EMPTY
    items = torch.arange(ITEMS)[filled]
    found = torch.autograd.grad((made.read(lora, batch(items)) * aim[filled]).sum(), list(lora.values()))

    base = BertModel(berts.model().config).eval()  # type: ignore[arg-type]
    base.load_state_dict(berts.model().state_dict())
    config = LoraConfig(r=2, lora_alpha=6, target_modules=["query", "value"], task_type="FEATURE_EXTRACTION")
    model = get_peft_model(base, config)
    theirs = []
    for name in made.lora:
        _, k, module, half = name.split(".")
        layer = getattr(model.base_model.model.encoder.layer[int(k)].attention.self, module)
        weight = (layer.lora_A if half == "a" else layer.lora_B)["default"].weight
        weight.data.copy_(lora[name].detach().T)
        theirs.append(weight)
    tokens = berts.titles(ITEMS)[filled].long()
    mask = (tokens != 0).long()
    states = model(input_ids=tokens, attention_mask=mask).last_hidden_state
    share = mask.unsqueeze(-1).float()
    expected = torch.autograd.grad(((states * share).sum(1) / share.sum(1) * aim[filled]).sum(), theirs)
    for name, ours, other in zip(made.lora, found, expected, strict=True):
        assert_same(ours, other.T, name=name)
        assert float(ours.abs().max()) > 1e-4


def test_training_starts_from_what_mlp_starts_from() -> None:
    made = program()
    plain = TransFR(made.settings, made.text, local_epochs=2)
    ours, theirs = made.init_shared(3), plain.init_shared(3)
    assert set(ours) - set(theirs) == set(made.lora)
    items = torch.arange(ITEMS)
    assert_same(made.vectors(ours, batch(items)), plain.vectors(theirs, batch(items)))
    assert made.specs.keys() - plain.specs.keys() == set(made.lora)
    assert all(made.specs[name].place == "shared" for name in made.lora)


def test_a_catalogue_is_read_once_for_the_same_matrices(monkeypatch: pytest.MonkeyPatch) -> None:
    made = program()
    read: list[int] = []
    encode = Bert.above

    def counting(self: Bert, layer: int, states: torch.Tensor, *rest: object) -> torch.Tensor:
        read.append(states.shape[:-2].numel())
        return encode(self, layer, states, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(Bert, "above", counting)
    shared = made.init_shared(0)
    first = made.vectors(shared, batch(torch.arange(3)))
    with torch.inference_mode():
        made.vectors({name: value.clone() for name, value in shared.items()}, batch(torch.arange(9).view(3, 3)))
    assert sum(read) == ITEMS, "other tensors of the same values are the same encoder"
    shared["lora.0.value.b"].fill_(0.5)  # in place: the values count, not the object
    assert not torch.equal(made.vectors(shared, batch(torch.arange(3))), first)
    assert sum(read) == 2 * ITEMS
    after = made.read(shared, batch(torch.arange(3)))
    (after * shared["lora.0.value.b"].sum().requires_grad_()).sum().backward()  # may be saved for a backward pass


@pytest.mark.parametrize("room", [2**29, 0])
def test_what_lies_under_the_trained_layers_is_read_once(monkeypatch: pytest.MonkeyPatch, room: int) -> None:
    """Layer 0 reads every title once however many steps there are; vectors and gradients are those of all layers."""
    monkeypatch.setattr("edgefr.methods.transfr.lora.KEPT", room)
    made, read = program(lora_layers=1), []
    assert made.lora == ("lora.1.query.a", "lora.1.query.b", "lora.1.value.a", "lora.1.value.b")
    whole, layer = made.bert, Bert._layer

    def counting(self: Bert, k: int, x: torch.Tensor, *rest: object) -> torch.Tensor:
        read.extend([k] * x.shape[:-2].numel())
        return layer(self, k, x, *rest)  # type: ignore[arg-type]

    lora = {n: (0.3 * berts.numbers(n, made.specs[n].shape)).requires_grad_() for n in made.lora}
    items, aim = torch.arange(ITEMS), berts.numbers("aim", (ITEMS, berts.WIDTH))
    expected = torch.autograd.grad((whole(made.frozen["tokens"], lora, made.scale) * aim).sum(), list(lora.values()))
    with monkeypatch.context() as patch:
        patch.setattr(Bert, "_layer", counting)
        found = [torch.autograd.grad((made.read(lora, batch(items)) * aim).sum(), list(lora.values())) for _ in "ab"]
    assert read.count(0) == (ITEMS if room else 2 * ITEMS)
    assert read.count(1) == 2 * ITEMS
    for ours, again, other in zip(*found, expected, strict=True):
        assert_same(ours, other)
        assert torch.equal(ours, again)


def test_titles_are_read_as_the_catalogue_is_encoded() -> None:
    from cloud.encode import encode
    from cloud.settings import EncodeSettings

    texts = ["bar cen", "", "  dist fol gur ", "kan"]
    for pooling in ("mean", "cls"):
        reader = TitleReader.open(student(), texts, pooling, 16)  # type: ignore[arg-type]
        assert reader.tokens.dtype == torch.int32
        assert bool((reader.tokens[1] == 0).all())
        with torch.no_grad():
            found = reader.bert(reader.tokens, {}, 1.0)
        expected = encode(student(), texts, EncodeSettings(pooling=pooling, max_tokens=16))
        assert_same(found, expected)
    assert TitleReader.open(student(), texts, "mean", 4).tokens.shape == (4, 4)
    with pytest.raises(InputError, match="32 positions"):
        TitleReader.open(student(), texts, "mean", 33)
    with pytest.raises(InputError, match="no item has one"):
        TitleReader.open(student(), ["", " "], "mean", 8)


def test_lora_has_defaults_of_its_own_that_give_way() -> None:
    paper = load_experiment(overrides=["fidelity=paper"])
    assert (paper.local_epochs, paper.batch_size, paper.model["user_encoder"]) == (30, 256, "vector")
    assert (load_experiment().local_epochs, load_experiment().model["user_encoder"]) == (1, "mean")
    lora = load_experiment(overrides=["model.client=lora"])
    assert (lora.local_epochs, lora.batch_size, lora.rounds) == (2, 32, 10)
    chosen = load_experiment(overrides=["model.client=lora", "local_epochs=7"])
    assert (chosen.local_epochs, chosen.batch_size) == (7, 32)
    with pytest.raises(InputError, match="client"):
        load_experiment(overrides=["model.client=qlora"])
    with pytest.raises(InputError, match="once"):
        load_experiment(overrides=["model.lora_targets=[query, query]"])
