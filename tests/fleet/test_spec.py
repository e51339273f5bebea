"""devices.yaml: what ships is sound, and every mistake ends in one line that points at it."""

import copy
import re

import numpy as np
import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from edgefr.fleet import Fleet, load_fleet
from edgefr.fleet.summary import evidence
from edgefr.fleet.table import table
from privacy.errors import InputError
from tests.fleet.fleets import DEVICES, shipped

TEXT = DEVICES.read_text()
VALUE = yaml.safe_load(TEXT)


def line_of(text, fragment):
    return next(i for i, line in enumerate(text.splitlines(), 1) if fragment in line)


def refused(tmp_path, text, overrides=None):
    """The message for a file of this text; checked to be one line."""
    path = tmp_path / "fleet.yaml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(InputError) as caught:
        load_fleet(path, overrides)
    message = str(caught.value)
    assert "\n" not in message
    assert message.startswith(f"{path}") or message.startswith(f"cannot read {path}")
    return message.removeprefix(f"{path}")


def test_the_shipped_file_says_where_every_figure_comes_from():
    spec = shipped()
    assert len(spec.devices) == 17
    assert len(spec.networks) == 6
    assert sum(share > 0 for share in spec.fleet.share.values()) >= 12
    assert {"speaker_512", "watch_w5"} <= set(spec.fleet.share)
    figures = re.findall(r"\{v: .*?\}", TEXT)
    assert len(figures) > 100
    assert all("kind:" in figure and "src:" in figure for figure in figures)


def test_the_shipped_file_agrees_with_the_facts():
    device = shipped().devices["phone_sd8g2"]
    rate = device.compute.fp32_gflops
    assert (rate.v, rate.lo, rate.hi, rate.kind, rate.src) == (136, 54, 217, "D", "ncnn")
    assert (device.memory.app_mb.v, device.memory.copy_gbs.v, device.power.active_w.v) == (3000, 12, 6.0)
    assert evidence(shipped(), "phone_sd8g2")["memory_mb"] == {"rss_mb": "measured", "app_mb": "estimate"}


CHANGES = [
    (
        "app_mb: {v: 350, kind: E, src: est}",
        "app_mb: -350",
        "memory.app_mb.v: it should be greater than 0; got -350",
    ),
    ("copy_gbs: {v: 1.3,", "copy_gbs: {v: .nan,", "copy_gbs.v: it should be a finite number; got nan"),
    (
        "fp32_gflops: {v: 8.0,",
        "fp32_gflops: {v: .inf,",
        "fp32_gflops.v: it should be a finite number; got inf",
    ),
    ("fp32_gflops: {v: 8.0,", "fp32_gflops: {v: fast,", "it should be a valid number; got 'fast'"),
    ("fp32_gflops: {v: 8.0,", "fp32_gflops: {v: 88.0,", "lo <= v <= hi does not hold: 2.5, 88.0, 10.5"),
    ("int8_gops: {v: 12.5, kind: D, src: ncnn}", "int8_gops: {v: 12.5, kind: D}", "kind D needs a source"),
    (
        "int8_gops: {v: 12.5, kind: D, src: ncnn}",
        "int8_gops: {v: 1, kind: D, src: ncn}",
        "did you mean 'ncnn'",
    ),
    ("phone_sd680: 0.25", "phone_sd680: 0.20", "fleet.share: the shares sum to 0.95, not 1"),
    ("phone_sd680: 0.25", "phone_sd68: 0.25", "unknown device 'phone_sd68'; did you mean 'phone_sd680'"),
    (
        "phone_sd680: 0.25",
        "phone_sd680: -0.25",
        "fleet.share.phone_sd680: it should be greater than or equal to 0",
    ),
    ("stack: python_ort", "stack: python_oort", "unknown runtime 'python_oort'; did you mean 'python_ort'"),
    (
        "networks: {wifi_home: 0.7, wifi_poor: 0.3}",
        "networks: {wify_home: 1.0}",
        "unknown network 'wify_home'",
    ),
    ("networks: {wifi_home: 0.7, wifi_poor: 0.3}", "networks: {wifi_home: 0.7}", "the shares sum to 0.7"),
    ("deadline_s: 600", "deadline_s: 0", "rounds.deadline_s: it should be greater than 0; got 0"),
    (
        "over_select: 1.3",
        "over_select: 0.9",
        "rounds.over_select: it should be greater than or equal to 1; got 0.9",
    ),
    (
        "policy: deadline ",
        "policy: fastest ",
        "rounds.policy: unknown round policy 'fastest' (known: async, deadline, first_k)",
    ),
    ("dropout: 0.1 ", "drop_out: 0.1 ", "fleet.drop_out: unknown key 'drop_out'; did you mean 'dropout'"),
    ("mean_off_h: 1.0", "mean_of_h: 1.0", "unknown key 'mean_of_h'; did you mean 'mean_off_h'"),
    ('label: "Raspberry Pi Zero 2 W"', "lable: Pi", "unknown key 'lable'; did you mean 'label'"),
    ("dropout: 0.1 ", "dropout: true ", "fleet.dropout: it should be a valid number; got True"),
    ("schema: edgefr.devices/1", "schema: edgefr.devices/9", "schema: it should be 'edgefr.devices/1'"),
    ("dropout: 0.1 ", "stack: native_ort ", "'stack' is given twice; keep one"),
]


@pytest.mark.parametrize(("before", "after", "says"), CHANGES)
def test_a_mistake_names_its_line_and_field(tmp_path, before, after, says):
    assert before in TEXT
    text = TEXT.replace(before, after, 1)
    message = refused(tmp_path, text)
    found = re.match(r":(\d+): ", message)
    assert found, message
    assert says in message
    wrong = line_of(text, after)
    if "sum to 0.95" in says:
        wrong = line_of(text, "  share:")
    assert int(found.group(1)) == wrong


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "the file is empty"),
        ("# only a comment\n", "the file is empty"),
        (b"\x89PNG\r\n\x1a\n\xff\xfe\x00", "not a text file"),
        (b"schema: \0", "not a text file"),
        ("- a\n- b\n", "must be a mapping"),
        ("just words", "must be a mapping"),
        ("schema: [", "expected the node content"),
        ("a: &x 1\nb: *x\n", ":2: aliases"),
        ("a: " + "[" * 5000, "nested too deeply"),
        ("a: !!python/object/apply:os.system [ls]\n", ":1: tags (!name) are not read; write the value alone"),
        ("#" * 1_100_000, "larger than 1 MB"),
        ("a: 1\n---\nb: 2\n", ":2: but found another document"),
        ("a: 2020-13-45\n", "cannot be read as YAML"),
        ("a: \x07\n", "control characters"),
        ("a: \ufffe\n", "cannot be read as YAML"),
        ("schema: edgefr.devices/1\n", "is missing; add it"),
        ("1: x\n", ":1:"),
    ],
)
def test_a_file_that_is_no_fleet_is_refused(tmp_path, text, says):
    assert says in refused(tmp_path, text)


def test_a_missing_file_and_a_folder_are_refused(tmp_path):
    for path in (tmp_path / "nothing.yaml", tmp_path):
        with pytest.raises(InputError, match=r"cannot read .*; check the path"):
            load_fleet(path)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.binary(max_size=200))
def test_no_bytes_end_in_anything_but_an_input_error(tmp_path, content):
    refused(tmp_path, content)


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_any_part_replaced_by_nonsense_is_refused_or_read(tmp_path, data):
    """Whatever value stands anywhere in the file, the answer is a fleet that can be simulated or an InputError."""
    value = copy.deepcopy(VALUE)
    node = value
    while True:
        key = data.draw(st.sampled_from(sorted(node)))
        if not isinstance(node[key], dict) or not node[key] or data.draw(st.booleans()):
            break
        node = node[key]
    node[key] = data.draw(st.sampled_from([None, -1, 0, True, "x", [], {}, [1, 2], {"a": 1}, float("nan"), 10**400]))
    path = tmp_path / "fleet.yaml"
    path.write_text(yaml.safe_dump(value))
    try:
        spec = load_fleet(path)
    except InputError:
        refused(tmp_path, path.read_text())
        return
    assert Fleet(spec, np.ones(20), seed=0).device_of.shape == (20,)
    path.write_text(yaml.safe_dump(spec.model_dump(mode="json", by_alias=True)))
    assert load_fleet(path) == spec


def test_overrides_merge_and_replace_shares():
    spec = shipped({"share": {"rpi_5_8gb": 1.0}, "dropout": 0.3}, {"policy": "first_k"})
    assert spec.fleet.share == {"rpi_5_8gb": 1.0}
    assert (spec.fleet.dropout, spec.rounds.policy, spec.rounds.over_select) == (0.3, "first_k", 1.3)
    assert spec.fleet.stack == "python_ort"
    go = shipped(devices={"android_go_a22": {"memory": {"app_mb": 50}}}).devices["android_go_a22"]
    assert (go.memory.app_mb.v, go.memory.app_mb.kind, go.memory.total_mb) == (50, "E", 2048)


@pytest.mark.parametrize(
    ("overrides", "says"),
    [
        (
            {"fleet": {"dropout": 2.0}},
            r"--set fleet\.?[a-z.]* over .*: fleet.dropout: it should be less than or equal to 1",
        ),
        (
            {"fleet": {"drop": 0.2}},
            r"--set fleet\.?[a-z.]* over .*: fleet.drop: unknown key 'drop'; did you mean 'dropout'",
        ),
        ({"fleet": {"share": {"rpi_6": 1.0}}}, r"--set fleet\.?[a-z.]* over .*: .*unknown device 'rpi_6'"),
        ({"fleet": 3}, r"--set fleet\.?[a-z.]* over .*: fleet: it should be a mapping"),
    ],
)
def test_a_wrong_override_says_that_it_is_one(overrides, says):
    with pytest.raises(InputError, match=says):
        load_fleet(DEVICES, overrides)


def test_the_table_has_a_row_per_class():
    rows = table(shipped())
    assert [row["class"] for row in rows] == list(shipped().devices)
    go = next(row for row in rows if row["class"] == "android_go_a22")
    assert go["RAM / app MB"] == "2048 / 250"
    assert go["fp32 GFLOP/s"] == "22 (10.3-24)"
    assert go["evidence"] == "app:E fp32:P int8:P copy:E W:E"
    assert len({tuple(row) for row in rows}) == 1


def test_what_is_written_down_reads_back_the_same(tmp_path):
    spec = shipped({"dropout": 0.2, "networks": {"lte": 1.0}})
    path = tmp_path / "devices.yaml"
    path.write_text(yaml.safe_dump(spec.model_dump(by_alias=True), sort_keys=False))
    assert load_fleet(path) == spec
