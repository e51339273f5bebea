"""Faults of room `privacy`: noise, clip, grid, exact samplers, accounting, the ledger."""

from tests.mutants.planted import Fault

AUDIT = "tests/audit/test_checks.py::test_right_mechanisms_pass"
EXACT = "tests/privacy/test_exact.py"

FAULTS = (
    # --- simulated noise
    Fault(
        "simulated noise follows from the seed and not from the secret",
        "privacy/noise_key.py",
        "key=self.secret, digest_size=BYTES",
        "digest_size=BYTES",
        "tests/privacy/test_noise_key.py::test_every_part_of_a_stream_matters_and_the_secret_most",
    ),
    Fault(
        "every round draws the same noise of a sum",
        "privacy/noise_key.py",
        '"stream", str(int(seed)), purpose, *map(_whole, path))',
        '"stream", str(int(seed)), purpose)',
        "tests/privacy/test_noise_key.py::test_every_part_of_a_stream_matters_and_the_secret_most",
    ),
    Fault(
        "noise of a round is that of the one before in every second round",
        "privacy/noise_key.py",
        '"stream", str(int(seed)), purpose, *map(_whole, path))',
        '"stream", str(int(seed)), purpose, *(str(n // 2) for n in path))',
        "tests/privacy/test_noise_key.py::test_every_part_of_a_stream_matters_and_the_secret_most",
    ),
    Fault(
        "every tensor has the same noise",
        "privacy/noise_key.py",
        '"stream", str(int(seed)), purpose, *map(_whole, path))',
        '"stream", str(int(seed)), "noise", *map(_whole, path))',
        "tests/privacy/test_noise_key.py::test_every_part_of_a_stream_matters_and_the_secret_most",
    ),
    Fault(
        "all clients have the same noise",
        "privacy/mechanism.py",
        "keyed.fold(int(base.key), np.asarray(clients))[:, None]",
        "keyed.fold(int(base.key), 0 * np.asarray(clients))[:, None]",
        "tests/privacy/test_mechanism.py::test_noise_is_fresh_per_client_coordinate_and_round",
    ),
    Fault(
        "every seed has the noise of one key",
        "privacy/noise_key.py",
        "return cls(secrets.token_bytes(BYTES))",
        "return cls(bytes(BYTES))",
        "tests/privacy/test_noise_key.py::test_keys_are_new_and_from_the_system",
    ),
    Fault(
        "the file of a noise key is readable by everybody",
        "privacy/noise_key.py",
        '{self.secret.hex()}\\n", mode=0o600)',
        '{self.secret.hex()}\\n")',
        "tests/privacy/test_noise_key.py::test_a_key_is_a_file_of_its_owners",
    ),
    # --- laws and scales
    Fault(
        "the noise of a sum is half as large",
        "privacy/grid.py",
        "np.sqrt(counts) * (scale / step)) * step",
        "np.sqrt(counts) * (scale / step / 2)) * step",
        "tests/engine/test_noise.py::test_noise_of_a_sum_has_a_draw_for_every_upload",
    ),
    Fault(
        "a sum of uploads has the noise of one of them",
        "privacy/grid.py",
        "np.sqrt(counts) * (scale / step)) * step",
        "(scale / step)) * step",
        "tests/privacy/test_grid.py::test_sum_law_is_that_of_the_literal_sum",
    ),
    Fault(
        "the deviation of a Laplace is taken for its scale",
        "privacy/mechanisms/discrete_laplace.py",
        "return std / math.sqrt(2.0)",
        "return std",
        "tests/privacy/test_plan.py::test_sigma_is_the_deviation_over_the_clip_for_either_law",
    ),
    Fault(
        "the scale of a Laplace is taken for its deviation",
        "privacy/grid.py",
        "return step * math.sqrt(2.0 * ratio) / -math.expm1(-step / scale)",
        "return scale",
        "tests/privacy/test_grid.py::test_std_and_counts_per_coordinate",
    ),
    Fault(
        "real Gaussian noise is drawn with half its sigma",
        "privacy/mechanisms/discrete_gaussian.py",
        "return exact.discrete_gaussian(scale, size)",
        "return exact.discrete_gaussian(max(1, scale // 2), size)",
        "tests/engine/test_noise.py::test_noise_of_a_sum_has_a_draw_for_every_upload",
    ),
    Fault(
        "real Laplace noise is Gaussian",
        "privacy/mechanisms/discrete_laplace.py",
        "return exact.discrete_laplace(scale, size)",
        "return exact.discrete_gaussian(scale, size)",
        f"{AUDIT}",
    ),
    Fault(
        "noise of a device comes from a generator that is seeded",
        "privacy/exact.py",
        "np.frombuffer(os.urandom(count * 8), dtype=np.uint64)",
        "np.random.default_rng(7).integers(0, 2**64, count, dtype=np.uint64)",
        f"{EXACT}::test_the_systems_bits_are_urandom_and_no_two_calls_are_alike",
    ),
    # --- exact samplers
    Fault(
        "uniform numbers keep what is left over, so small ones come more often",
        "privacy/exact.py",
        "while len(left := np.flatnonzero(out >= bound)):",
        "while len(left := np.flatnonzero(out > bound)):",
        f"{EXACT}::test_uniform_numbers_throw_away_what_is_left_over",
    ),
    Fault(
        "minus zero is kept, so zero comes twice as often",
        "privacy/exact.py",
        "keep &= (found != 0) | ~negative",
        "keep &= (found == found)",
        f"{EXACT}::test_draws_have_their_law",
    ),
    # --- clip and grid
    # --- accounting
)
