"""A device's policy: each refusal is a line that names its key, and bundles that promise too much are refused."""

import math
import random

import pytest

from edge.device_ledger import Spending
from edge.learning import PROTOTYPE, ReleaseRecord
from edge.manifest import Promise
from edge.policy import Policy, event_of
from edgefr.simulation.bundles import NOISED, promise_of
from privacy.errors import InputError
from privacy.guarantee import Event
from privacy.plan import plan
from privacy.settings import PrivacySettings

KEY = "k" * 16


def release(**changes):
    """A local release on a grid: clip 1, noise 8, whole steps of 2 ** -10."""
    record = {"clip": 1.0, "norm": "l1", "noise": "discrete-laplace", "scale": 8.0, "step": 2.0**-10}
    return ReleaseRecord.model_construct(**record | {"noised": "here", "weights": "uniform", "project": None} | changes)


def promise(**changes):
    """What is true of that release."""
    record = {"trust": "local", "mechanism": "discrete-laplace", "adjacency": "replace-one", "norm": "l1", "clip": 1.0}
    record |= {"multiplier": 4.0, "steps": 2048, "epsilon": 5.0, "delta": 1e-5, "rounds": 20, "cohort": 1}
    return Promise(**record | changes)


CENTRAL = {"trust": "central", "adjacency": "zero-out", "multiplier": 8.0, "steps": 1024, "cohort": 50}
NOWHERE = {"noise": None, "scale": 0.0, "step": None, "noised": "nowhere", "clip": None}


def refused(policy=None, terms=None, says=None, signed_by=KEY, released=("item",)):
    return (policy or Policy()).refuses(terms or release(), says, signed_by, released)


def test_a_signed_bundle_with_enough_noise_is_accepted():
    assert refused(says=promise()) is None
    assert refused(Policy(trust="central"), release(noised="server"), promise(**CENTRAL)) is None
    assert refused(Policy(unprotected=True), release(**NOWHERE)) is None
    assert refused(Policy(signed=False), says=promise(), signed_by=None) is None
    assert refused(Policy(tensors=["item", "bias"]), says=promise()) is None
    l2 = {"norm": "l2", "multiplier": 4.0}
    assert refused(terms=release(norm="l2"), says=promise(**l2)) is None


@pytest.mark.parametrize(
    ("policy", "terms", "says", "other", "key"),
    [
        ({}, {}, {}, {"signed_by": None}, "signed"),
        ({"tensors": ["bias"]}, {}, {}, {}, "tensors"),
        ({"tensors": []}, {}, {}, {}, "tensors"),
        ({}, NOWHERE, None, {}, "unprotected"),
        ({}, {}, None, {}, "unprotected"),  # noise, and no promise of what it is worth
        ({}, {"noised": "server"}, CENTRAL, {}, "trust"),
        ({"trust": "central", "least_cohort": 51}, {"noised": "server"}, CENTRAL, {}, "least_cohort"),
        ({"trust": "central"}, {"noised": "server"}, CENTRAL | {"cohort": 1}, {}, "least_cohort"),
        ({"least_noise": 4.1}, {}, {}, {}, "least_noise"),
        ({}, {"scale": 0.18}, {"multiplier": 0.09}, {}, "least_noise"),
        ({"largest_clip": 0.9}, {}, {}, {}, "largest_clip"),
        ({"delta": 1e-6}, {}, {}, {}, "delta"),
        ({"epsilon": 4.9}, {}, {}, {}, "epsilon"),
    ],
)
def test_each_key_refuses_and_its_line_says_what_would_allow_it(policy, terms, says, other, key):
    found = refused(Policy(**policy), release(**terms), None if says is None else promise(**says), **other)
    assert found.startswith(f"policy {key}: ")
    assert f"allow it with {key}" in found
    assert "\n" not in found


CLIPPED = NOWHERE | {"clip": 1.0}
PROMISES = {"local": ({}, {}), "central": ({"noised": "server"}, CENTRAL), "none": (CLIPPED, None)}
HOLDS = {
    "signed": ({"signed": True}, {"local", "central", "none"}),
    "tensors": ({"tensors": ["bias"]}, {"local", "central", "none"}),
    "largest_clip": ({"largest_clip": 0.9}, {"local", "central", "none"}),
    "releases_per_day": ({"releases_per_day": 0}, {"local", "central", "none"}),
    "sealed": ({"sealed": True}, {"local", "central", "none"}),
    "least_cohort": ({"least_cohort": 60}, {"central", "none"}),  # the device's own noise hides it in any sum
    "unprotected": ({"unprotected": False}, {"none"}),
    "trust": ({"trust": "local"}, {"central"}),
    "least_noise": ({"least_noise": 9.0}, {"local", "central"}),  # where there is no noise, `unprotected` says whether
    "epsilon": ({"epsilon": 0.01}, {"local", "central"}),
    "delta": ({"delta": 1e-9}, {"local", "central"}),
}
"""What a policy says by one key, and under which promises it keeps an update in that could leave else."""


@pytest.mark.parametrize("promised", PROMISES)
@pytest.mark.parametrize("key", HOLDS)
def test_each_key_holds_under_every_promise_but_where_it_is_moot(key, promised):
    terms, says = PROMISES[promised]
    says, terms = None if says is None else promise(**says), release(**terms)
    lets = {"trust": "central", "unprotected": True, "signed": False}

    def keeps_in(policy):
        """The lines of all that asks a policy, of a bundle that is signed unless the key is about that."""
        signed_by = None if key == "signed" and says is None else KEY
        yield refused(policy, terms, says, signed_by)
        yield Spending().may(event_of(says), 1_800_000_000, policy)
        yield policy.refuses_in_the_clear()
        yield "policy least_cohort: " if policy.too_few(says, 50) else None

    strict, held = HOLDS[key]
    assert [why for why in keeps_in(Policy(**lets)) if why] == []
    if key == "signed" and says is not None:
        assert refused(Policy(**lets | strict), terms, says, None).startswith("policy signed: ")
        return
    lines = [why for why in keeps_in(Policy(**lets | strict)) if why]
    assert bool(lines) == (promised in held), lines
    assert all(line.startswith(f"policy {key}: ") for line in lines), lines


def test_every_key_of_a_policy_is_tried_under_every_promise():
    assert {*HOLDS, "max_ram_mb", "max_seconds"} == set(Policy.model_fields)  # two are about no update


@pytest.mark.parametrize(
    ("terms", "says", "fault"),
    [
        (NOWHERE, {}, "noise is added here, by its settings nowhere"),
        ({"noised": "server"}, {}, "noise is added here, by its settings server"),
        ({}, CENTRAL, "noise is added server, by its settings here"),
        ({}, {"adjacency": "zero-out", "multiplier": 8.0, "steps": 1024}, "adjacency zero-out does not cover"),
        ({"noise": "discrete-gaussian"}, {}, "discrete-laplace noise is promised, its settings say discrete-gaussian"),
        ({"noise": None}, {}, "discrete-laplace noise is promised, its settings say None"),
        ({"weights": "size"}, {}, "number of interactions leaves"),
        ({"norm": "l2"}, {}, "clipped to 1 l2 instead of to 1 l1"),
        ({"clip": 1.001}, {}, "clipped to 1.001 l1 instead"),
        ({"clip": None}, {}, "updates are not clipped"),
        ({"scale": 7.99}, {}, "the noise is 3.995 times the sensitivity, not 4"),
        ({"scale": 0.0}, {}, "the noise is 0 times"),
        ({"step": 2.0**-11}, {}, "4096 steps of its grid, not 2048"),
        ({}, {"steps": 1}, "2048 steps of its grid, not 1"),
        ({}, {"steps": 10**9}, "2048 steps of its grid, not 1000000000"),
        ({}, {"steps": 0}, "needs its sensitivity in whole steps"),
        ({"noise": "none"}, {"mechanism": "none", "steps": 0}, "mechanism none bounds nothing"),
        ({"noise": "odd"}, {"mechanism": "odd"}, "unknown mechanism 'odd'"),
    ],
)
def test_a_bundle_that_promises_more_than_it_does_is_refused_whatever_the_policy(terms, says, fault):
    for policy in (Policy(), Policy(unprotected=True, trust="central", epsilon=1e9, signed=False)):
        found = refused(policy, release(**terms), promise(**says))
        assert found.startswith("the bundle promises more than it does: ")
        assert fault in found
        assert "do not use it" in found
        assert "allow it" not in found
        assert "\n" not in found


@pytest.mark.parametrize("trust", ["local", "central"])
@pytest.mark.parametrize("mechanism", ["gaussian", "laplace", "discrete-gaussian", "discrete-laplace"])
@pytest.mark.parametrize("norm", ["l1", "l2"])
@pytest.mark.parametrize("clip", [0.3, 1.0, 7.7])
def test_what_a_run_plans_and_ships_is_accepted_and_lasts_for_its_rounds(trust, mechanism, norm, clip):
    settings = PrivacySettings(mechanism=mechanism, trust=trust, clip=clip, norm=norm, epsilon=8.0)
    planned = plan(settings, 40, 94, 943)
    noise, says = planned.noise, promise_of(planned, settings).model_copy(update={"cohort": 94})
    terms = ReleaseRecord(
        clip=planned.clip,
        norm=planned.norm,
        noise=noise.kind,
        scale=noise.scale,
        step=noise.step,
        noised=NOISED[planned.where],
        weights="uniform",
    )
    policy, spending = Policy(trust=trust, epsilon=8.0), Spending()
    assert policy.refuses(terms, says, KEY, ["item"]) is None
    assert event_of(says) == planned.event
    for number in range(60):
        if spending.may(event_of(says), number, policy) is None:
            spending = spending.after(number, event_of(says), clip, number)
    assert len(spending.releases) == 40
    assert spending.spent(settings.delta) == pytest.approx(8.0, rel=1e-3)
    louder = terms.model_copy(update={"scale": noise.scale * 0.99})
    assert "promises more" in policy.refuses(louder, says, KEY, ["item"])


def test_a_prototype_beside_a_noised_update_breaks_the_promise():
    assert "a prototype of the session leaves" in refused(says=promise(), released=["item", PROTOTYPE])
    assert refused(Policy(unprotected=True), release(**NOWHERE), released=["item", PROTOTYPE]) is None


def test_nobody_is_trusted_with_the_noise_who_has_not_signed():
    for policy in (Policy(trust="central"), Policy(trust="central", signed=False)):
        found = refused(policy, release(noised="server"), promise(**CENTRAL), signed_by=None)
        assert found.startswith("policy signed" if policy.signed else "policy trust: only a signed bundle")


def test_a_policy_is_read_as_it_is_written(tmp_path):
    path = tmp_path / "policy.yaml"
    path.write_text("trust: central\nepsilon: 4\ndelta: 1e-6\nsigned: no\ntensors: [item, bias]\nleast_cohort:\n")
    found = Policy.read(path)
    assert (found.trust, found.epsilon, found.delta, found.signed) == ("central", 4.0, 1e-6, False)
    assert (found.tensors, found.least_cohort) == (("item", "bias"), 10)
    for empty in ("", "# nothing\n", "tensors: null\n", "tensors: ~\n", "---\n"):
        path.write_text(empty)
        assert Policy.read(path) == Policy()


REFUSED = {
    "an unknown key": ("epsilom: 4", r"unknown key 'epsilom'; did you mean 'epsilon'"),
    "nothing for a number": ("epsilon: lots", r"epsilon: "),
    "no noise": ("least_noise: 0", r"least_noise: .*greater than 0"),
    "endless": ("epsilon: inf", r"epsilon: .*finite"),
    "no number": ("epsilon: .nan", r"epsilon: "),
    "nan": ("epsilon: nan", r"epsilon: .*finite"),
    "a delta of 1": ("delta: 1", r"delta: .*less than 1"),
    "another trust": ("trust: everybody", r"trust: .*'local' or 'central'"),
    "half a release": ("releases_per_day: 2.5", r"releases_per_day: "),
    "sexagesimal": ("releases_per_day: " + "1:" * 9000 + "1", r"releases_per_day: "),
    "hexadecimal": ("releases_per_day: 0x" + "f" * 60000, r"releases_per_day: "),
    "many digits": ("releases_per_day: " + "9" * 60000, r"releases_per_day: "),
    "a list": ("- epsilon", r"write keys and values"),
    "a text": ("epsilon", r"write keys and values"),
    "a tag": ("epsilon: !!python/object/apply:os.system ['true']", r"epsilon: "),
    "an alias": ("epsilon: &a 4\ndelta: *a", r"aliases"),
    "a bomb": ("a: &a [x, x]\nb: &b [*a, *a]", r"aliases"),
    "too deep": ("tensors: " + "[" * 30000, r"deep nesting"),
    "twice": ("epsilon: 4\nepsilon: 400", r"key epsilon is given twice"),
    "a mapping": ("epsilon: {of: 4}", r"epsilon: "),
    "a key that is a list": ("[1, 2]: 4", r"is not a policy"),
    "half a file": ("tensors: [item", r"is not a policy"),
    "control characters": ("epsilon: \0", r"is not a policy"),
    "two documents": ("epsilon: 4\n---\nepsilon: 40", r"is not a policy"),
    "many keys": ("".join(f"k{n}: 1\n" for n in range(6000)), r"unknown key"),
    "a large file": ("#" * 70000, r"more than 65,536 bytes"),
}


@pytest.mark.parametrize("name", REFUSED)
@pytest.mark.timeout(10)
def test_other_files_are_refused_in_one_line(tmp_path, name):
    text, said = REFUSED[name]
    (tmp_path / "policy.yaml").write_text(text)
    with pytest.raises(InputError, match=said) as caught:
        Policy.read(tmp_path / "policy.yaml")
    line = str(caught.value)
    assert "policy.yaml" in line
    assert len(line) < 600
    assert line.isprintable()


def test_files_that_are_none_are_refused(tmp_path):
    with pytest.raises(InputError, match="cannot read"):
        Policy.read(tmp_path / "absent.yaml")
    with pytest.raises(InputError, match="cannot read"):
        Policy.read(tmp_path)
    (tmp_path / "policy.yaml").write_bytes(b"epsilon: \xff\xfe")
    with pytest.raises(InputError, match="is not a policy"):
        Policy.read(tmp_path / "policy.yaml")


def test_a_refusal_names_all_keys_that_refuse_and_the_file_to_change(tmp_path):
    loud = CENTRAL | {
        "cohort": 1,
        "multiplier": 0.012345678,
        "clip": 123.4567891,
        "epsilon": 40.2,
        "delta": 1.23456789e-4,
    }
    terms = release(noised="server", clip=123.4567891, scale=5.0, step=123.4567891 / 1024)
    owner = Policy.of(tmp_path)
    found = refused(owner, terms, promise(**loud))
    for key in ("trust", "least_cohort", "least_noise", "largest_clip", "delta", "epsilon"):
        assert found.count(f"policy {key}: ") == 1, found
        assert found.count(f" {key}: ") == 2, found
    assert found.count("allow it with ") == 1
    assert str(tmp_path / "policy.yaml") in found
    assert "--policy" in found
    allowed = found.split("allow it with ")[1].split(" in ")[0]
    assert allowed.startswith("trust: central, least_cohort: 1, ")
    (tmp_path / "policy.yaml").write_text(allowed.replace(", ", "\n"))
    assert refused(Policy.of(tmp_path), terms, promise(**loud)) is None, "what it says is enough"
    assert Policy().needs(terms, promise(**loud), KEY, ["item"]) == allowed.split(", ")


def test_all_tensors_that_would_leave_are_named(tmp_path):
    found = refused(Policy(tensors=["bias"]), says=promise(), released=["item", "bias", "adapter"])
    assert found.endswith("allow it with tensors with adapter, item in it")


def test_a_promise_of_less_than_is_done_is_believed():
    assert refused(terms=release(scale=80.0), says=promise()) is None
    assert refused(terms=release(clip=0.5, step=2.0**-11), says=promise(multiplier=8.0)) is None


def test_an_event_is_what_is_promised():
    assert event_of(promise()) == Event("discrete-laplace", "l1", 4.0, 2048)
    assert event_of(None).pure == math.inf


def test_the_defaults_are_strict_and_every_key_says_what_it_is():
    policy = Policy()
    assert (policy.trust, policy.unprotected, policy.signed) == ("local", False, True)
    assert (policy.epsilon, policy.delta, policy.least_noise) == (10.0, 1e-5, 0.1)
    assert Event("laplace", "l1", policy.least_noise).pure == policy.epsilon  # one release alone
    assert all(field.description for field in Policy.model_fields.values())


def test_1000_damaged_files_are_read_or_refused_in_one_line(tmp_path):
    path, draw = tmp_path / "policy.yaml", random.Random(0)
    whole = b"trust: central\nepsilon: 4\ndelta: 1e-6\nsigned: no\ntensors: [item, bias]\nleast_cohort: 3\n"
    odd, refusals = b"\0\n:[]{}&*!|>-#'\" %@`,?\xff0ea", []
    for _ in range(1000):
        content = bytearray(whole)
        for _ in range(draw.randint(1, 4)):
            at = draw.randrange(len(content))
            content[at : at + draw.randint(0, 3)] = bytes(draw.choices(odd, k=draw.randint(0, 3)))
        path.write_bytes(content)
        try:
            Policy.read(path)
        except InputError as error:
            refusals.append(str(error))
    assert len(refusals) > 500
    assert all(line.isprintable() for line in refusals)


def test_a_broken_promise_is_not_to_be_allowed(tmp_path):
    found = refused(
        Policy.of(tmp_path), release(noised="server"), promise(**CENTRAL | {"multiplier": 80.0, "cohort": 1})
    )
    assert "do not use it" in found
    assert "allow it" not in found
