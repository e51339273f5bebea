"""Faults of figures that are shown, and of order and time: pages, searches, servers, what is restored."""

from tests.mutants.planted import Fault

CLOCKS = "tests/remote/test_clocks.py"
COSTS = "tests/report/test_costs.py"

FAULTS = (
    # --- figures that are shown
    Fault(
        "the page forgets what is sent up",
        "edgefr/report/fleet.py",
        "(down[q] + up[q]) / 1e6",
        "down[q] / 1e6",
        f"{COSTS}::test_what_a_round_moves_is_what_is_fetched_and_what_is_sent",
    ),
    Fault(
        "a further round moves what is downloaded alone",
        "edgefr/report/web/costs.py",
        '(travel["down"] + travel["up"]) / 1e6',
        'travel["down"] / 1e6',
        f"{COSTS}::test_a_first_round_is_told_from_each_further_one_with_what_is_sent",
    ),
    Fault(
        "the slowest class is that of the slowest median",
        "edgefr/report/fleet.py",
        'found = [(values["p90"], one)',
        'found = [(values["p50"], one)',
        f"{COSTS}::test_the_slowest_is_by_its_slowest_tenth_and_not_by_its_median",
    ),
    Fault(
        "of several seeds the best epsilon is told",
        "edgefr/report/screen.py",
        'worst = max((one["privacy"] for one in summaries)',
        'worst = min((one["privacy"] for one in summaries)',
        "tests/report/test_screen.py::test_seeds_are_worth_the_privacy_of_the_worst_of_them",
    ),
    Fault(
        "epsilons that differ in the fifth digit are two points of the front",
        "edgefr/studies/sweeps/tradeoff.py",
        "(kind):.4g}",
        "(kind):.5g}",
        "tests/sweep/test_report.py::test_calibration_s_last_digits_put_nobody_on_the_front",
    ),
    Fault(
        "a message moves the cursor of the terminal",
        "edgefr/cli/output.py",
        'character if character.isprintable() else "?"',
        "character",
        "tests/cli/test_refusal.py::test_a_message_is_one_line_without_what_a_terminal_acts_on",
    ),
    # --- what is said of privacy
    Fault(
        "delta is said to be the chance of a larger loss than epsilon",
        "privacy/report.py",
        '"chance_above": chance_above(made_of, guaranteed.epsilon),\n        "eps_planned"',
        '"chance_above": settings.delta,\n        "eps_planned"',
        "tests/privacy/test_report.py::test_the_chance_of_a_larger_loss_is_in_the_report_where_it_is_known",
    ),
    Fault(
        "the chance of a larger loss is read off delta alone",
        "privacy/accounting.py",
        "return first + (first - second) / math.expm1(high - low)",
        "return first",
        "tests/privacy/test_accounting.py::test_the_chance_of_a_larger_loss_is_read_off_the_distribution_of_a_mixture",
    ),
    Fault(
        "a run without noise names whom it trusts",
        "privacy/report.py",
        '"trust": settings.trust if plan.noise else None',
        '"trust": settings.trust',
        "tests/privacy/test_report.py::test_a_run_without_noise_names_nobody_who_is_trusted_and_no_noise",
    ),
    Fault(
        "a figure of a few people is told by difference",
        "edgefr/report/small_groups.py",
        "while 0 < sum(",
        "while 0 > sum(",
        "tests/fleet/test_fairness.py::test_no_figure_of_a_few_people_is_told_nor_found_by_difference",
    ),
    Fault(
        "a class of a few users has its metrics in the summary",
        "edgefr/simulation/summary/summary.py",
        "shown[device_of[users]]",
        "np.ones(len(users), bool)",
        "tests/fleet/test_fairness.py::test_every_number_by_hand",
    ),
    # --- order and time
    Fault(
        "a client that is at work is asked again",
        "edgefr/fleet/fedbuff.py",
        "minutes.barred[crowd.busy()] = True",
        "minutes.barred[crowd.busy()] = False",
        "tests/fleet/test_oracle.py::test_rounds_that_wait_for_no_one",
        ("AssertionError", "KeyError"),
    ),
    Fault(
        "widening looks at later trials",
        "edgefr/studies/tuning/wider_ranges.py",
        "best_of(ended[:after])",
        "best_of(ended)",
        "tests/tune/test_widening.py::"
        "test_a_range_is_widened_where_the_best_of_its_batches_is[later trials count later]",
    ),
    Fault(
        "the teacher's layers are counted from 0",
        "cloud/distill.py",
        "out.attentions[layer - 1]",
        "out.attentions[layer - 2]",
        "tests/cloud/test_distill.py::test_a_lesson_has_the_attention_of_the_layers_that_are_named",
    ),
    Fault(
        "an item is as recent as its last row",
        "edgefr/simulation/evaluation/hybrid.py",
        "np.maximum.at(newest, dataset.item[rows], dataset.moment[rows])",
        "newest[dataset.item[rows]] = dataset.moment[rows]",
        "tests/metrics/test_hybrid.py::test_recency_is_the_newest_time_whatever_the_order_of_rows",
    ),
    Fault(
        "a silent device holds its place for ever",
        "edgefr/serving/fedbuff.py",
        "sum(now - since < patience_s for _, since in self._at_work.values())",
        "len(self._at_work)",
        f"{CLOCKS}::test_a_silent_device_holds_up_a_round_and_no_more",
    ),
    Fault(
        "a device that is at work holds no place",
        "edgefr/serving/fedbuff.py",
        "sum(now - since < patience_s for _, since in self._at_work.values())",
        "0",
        f"{CLOCKS}::test_a_device_that_is_at_work_for_less_than_a_round_holds_its_place",
    ),
    Fault(
        "a device that asked once counts as there for ever",
        "edgefr/serving/fedbuff.py",
        "if now - at < ASKED_S and self._free(device)",
        "if self._free(device)",
        f"{CLOCKS}::test_who_asked_long_ago_is_not_there_any_more",
    ),
    Fault(
        "a device that lost its work and may not start again is waited for",
        "edgefr/serving/fedbuff.py",
        "self._at_work.pop(device)  # it never heard of its work, or lost it, and may not start again",
        "pass",
        f"{CLOCKS}::test_a_device_that_lost_its_work_and_may_not_start_again_holds_up_no_round",
    ),
    Fault(
        "a device that asks for nothing new loses its place",
        "edgefr/serving/fedbuff.py",
        "if self._task is not None and not self._task.done and self._number > after:",
        "if self._task is not None and not self._task.done:",
        f"{CLOCKS}::test_a_device_that_asks_for_the_round_it_is_at_work_in_keeps_its_place",
        ("AssertionError", "RequestRefused"),
    ),
    Fault(
        "a server waits for who has answered",
        "edgefr/serving/broker.py",
        "left = self._cohort - self._arrived.keys() if",
        "left = self._cohort if",
        f"{CLOCKS}::test_fewer_are_waited_for_with_every_release",
    ),
    Fault(
        "who rests is told so again and again",
        "edgefr/serving/broker.py",
        "if task is not None and task.round > after and device in self._resting:",
        "if task is not None and device in self._resting:",
        f"{CLOCKS}::test_who_rests_is_told_once_a_round",
    ),
    Fault(
        "the state of a device is written in place",
        "edge/state.py",
        "        write_atomic(self.folder / STATE, content, mode=0o600)",
        "        (self.folder / STATE).write_bytes(content)",
        "tests/edge/test_device.py::test_no_file_of_a_state_is_written_in_place",
    ),
    Fault(
        "seconds spent are not restored",
        "edgefr/simulation/stages/stage.py",
        'self.done, self.spent = state["done"], state["spent"]',
        'self.done = state["done"]',
        "tests/durable/test_state.py::test_every_round_can_be_the_last_before_a_stop[method=f3crec strategy=reg]",
    ),
)
