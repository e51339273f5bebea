"""Faults of rooms `edgefr`, `cloud` and `export`: rounds, DP-SGD, serving, audits, shipping."""

from tests.mutants.planted import Fault

AUDIT = "tests/audit/test_checks.py::test_right_mechanisms_pass"
STEPS = "tests/audit/test_checks.py::test_right_steps_pass"
LINEAGE = "tests/remote/test_lineage.py"
LEDGER = "tests/remote/test_ledger.py"

FAULTS = (
    # --- rounds
    Fault(
        "a server's real noise is drawn from a key",
        "edgefr/remote/training.py",
        "        noise=RealNoise(),\n",
        "",
        "tests/remote/test_noise.py::test_the_noise_of_two_rounds_has_nothing_in_common",
    ),
    Fault(
        "real noise is drawn once for many uploads",
        "edgefr/engine/noise.py",
        "for _ in range(count):",
        "for _ in range(min(count, 1)):",
        "tests/engine/test_noise.py::test_noise_of_a_sum_has_a_draw_for_every_upload",
    ),
    Fault(
        "noise of every round is that of round 1",
        "edgefr/engine/noise.py",
        "self.key.stream(self.seed, purposes.noise(tensor), number)",
        "self.key.stream(self.seed, purposes.noise(tensor), 1)",
        "tests/engine/test_noise.py::test_simulated_noise_repeats_with_its_key_and_is_new_in_every_round_and_tensor",
    ),
    Fault(
        "rows that nobody changed have no noise",
        "cloud/aggregate.py",
        "self.add_dense(name, torch.from_numpy(np.ascontiguousarray(array)))",
        "self.add_dense(name, torch.from_numpy(np.ascontiguousarray(array)) * (self.sums[name] != 0))",
        AUDIT,
    ),
    Fault(
        "tables are not clipped in a simulated round",
        "edgefr/engine/aggregate.py",
        "factors = kept.astype(np.float64) if terms.clip is None else clip_factors(norms, terms.clip)",
        "factors = kept.astype(np.float64) if terms.clip is None or updates.rows else clip_factors(norms, terms.clip)",
        AUDIT,
    ),
    Fault(
        "what is projected is clipped before it is projected",
        "edgefr/engine/aggregate.py",
        "norms = np.where(kept, updates.norms(len(sizes), order).cpu().numpy(), norms)",
        "pass",
        "tests/engine/test_aggregate.py::test_a_projected_release_is_the_sum_of_clipped_projections",
    ),
    Fault(
        "updates are rounded to the nearest step of the grid",
        "edgefr/engine/aggregate.py",
        "torch.trunc(u.values.double()",
        "torch.round(u.values.double()",
        "tests/engine/test_aggregate.py::test_a_release_on_the_grid_is_the_exact_sum_of_rounded_updates",
    ),
    Fault(
        "the divisor of a guaranteed mean tells who failed",
        "edgefr/engine/aggregate.py",
        "np.ones(len(sizes)) if terms.count_everyone else weights",
        "weights",
        "tests/engine/test_federation.py::test_under_a_guarantee_a_dropped_client_still_counts",
    ),
    Fault(
        "a client is weighed by its data although something is guaranteed",
        "edgefr/engine/aggregate.py",
        "np.where(kept, sizes if terms.by_size else 1.0, 0.0)",
        "np.where(kept, sizes, 0.0)",
        "tests/engine/test_federation.py::test_the_aggregate_is_the_literal_one",
    ),
    Fault(
        "a sealed sum opens again",
        "cloud/aggregate.py",
        "found, total, opened = total, None, True",
        "found, total, opened = total, total, False",
        "tests/cloud/test_aggregate.py::test_a_sealed_sum_opens_once_with_its_noise_and_takes_nothing_after",
    ),
    Fault(
        "a sealed sum opens for fewer clients than asked",
        "cloud/aggregate.py",
        "if 0 < total.clients < at_least:",
        "if False:",
        "tests/cloud/test_aggregate.py::test_it_stays_closed_below_its_smallest_cohort",
    ),
    Fault(
        "rows that nobody moved keep their first values under a promise",
        "edgefr/stages/blocks.py",
        "        if f.plan.guarantees:  #",
        "        if False:  #",
        "tests/continual/test_continual.py::test_where_something_is_promised_a_block_does_not_tell_which_items_anybody_has",
    ),
    # --- DP-SGD
    Fault(
        "every step of DP-SGD has the same noise",
        "edgefr/engine/examples.py",
        "        touched = self._load(tensors, records)\n        parts =",
        "        self.generator.manual_seed(7)\n        touched = self._load(tensors, records)\n        parts =",
        STEPS,
    ),
    Fault(
        "every round of DP-SGD has the same noise",
        "edgefr/engine/examples.py",
        "self.key.base(work.sampler.seed, purpose, work.round, number)",
        "self.key.base(work.sampler.seed, purpose, 1, number)",
        STEPS,
    ),
    Fault(
        "every client of DP-SGD has the same noise",
        "edgefr/engine/examples.py",
        "self.key.base(work.sampler.seed, purpose, work.round, number)",
        "self.key.base(work.sampler.seed, purpose, work.round)",
        STEPS,
    ),
    Fault(
        "rows that a step does not read have no noise",
        "edgefr/engine/examples.py",
        "        if self.std:\n",
        "        if False:\n",
        STEPS,
    ),
    Fault(
        "DP-SGD noises half as much",
        "edgefr/engine/examples.py",
        "noise_multiplier=sigma / TARGET,",
        "noise_multiplier=sigma / 2,",
        STEPS,
    ),
    Fault(
        "DP-SGD clips nothing",
        "edgefr/engine/examples.py",
        "max_grad_norm=clip * TARGET,",
        "max_grad_norm=1e6,",
        STEPS,
    ),
    # --- serving
    Fault(
        "a round is written down after it was offered",
        "edgefr/remote/ledger.py",
        "self.journal.append(Opened(round=number,",
        "(Opened(round=number,",
        f"{LEDGER}::test_while_a_round_is_open_the_files_count_its_whole_cohort",
    ),
    # --- shipping and audits
)
