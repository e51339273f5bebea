"""Faults of what is compiled for clients, and of jobs on the machines of a cluster."""

from tests.mutants.planted import Fault

FORMS = "tests/contract/test_forms.py"
PLACE = f"{FORMS}::test_what_the_compiled_code_has_no_place_for_is_not_given_to_it"
ONE = f"{FORMS}::test_a_compiled_shard_is_that_of_the_loop_and_of_the_vectorised_executor"
CLIPPED = f"{FORMS}::test_it_leaves_as_every_release_does"
TWICE = f"{FORMS}::test_an_item_that_a_client_has_twice_is_one_row[fcf]"
MACHINES = "tests/test_jobs_on_ray.py"

FAULTS = (
    # --- who is compiled, and what the compiled code is given
    Fault(
        "a rule that needs single updates, and who keeps a table, get compiled sums",
        "edgefr/engine/compiled/dispatch.py",
        "if terms.each or terms.keeps or terms.joint is not None:",
        "if terms.joint is not None:",
        PLACE,
    ),
    Fault(
        "a class that computes something else is compiled as the one it derives from",
        "edgefr/engine/compiled/dispatch.py",
        'return program.score_form if "score_form" in vars(says) else None',
        "return program.score_form",
        f"{FORMS}::test_who_computes_something_else_and_declares_nothing_is_not_compiled",
    ),
    Fault(
        "what was compiled leaves without a clip",
        "edgefr/engine/compiled/kernel_arrays.py",
        "clip, step = terms.clip or 0.0,",
        "clip, step = 0.0,",
        CLIPPED,
    ),
    Fault(
        "compiled clients rebuild their vector on the items that the other phase learns from",
        "edgefr/engine/compiled/dispatch.py",
        "_lists(work, clients, phases[0].which, replay)",
        "_lists(work, clients, last[0].which, replay)",
        f"{ONE}[fedrecon]",
    ),
    Fault(
        "clients that solve a system are compiled whatever their rates",
        "edgefr/engine/compiled/dispatch.py",
        "return plain and rates and",
        "return plain and",
        PLACE,
    ),
    Fault(
        "a client that solves a system weighs one, whatever it had",
        "edgefr/engine/compiled/dispatch.py",
        "work.sampler.train.counts[clients] if terms.by_size",
        "np.ones(len(clients)) if terms.by_size",
        TWICE,
    ),
    Fault(
        "a compiled old update is weighed as a new one",
        "edgefr/engine/compiled/kernel_run.py",
        "factor_of(norm, terms.clip) * terms.share",
        "factor_of(norm, terms.clip)",
        f"{FORMS}::test_a_release_on_a_grid_is_whole_steps_of_what_was_clipped[fedmf-0.7]",
    ),
    # --- what it computes
    Fault(
        "a compiled negative may be what the client had",
        "edgefr/engine/compiled/kernel_draws.py",
        "while seen[i] >= AVOIDED or seen[i] - N(1) < known:",
        "while seen[i] >= AVOIDED:",
        f"{ONE}[fedmf]",
    ),
    Fault(
        "a compiled client that came to no number is in the sum",
        "edgefr/engine/compiled/kernel_run.py",
        "if not norm <= terms.largest:",
        "if norm > terms.largest:",
        f"{FORMS}::test_who_diverges_is_dropped",
    ),
    Fault(
        "a compiled update that was clipped is twice as long",
        "edgefr/engine/compiled/kernel_run.py",
        "factor = clip * TARGET / norm",
        "factor = 2 * clip * TARGET / norm",
        CLIPPED,
    ),
    Fault(
        "a compiled update is rounded to the nearest step of the grid",
        "edgefr/engine/compiled/kernel_run.py",
        "np.trunc(np.float64(room.change[r, k])",
        "np.rint(np.float64(room.change[r, k])",
        f"{FORMS}::test_a_release_on_a_grid_is_whole_steps_of_what_was_clipped",
    ),
    Fault(
        "an item that a client has twice counts twice in its system",
        "edgefr/engine/compiled/kernel_system.py",
        "count = numbered(seen, item, had[at], count)",
        "item[count], count = had[at], count + 1",
        TWICE,
    ),
    Fault(
        "a compiled system has no ridge",
        "edgefr/engine/compiled/kernel_system.py",
        "+ ridge  # what is no number stays none",
        "",
        f"{ONE}[fcf]",
    ),
    Fault(
        "a client that solved for no number is in the sum",
        "edgefr/engine/compiled/kernel_system.py",
        "if not norms[c] <= terms.largest:",
        "if norms[c] > terms.largest:",
        f"{FORMS}::test_of_those_who_solve_who_comes_to_no_number_is_dropped",
    ),
    Fault(
        "a backend stays open where a run is refused",
        "edgefr/simulation/simulate.py",
        "ending.callback(training.federation.backend.close)",
        "ending.callback(lambda: None)",
        "tests/durable/test_whole_runs.py::test_who_works_is_let_go_where_a_run_is_refused_before_it_begins",
    ),
    Fault(
        "a client that was dropped keeps what it trained",
        "edgefr/engine/federation.py",
        "torch.from_numpy(shard[part.kept]), torch.from_numpy(part.kept)",
        "torch.from_numpy(shard), torch.arange(len(shard))",
        "tests/engine/test_federation.py::test_a_diverged_client_is_dropped_and_counted[None-dense-nan]",
    ),
    # --- that machines share a folder
    Fault(
        "a machine that does not see the folder of the jobs may do them",
        "edgefr/studies/jobs_on_ray.py",
        "if not self.mark.is_file():",
        "if not self.mark.parent.is_dir():",
        f"{MACHINES}::test_a_machine_needs_the_working_directory_and_the_modules_of_others",
    ),
    Fault(
        "a mark that another command left passes for this one's",
        "edgefr/studies/jobs_on_ray.py",
        'f".shared-{secrets.token_hex(8)}"',
        '".shared"',
        f"{MACHINES}::test_no_mark_of_another_command_passes_for_this_ones",
    ),
    Fault(
        "one machine answers for all",
        "edgefr/studies/jobs_on_ray.py",
        'return {node["NodeID"]: node["NodeManagerHostname"] for node in alive}',
        'return {node["NodeID"]: node["NodeManagerHostname"] for node in list(alive)[:1]}',
        f"{MACHINES}::test_every_machine_is_asked",
    ),
    Fault(
        "why a machine cannot do jobs is not asked",
        "edgefr/studies/jobs_on_ray.py",
        "if reason is not None and number in there_still:",
        "if isinstance(reason, Failed) and number in there_still:",
        f"{MACHINES}::test_a_machine_that_does_not_share_the_folder_is_refused_before_any_job",
    ),
    Fault(
        "a machine that has died stops the others",
        "edgefr/studies/jobs_on_ray.py",
        "if reason is not None and number in there_still:",
        "if reason is not None:",
        f"{MACHINES}::test_a_machine_that_dies_before_it_answers_gets_no_job_and_stops_none",
        ("InputError",),
    ),
    # --- sessions
    Fault(
        "clients are trained with numbers that processors are slow on",
        "edgefr/engine/device.py",
        "torch.set_flush_denormal(True)",
        "torch.set_flush_denormal(before)",
        "tests/engine/test_sequences.py::test_tiny_numbers_are_zeros_while_a_shard_is_trained_and_no_longer",
    ),
    Fault(
        "what a forward pass leaves is forgotten",
        "edgefr/engine/executors/sessions.py",
        "    values.update(left)\n",
        "",
        "tests/released/fcucr/test_fcucr.py::test_shards_in_float64_give_it_too",
    ),
    # --- graphs that are kept
    Fault(
        "programs with other tensors have one graph",
        "export/identity.py",
        'self._bytes(("tensor", type(thing).__name__, thing.dtype, tuple(thing.shape), thing.requires_grad), value)',
        'self._say("tensor", thing.dtype, tuple(thing.shape), value.size)',
        "tests/export/test_identity.py::test_all_that_differs_has_another_identity",
    ),
    Fault(
        "a plug-in's class has an identity",
        "export/identity.py",
        "    if _top(thing) not in _KNOWN:\n        raise",
        "    if not _top(thing):\n        raise",
        "tests/export/test_identity.py::test_what_others_wrote_has_none",
    ),
    Fault(
        "a damaged graph is read",
        "export/artifact_cache.py",
        "if hashlib.sha256(content).digest() == own:",
        "if own:",
        "tests/export/test_identity.py::test_a_graph_that_was_damaged_is_made_anew",
        ("AssertionError", "DecodeError"),
    ),
    Fault(
        "what the clip did is told without its noise",
        "edgefr/engine/cohort.py",
        "found = (self.open + next(iter(noise), np.zeros(2))) / (TOLD * clip)",
        "found = self.open / (TOLD * clip)",
        "tests/engine/test_clip_told.py::test_on_a_grid_each_client_tells_whole_steps_and_no_more_than_a_twentieth_of_the_clip",
    ),
    Fault(
        "a clip that follows the updates goes above its largest",
        "edgefr/engine/cohort.py",
        "self.scale = min(1.0, self.scale * math.exp(-PACE * (whole - quantile)))",
        "self.scale = self.scale * math.exp(-PACE * (whole - quantile))",
        "tests/engine/test_clip_told.py::test_the_clip_goes_toward_the_quantile_and_never_above_the_largest",
    ),
    Fault(
        "a server asks devices in the round after theirs",
        "edgefr/serving/ledger.py",
        "free = [number - last[client] >= self.plan.apart if client in last else True for client in clients.tolist()]",
        "free = [True for client in clients.tolist()]",
        "tests/remote/test_noise.py::test_devices_that_come_apart_are_asked_in_every_second_round_at_most",
    ),
)
