"""The cost model against the published golden values, computed with the shipped figures."""

import numpy as np
import pytest

from edgefr.fleet import cost
from privacy.errors import InputError
from tests.fleet.fleets import shipped, work

SHAPES = {  # layers, hidden, feed-forward, heads, parameters, trained by LoRA of rank 8 on query and value
    "L2H128 V8k": (2, 128, 512, 2, 1.51e6, 8_192),
    "L4H312 V30k": (4, 312, 1200, 12, 14.25e6, 39_936),
    "L6H384 V30k": (6, 384, 1536, 12, 22.57e6, 73_728),
}
# ms per step, all weights / LoRA, for the three shapes; int8 ms of L4H312; 50 LoRA steps of L4H312 in s and J
GOLDEN = {
    "rpi_zero_2w": ((672, 437), (4835, 3121), (11121, 7252), 53, 156, 328),
    "rpi_3b_plus": ((528, 339), (3814, 2424), (8731, 5632), 27, 121, 642),
    "rpi_4_4gb": ((317, 206), (2286, 1469), (5251, 3413), 15, 73, 367),
    "rpi_5_8gb": ((99, 64), (717, 454), (1640, 1055), 5.0, 23, 204),
    "jetson_orin_nano_8gb": ((67, 43), (486, 304), (1108, 707), 3.4, 15, 183),
    "android_go_a22": ((248, 159), (1793, 1135), (4099, 2637), 20, 57, 142),
    "phone_sd680": ((164, 106), (1179, 757), (2707, 1758), 13, 38, 113),
    "phone_sd778g": ((78, 50), (566, 357), (1292, 829), 5.5, 18, 80),
    "phone_sd8g2": ((40, 26), (292, 184), (666, 427), 1.5, 9, 55),
    "phone_pixel8": ((44, 28), (318, 200), (725, 464), 2.2, 10, 55),
    "laptop_x86": ((20, 12), (150, 89), (337, 207), 2.5, 4, 111),
    "speaker_512": ((900, 583), (6485, 4161), None, 66, 208, 520),
    "watch_w5": ((805, 530), (5774, 3783), None, 82, 189, 113),
}
BATCH, TOKENS = 8, 32


def step_ms(device, shape, lora):
    layers, hidden, feed_forward, heads, parameters, _ = SHAPES[shape]
    gflops, copy_gbs = device.compute.fp32_gflops.v, device.memory.copy_gbs.v
    passes = 2 if lora else 3
    forward = cost.transformer_forward_flops(layers, hidden, feed_forward, TOKENS)
    kept = cost.transformer_activation_bytes(layers, hidden, heads, BATCH, TOKENS)
    touched = 4 * passes * parameters + 2 * kept
    compute = cost.compute_seconds(BATCH * forward * passes, touched, gflops, copy_gbs, hidden)
    # The golden LoRA column leaves out the adapter's own update, which is below a millisecond.
    update = cost.optimiser_seconds(0.0 if lora else parameters, copy_gbs, "adam")
    return 1000 * float(compute + update)


@pytest.mark.parametrize("name", GOLDEN)
def test_golden_steps(name):
    device = shipped().devices[name]
    for shape, golden in zip(SHAPES, GOLDEN[name][:3], strict=True):
        if golden is not None:
            ours = step_ms(device, shape, lora=False), step_ms(device, shape, lora=True)
            assert ours == pytest.approx(golden, abs=0.5, rel=0.0), shape


@pytest.mark.parametrize("name", GOLDEN)
def test_golden_inference_and_fifty_steps(name):
    device = shipped().devices[name]
    int8_ms, seconds, joules = GOLDEN[name][3:]
    forward = cost.transformer_forward_flops(4, 312, 1200, TOKENS)
    rates = device.compute.int8_gops.v, device.memory.copy_gbs.v
    ours = 1000 * float(cost.inference_seconds(forward, 14.25e6, *rates))
    assert ours == pytest.approx(int8_ms, abs=0.5 if int8_ms > 9 else 0.05)
    fifty = 50 * step_ms(device, "L4H312 V30k", lora=True) / 1000
    assert fifty == pytest.approx(seconds, abs=0.5)
    assert float(cost.compute_joules(fifty, device.power.active_w.v)) == pytest.approx(joules, abs=0.5)


@pytest.mark.parametrize(
    ("shape", "parameters", "not_embeddings", "mb"),
    [
        ("L2H128 V8k", 1.51e6, 0.46e6, (49, 36, 31)),
        ("L2H128 V8k", 4.37e6, 0.44e6, (95, 47, 42)),
        ("L4H312 V30k", 14.25e6, 4.6e6, (274, 157, 103)),
        ("L6H384 V30k", 22.57e6, 10.7e6, (427, 284, 157)),
    ],
)
def test_memory_of_the_published_variants(shape, parameters, not_embeddings, mb):
    layers, hidden, _, heads, _, adapter = SHAPES[shape]
    kept = cost.transformer_activation_bytes(layers, hidden, heads, BATCH, TOKENS)
    trained = np.array([parameters, not_embeddings, adapter])
    ours = cost.training_memory_mb(0.0, parameters, trained, kept, "adam")
    assert ours == pytest.approx(mb, abs=1.5)


def test_fast_and_slow_phones_differ_as_phones_do():
    devices = shipped().devices
    ratio = step_ms(devices["android_go_a22"], "L4H312 V30k", False) / step_ms(
        devices["phone_sd8g2"], "L4H312 V30k", False
    )
    assert 5 < ratio < 12  # three phones measured side by side: 9.2; a phone benchmark's p90/p10: 12


def test_unfused_adam_and_sgd_move_the_bytes_they_should():
    fused = cost.optimiser_seconds(1e6, 2.0, "adam")
    assert fused == pytest.approx(28e6 / 4e9)
    assert cost.optimiser_seconds(1e6, 2.0, "adam", passes=4) == pytest.approx(4 * fused)
    assert cost.optimiser_seconds(1e6, 2.0, "sgd") == pytest.approx(12e6 / 4e9)


def test_compute_is_bound_by_memory_when_there_is_little_arithmetic():
    assert cost.compute_seconds(1.0, 4e9, 100.0, 2.0, 128) == pytest.approx(1.0)


def test_radio_energy_counts_the_tail_once_per_transfer():
    assert cost.radio_joules(np.array([0.0, 1e6, 2e6]), 4.4, 12.3) == pytest.approx([0.0, 16.7, 21.1])


@pytest.mark.parametrize("change", [{"steps": -1}, {"bytes_up": np.inf}, {"flops_per_example": np.nan}])
def test_impossible_work_is_refused(change):
    with pytest.raises(InputError, match=f"{next(iter(change))} must be finite and not negative"):
        work(**change)
