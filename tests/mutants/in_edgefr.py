"""Faults of rooms `edgefr`, `cloud` and `export`: rounds, DP-SGD, serving, audits, shipping."""

from tests.mutants.planted import Fault

AUDIT = "tests/audit/test_checks.py::test_right_mechanisms_pass"
STEPS = "tests/audit/test_checks.py::test_right_steps_pass"
LINEAGE = "tests/remote/test_lineage.py"
LEDGER = "tests/remote/test_ledger.py"
SUMS, SERVED = "tests/remote/test_sealing.py", "tests/remote/test_sealed.py"
CUT_OFF = "tests/remote/test_kills.py::test_a_round_that_was_cut_off_comes_to_the_same_tensors"
FATES = "tests/remote/test_links.py::test_every_failure_comes_to_what_it_is_called"
REHEARSED = "tests/remote/test_rehearsal.py::test_processes_come_to_what_the_simulator_said_and_fail_as_it_said"
LEAK = "tests/contract/test_held_out.py::test_held_out_items_do_not_leak"
FCUCR = "tests/released/fcucr/test_fcucr.py::test_shards_in_float64_give_it_too"
ENCODERS = "tests/test_encoders.py"
LEARNS = "tests/methods/test_transfr_learns.py"
FCF = "tests/methods/test_fcf.py::test_a_client_solves_for_itself_and_sends_its_gradient_over_the_whole_catalogue"
COMPILED = "tests/methods/test_fedcar_gradients.py::test_they_are_those_of_the_loss_in_double_precision"

FAULTS = (
    # --- rounds
    Fault(
        "a user of FCF is solved for with the weight of what nobody had",
        "edgefr/methods/fcf/program.py",
        "(1 + self.settings.alpha) * own.sum(-2)",
        "self.settings.alpha * own.sum(-2)",
        FCF,
    ),
    Fault(
        "what a client had counts twice in FCF's objective",
        "edgefr/methods/fcf/program.py",
        "(1 - scores).square() - scores.square())",
        "(1 - scores).square())",
        FCF,
    ),
    Fault(
        "a compiled contrast draws towards the other client's encoder",
        "edgefr/methods/fedcar/compiled.py",
        "by_c[x] = factor * (two[x] - one[x])",
        "by_c[x] = factor * (one[x] - two[x])",
        COMPILED,
    ),
    Fault(
        "a server's real noise is drawn from a key",
        "edgefr/remote/training.py",
        "        noise=RealNoise(),\n",
        "",
        "tests/remote/test_noise.py::test_the_noise_of_two_rounds_has_nothing_in_common",
    ),
    Fault(
        "a client is relayed its own message",
        "cloud/relay.py",
        "out[circle] = np.roll(circle, 1)",
        "out[circle] = circle",
        "tests/cloud/test_relay.py::test_every_message_goes_to_exactly_one_other_client",
    ),
    Fault(
        "who gets whose message is the order in which they came",
        "cloud/relay.py",
        'circle = np.argsort(draws, kind="stable")',
        "circle = np.arange(len(draws))",
        "tests/cloud/test_relay.py::test_pairs_follow_the_draws_alone",
    ),
    Fault(
        "who relayed a message follows from the public seed",
        "edgefr/engine/transfer.py",
        "senders(keyed.fold(int(secret.key), clients))",
        "senders(keyed.fold(keyed.key(self.seed, purposes.RELAY, number), clients))",
        "tests/engine/test_relay.py::test_whose_it_is_follows_from_the_secret_key_and_the_round_alone",
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
    # --- FCUCR as released
    Fault(
        "what Dice standardises is shifted the other way",
        "edgefr/methods/fcucr/prediction.py",
        'even * tensors["prediction.scale"].unsqueeze(-2) + ',
        'even * tensors["prediction.scale"].unsqueeze(-2) - ',
        FCUCR,
    ),
    Fault(
        "running averages run away from a step's",
        "edgefr/methods/fcucr/prediction.py",
        "torch.lerp(tensors[name], value, MOMENTUM)",
        "torch.lerp(tensors[name], value, -MOMENTUM)",
        FCUCR,
    ),
    Fault(
        "running variances are biased",
        "edgefr/methods/fcucr/prediction.py",
        "(count / (count - 1).clamp_min(1.0))",
        "1.0",
        FCUCR,
    ),
    Fault(
        "Dice leaks the other way",
        "edgefr/methods/fcucr/prediction.py",
        "gate * x + (1 - gate) * slope * x",
        "gate * x - (1 - gate) * slope * x",
        FCUCR,
    ),
    Fault(
        "features are drawn away from the teacher's",
        "edgefr/methods/fcucr/program.py",
        "(own + weight * apart).sum()",
        "(own - weight * apart).sum()",
        FCUCR,
    ),
    Fault(
        "positions are taken from item vectors",
        "edgefr/methods/fcucr/sasrec.py",
        'x * math.sqrt(self.dim) + tensors["position"]',
        'x * math.sqrt(self.dim) - tensors["position"]',
        FCUCR,
    ),
    Fault(
        "a feed-forward layer is taken from what it is put on",
        "edgefr/methods/fcucr/layers.py",
        'return x + dropped(drop, f"{name}.outer"',
        'return x - dropped(drop, f"{name}.outer"',
        FCUCR,
    ),
    Fault(
        "negatives are pulled up like targets",
        "edgefr/methods/losses.py",
        "torch.nn.functional.softplus(negative, threshold=straight)",
        "torch.nn.functional.softplus(-negative, threshold=straight)",
        FCUCR,
    ),
    Fault(
        "the prototype is of the last step in a client's first round alone",
        "edgefr/methods/fcucr/program.py",
        "torch.where(tensors[KNOWN] > 0, tensors[SENT], now)",
        "torch.where(tensors[KNOWN] > 0, now, tensors[SENT])",
        FCUCR,
    ),
    Fault(
        "neighbours are looked for of what was sent",
        "edgefr/engine/transfer.py",
        "messages[:, : self.terms.values], messages[:, -self.terms.values :]",
        "messages[:, : self.terms.values], messages[:, : self.terms.values]",
        FCUCR,
    ),
    Fault(
        "the far count more than the near",
        "cloud/fusions/softmax.py",
        "logits = (cosines.double() / settings.temperature)",
        "logits = (-cosines.double() / settings.temperature)",
        FCUCR,
    ),
    Fault(
        "the next session is the present one",
        "edgefr/stages/sessions.py",
        "self.current(number + 1)",
        "self.current(number)",
        "tests/test_streaming.py::test_one_pass_meets_each_session_once_in_its_turn_and_ends",
    ),
    # --- shipping and audits
    # --- held-out items
    Fault(
        "validation items are trained",
        "edgefr/data/protocols.py",
        "train = ~(held.valid | held.test)",
        "train = ~held.test",
        LEAK,
    ),
    Fault(
        "negatives for training avoid what is held out",
        "edgefr/data/protocols.py",
        "if self.negatives_avoid_held_out else split,)",
        "if True else split,)",
        LEAK,
    ),
    # --- readers
    Fault(
        "records of one second are one record whatever their milliseconds",
        "edgefr/data/interactions.py",
        "exact=exact if (exact % per_second).any() else None",
        "exact=None",
        "tests/data/test_hetrec.py::test_records_of_one_second_that_differ_in_milliseconds_are_not_one_record",
        ("AssertionError", "InputError"),
    ),
    Fault(
        "users and items of Amazon's ratings change places",
        "edgefr/data/amazon_ratings.py",
        '"item,user" if first > second else "user,item"',
        '"user,item"',
        "tests/data/test_amazon.py::test_users_and_items_never_change_places",
    ),
    Fault(
        "users with few items are kept although they are dropped",
        "edgefr/protocols/leave_one_out.py",
        "dataset = protocol.restrict(dataset)",
        "protocol.restrict(dataset)",
        "tests/contract/test_held_out.py::test_users_with_few_items_are_no_clients_where_they_are_dropped",
    ),
    # --- texts
    Fault(
        "a word that no item had is read as another",
        "edge/words.py",
        "known[known] = table.numbers[places[known]] == found[known]",
        "pass",
        "tests/edge/test_words.py::test_learned_words_by_hand",
    ),
    Fault(
        "TF-IDF learns of the domain that is recommended in, whatever it is told",
        "edgefr/encoders/words.py",
        'if settings.fit == "source" else',
        "if False else",
        f"{ENCODERS}::test_tfidf_learns_of_the_domain_that_it_is_told",
    ),
    Fault(
        "the adapter starts from the texts of all domains, whatever it is told",
        "edgefr/methods/transfr/program.py",
        '{"source": source, "all": None}',
        '{"source": None, "all": None}',
        f"{ENCODERS}::test_the_adapter_starts_from_the_texts_of_the_domain_that_it_is_told",
    ),
    # --- what TransFR keeps, and what its server steps by
    Fault(
        "all that rounds changed recommends, whatever is to be kept of it",
        "edgefr/methods/transfr/program.py",
        "if keep == 1.0:",
        "if keep:",
        f"{LEARNS}::test_a_share_of_what_rounds_changed_is_kept",
    ),
    Fault(
        "a cold start knows items of the domain that is recommended in",
        "edgefr/stages/leave_one_out.py",
        "return self.task.history if self.elsewhere else self.task.train",
        "return self.known if self.elsewhere else self.task.train",
        f"{LEARNS}::test_a_cold_start_knows_nothing_of_the_target",
    ),
    Fault(
        "momentum forgets the rounds before",
        "cloud/optimisers/momentum.py",
        'before["sum"] * self.momentum + mean',
        "mean.double()",
        "tests/cloud/test_optimisers.py::test_momentum_is_torchs_sgd_with_momentum_on_the_negative_mean",
    ),
    Fault(
        "a null in an experiment is taken for no answer",
        "edgefr/experiment.py",
        "elif key not in values or (own is None and isinstance(default, Mapping)):",
        "elif own is None:",
        "tests/test_experiment.py::test_a_null_that_was_given_is_an_answer",
    ),
    # --- sums under masks
    Fault(
        "a sum of two is opened where the operator asks for no more",
        "edgefr/remote/sealing.py",
        "max(fewest, FEWEST)",
        "fewest",
        f"{SUMS}::test_two_are_never_enough_whatever_is_asked_for",
    ),
    Fault(
        "a total is taken however long it is",
        "edgefr/remote/sealing.py",
        "widest <= clients * self.largest and length <= clients * self.length",
        "widest <= clients * self.largest",
        f"{SUMS}::test_a_total_that_no_honest_devices_have_is_not_taken[vector1]",
    ),
    Fault(
        "devices have the same numbers in every sum",
        "edgefr/remote/sealing.py",
        "        secrets.SystemRandom().shuffle(numbers)",
        "        numbers.sort()",
        f"{SUMS}::test_numbers_are_of_no_order_and_sessions_differ_in_bundle_round_and_sum",
    ),
    Fault(
        "one device may announce the key of another",
        "edgefr/remote/sealing.py",
        "if any(keys.share == other.share for other in self._keys.values()):",
        "if keys in self._keys:",
        f"{SUMS}::test_what_comes_out_of_order_twice_or_malformed_is_refused",
        ("Failed",),
    ),
    Fault(
        "a sealed round takes releases in the clear",
        "edgefr/remote/broker.py",
        '        if self._sealed is not None:\n            raise Refused(CONFLICT, "uploads',
        '        if self._sealed is None:\n            raise Refused(CONFLICT, "uploads',
        f"{SERVED}::test_nothing_is_taken_in_the_clear_while_a_round_is_sealed",
    ),
    Fault(
        "shares are asked for where they cannot open the sum",
        "edgefr/remote/sealing.py",
        "if not arrived <= self.sum.openable(arrived):",
        "if not arrived:",
        f"{SERVED}::test_where_too_few_are_left_nothing_is_opened_and_the_next_round_goes_on",
    ),
    Fault(
        "a server that was killed within a sum opens the round again",
        "edgefr/remote/ledger.py",
        "opened.bundle == bundle and not opened.sealed",
        "opened.bundle == bundle",
        f"{SERVED}::test_a_killed_server_gives_a_sealed_round_up_and_its_devices_stay_charged[two have announced keys]",
    ),
    Fault(
        "an epsilon of the sum is stated for uploads that anybody may have seen",
        "edgefr/lineage.py",
        "sum(not opened.sealed and opened.trusted is None for opened, _ in self.rounds)",
        "sum(opened.sealed and opened.trusted is None for opened, _ in self.rounds)",
        f"{SERVED}::test_an_epsilon_of_the_sum_is_stated_for_sealed_sums_or_a_server_that_was_named",
        ("AssertionError", "TypeError"),
    ),
    # --- who works, and a server that is killed
    Fault(
        "a block's second shard is left out of its sum",
        "edgefr/engine/aggregate.py",
        "sum((part.dense[name] for part in parts[1:]), parts[0].dense[name])",
        "parts[0].dense[name]",
        "tests/engine/test_processes.py::test_any_number_of_workers_gives_the_bits_of_one_process[history]",
    ),
    Fault(
        "a device hears that its release was taken before it is on the disk",
        "edgefr/remote/broker.py",
        "            self.keep(device, number, content)\n",
        "",
        f"{CUT_OFF}[all had answered, and nobody comes]",
    ),
    Fault(
        "a server that goes on asks without the answers it had",
        "edgefr/remote/devices.py",
        "self.broker.put_back(self.answers.of(work.round, users))",
        "self.answers.of(work.round, users)",
        f"{CUT_OFF}[all had answered, and nobody comes]",
    ),
    # --- rehearsals
    Fault(
        "a client that was off the network hears of its round while it rehearses",
        "edgefr/remote/links.py",
        "while self._away(device, await self._ahead(request.number)):",
        "while False:",
        FATES,
    ),
    Fault(
        "a release that the fleet makes late arrives in time",
        "edgefr/remote/links.py",
        "(fate.failure != Failure.OK or time.monotonic() < due)",
        "(time.monotonic() < due)",
        FATES,
    ),
    Fault(
        "a rehearsed release arrives as soon as it is made",
        "edgefr/remote/links.py",
        "self.scale * fate.seconds",
        "0.0 * fate.seconds",
        "tests/remote/test_links.py::test_a_release_arrives_when_the_fleet_says",
    ),
    Fault(
        "a rehearsal enrols its devices in the run itself",
        "edgefr/remote/rehearsal.py",
        "    return Copy(target)\n",
        "    return Copy(run.path)\n",
        REHEARSED,
    ),
    Fault(
        "everybody contributes to simulated rounds, whatever the fleet says",
        "edgefr/remote/twin.py",
        "contributed = invited[outcome.contributed]",
        "contributed = invited",
        REHEARSED,
    ),
)
