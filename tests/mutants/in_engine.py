"""Faults of what is compiled for clients, and of jobs on the machines of a cluster."""

from tests.mutants.planted import Fault

FORMS = "tests/contract/test_forms.py"
PLACE = f"{FORMS}::test_what_the_compiled_code_has_no_place_for_is_not_given_to_it"
ONE = f"{FORMS}::test_a_compiled_shard_is_that_of_the_loop"
CLIPPED = f"{FORMS}::test_it_leaves_as_every_release_does"
TWICE = f"{FORMS}::test_an_item_that_a_client_has_twice_is_one_row[fcf]"
MACHINES = "tests/test_jobs_on_ray.py"

FAULTS = (
    # --- who is compiled, and what the compiled code is given
    Fault(
        "a rule that needs single updates, and who keeps a table, get compiled sums",
        "edgefr/engine/formed.py",
        "if terms.each or terms.keeps or terms.joint is not None:",
        "if terms.joint is not None:",
        PLACE,
    ),
    Fault(
        "a class that computes something else is compiled as the one it derives from",
        "edgefr/engine/formed.py",
        'return program.score_form if "score_form" in vars(says) else None',
        "return program.score_form",
        f"{FORMS}::test_who_computes_something_else_and_declares_nothing_is_not_compiled",
    ),
    Fault(
        "what was compiled leaves without a clip",
        "edgefr/engine/formed.py",
        "leaves, terms.clip or 0.0,",
        "leaves, 0.0,",
        CLIPPED,
    ),
    Fault(
        "compiled clients rebuild their vector on the items that the other phase learns from",
        "edgefr/engine/formed.py",
        "_lists(work, clients, phases[0].which, replay)",
        "_lists(work, clients, last[0].which, replay)",
        f"{ONE}[fedrecon]",
    ),
    Fault(
        "clients that solve a system are compiled whatever their rates",
        "edgefr/engine/solved.py",
        "return plain and rates and",
        "return plain and",
        PLACE,
    ),
    Fault(
        "a client that solves a system weighs one, whatever it had",
        "edgefr/engine/solved.py",
        "work.sampler.train.counts[clients] if terms.by_size",
        "np.ones(len(clients)) if terms.by_size",
        TWICE,
    ),
    # --- what it computes
    Fault(
        "a compiled negative may be what the client had",
        "edgefr/engine/kernel/draws.py",
        "while seen[i] >= AVOIDED or seen[i] - N(1) < known:",
        "while seen[i] >= AVOIDED:",
        f"{ONE}[fedmf]",
    ),
    Fault(
        "a compiled client that came to no number is in the sum",
        "edgefr/engine/kernel/run.py",
        "if not norm <= terms.largest:",
        "if norm > terms.largest:",
        f"{FORMS}::test_who_diverges_is_dropped",
    ),
    Fault(
        "a compiled update that was clipped is twice as long",
        "edgefr/engine/kernel/run.py",
        "factor = clip * TARGET / norm",
        "factor = 2 * clip * TARGET / norm",
        CLIPPED,
    ),
    Fault(
        "a compiled update is rounded to the nearest step of the grid",
        "edgefr/engine/kernel/run.py",
        "np.trunc(np.float64(room.change[r, k])",
        "np.rint(np.float64(room.change[r, k])",
        f"{FORMS}::test_a_release_on_a_grid_is_whole_steps_of_what_was_clipped",
    ),
    Fault(
        "an item that a client has twice counts twice in its system",
        "edgefr/engine/kernel/system.py",
        "count = numbered(seen, item, had[at], count)",
        "item[count], count = had[at], count + 1",
        TWICE,
    ),
    Fault(
        "a compiled system has no ridge",
        "edgefr/engine/kernel/system.py",
        "+ ridge  # what is no number stays none",
        "",
        f"{ONE}[fcf]",
    ),
    Fault(
        "a client that solved for no number is in the sum",
        "edgefr/engine/kernel/system.py",
        "if not norms[c] <= terms.largest:",
        "if norms[c] > terms.largest:",
        f"{FORMS}::test_of_those_who_solve_who_comes_to_no_number_is_dropped",
    ),
    # --- that machines share a folder
    Fault(
        "a machine that does not see the folder of the jobs may do them",
        "edgefr/jobs_on_ray.py",
        "if not self.mark.is_file():",
        "if not self.mark.parent.is_dir():",
        f"{MACHINES}::test_a_machine_needs_the_working_directory_and_the_modules_of_others",
    ),
    Fault(
        "a mark that another command left passes for this one's",
        "edgefr/jobs_on_ray.py",
        'f".shared-{secrets.token_hex(8)}"',
        '".shared"',
        f"{MACHINES}::test_no_mark_of_another_command_passes_for_this_ones",
    ),
    Fault(
        "one machine answers for all",
        "edgefr/jobs_on_ray.py",
        'if node["Alive"] and node["Resources"].get("CPU")]',
        'if node["Alive"] and node["Resources"].get("CPU")][:1]',
        f"{MACHINES}::test_every_machine_is_asked",
    ),
    Fault(
        "why a machine cannot do jobs is not asked",
        "edgefr/jobs_on_ray.py",
        "        if reason is not None:\n            why",
        "        if reason is not None and isinstance(reason, Failed):\n            why",
        f"{MACHINES}::test_a_machine_that_does_not_share_the_folder_is_refused_before_any_job",
    ),
)
