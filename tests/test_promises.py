"""What README.md, docs/, SECURITY.md and the docstrings promise, and the tests that bear it.

Each table maps a piece of text to the tests or commands that bear the sentences with it. The tests
here check that the text still stands there, that what bears it exists, and that no sentence with a
promising word is left out: who writes or changes such a sentence says here what bears it. The other
tests of this file bear sentences that nothing else does.
"""

import argparse
import collections
import configparser
import dataclasses
import http.cookies
import inspect
import re
import sys
import timeit
import tomllib
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import jax.tree_util as jtu
import numpy as np
import pytest

import filterjit
from filterjit import filter_jit
from support.docstrings import public_docstrings
from support.modules import Holder
from support.processes import run

TESTS = Path(__file__).parent
ROOT = TESTS.parent
HERE = "test_promises.py::"
X = jnp.ones(3)

# "path::test", below tests/; "make ..." and "python ..." are commands. README is that of README.md, of
# the pages of docs/, CHANGELOG.md and CONTRIBUTING.md: a sentence may stand in any of them.
README: dict[str, str] = {
    "modes and updates of Variables": "modules/test_nnx_jit.py::test_a_training_step",
    "is one object in the body": (
        "modules/test_nnx_jit_sharing.py::test_what_is_shared_decides_which_program_runs"
    ),
    "a call with other sharing has a program of its own": (
        "core/call/test_variable_sharing.py::test_what_is_shared_is_a_part_of_the_structure"
    ),
    "With `graph=False`, Flax raises its error": (
        "modules/test_nnx_jit_sharing.py::test_tree_mode_raises"
    ),
    "made once, that have the same Variables": (
        "modules/test_nnx_cached_partial.py::test_what_may_change"
    ),
    "It shares its programs with `step`": (
        "modules/test_nnx_cached_partial.py::test_programs_are_shared_with_the_function"
    ),
    "that changes the graph of a clone raises Flax's `ValueError`": (
        "modules/test_nnx_cached_partial.py::test_a_call_that_changes_the_graph"
    ),
    "are seen by them, where Flax keeps the first": (
        "modules/test_nnx_cached_partial.py::test_metadata_that_change_between_the_calls"
    ),
    "the partial is Flax's": "modules/test_nnx_cached_partial.py::test_other_first_arguments",
    "print the same losses to the bit": ("downstream/test_examples.py::test_programs_of_flax_nnx"),
    "are three programs": "parity/test_statics.py::test_five_variants",
    "Two calls share a program only if": (
        "parity/test_static_types.py::test_one_program_for_each_value"
    ),
    "0.0 and -0.0 differ": "parity/test_statics.py::test_five_variants",
    "raises `StaticArgumentError`": "parity/test_bad_input.py::test_unhashable_statics",
    "look the same": "parity/test_binding.py::test_keyword_and_position_share_a_variant",
    "Defaults are not filled in": (
        "parity/test_binding.py::test_a_default_that_is_given_is_another_variant"
    ),
    "and unchanged, is not walked": HERE + "test_a_partial_is_not_walked_on_each_call",
    "share one trace and one compilation": (
        "safety/test_threads.py::test_a_variant_is_traced_and_compiled_once"
    ),
    "waits forever": "safety/test_threads.py::test_traced_functions_that_wait_for_threads",
    "locks are recreated in the child": "safety/test_threads.py::test_locks_held_at_a_fork",
    "can be called inside `jax.grad`": "parity/test_transforms.py::test_outside_and_inside",
    "The outer trace takes about as long": "python benchmarks/dispatch.py",
    "the lower bounds of": "make oldest",
    "filterjit is slower or its messages": (
        "modules/test_self_check.py::test_without_a_private_name"
    ),
    "cannot be saved or loaded": "modules/test_self_check.py::test_fallbacks",
    "warns and leaves Equinox as it is": (
        "install/test_install.py::test_unknown_equinox_warns_and_changes_nothing"
    ),
    "drop them earlier": "explain/test_clearing.py::test_all_is_traced_again_after_clearing",
    "also for functions that Equinox jitted before": (
        "install/test_install.py::test_options_of_a_wrapper_made_before"
    ),
    "Change the import, or nothing at all": "install/test_run.py::test_script",
    "the same names, with the user's pytrees": "aot/test_stages.py::test_the_results",
    "the same names": "explain/test_clearing.py::test_all_is_traced_again_after_clearing",
    "The program sees what it sees": "install/test_run.py::test_what_the_program_sees",
    "which knows nothing of JAX": "make test-core",
    "imports neither JAX nor Equinox": "install/test_install.py::test_import_without_jax",
    "in whose programs their arrays are constants": (
        "parity/test_freeze.py::test_the_cases_of_inference"
    ),
    "A call passes the other arguments only": "python benchmarks/frozen.py",
    "needs no weights and none of the model's classes": (
        "aot/test_frozen_files.py::test_another_process"
    ),
    "later changes of containers and NumPy arrays": (
        "parity/test_freeze.py::test_changes_of_containers_do_not_matter"
    ),
    "that was changed in place, or an array that was deleted": (
        "parity/test_freeze.py::test_a_deleted_array"
    ),
    "The programs are freed with the function": ("parity/test_freeze.py::test_nothing_outlives_it"),
    "`freeze` warns of those over 256 KiB": "parity/test_freeze.py::test_large_constants_warn",
    "on several devices stay arguments": (
        "parity/test_freeze.py::test_devices_and_hoisted_constants"
    ),
    "in most cases below the price of": "python benchmarks/dispatch.py",
    "is the very same object as in the call before is not asked": "make instructions",
    "so the result, its dtype, its sharding and its errors are the same": (
        "parity/test_direct.py::test_settings"
    ),
    "traces every array in its arguments": "parity/test_inputs.py::test_what_is_an_array",
    "Equinox waits for the device in each call": (
        "parity/test_runtime_errors.py::test_a_call_returns_before_the_device_is_done"
    ),
    "Or no change at all.": "install/test_run.py::test_script",
    "reaches children": HERE + "test_install_reaches_children_that_import_the_main_module",
    "A wheel needs no compiler": "make wheels",
    "Equinox's own tests, but for those of speed, pass": ".ci/equinox_tests",
    "So do Flax's tests of NNX": ".ci/flax_tests",
    "JAX's own tests of shardings": ".ci/jax_tests",
    "Calls with arrays on eight devices": "python benchmarks/sharded.py",
    "the devices begin to compute while": "python benchmarks/sharded.py",
    "would not do the same": "sharding/eight_jit.py::test_a_flag_is_not_an_error_if",
    "the program goes on with the wrong": "sharding/eight_jit.py::test_a_flag_is_not_an_error_if",
    "is not written back": (
        "modules/test_flax_nnx_library.py::test_changes_inside_are_not_written_back"
    ),
    "The five `donate` modes": "parity/test_donation.py::test_the_five_modes",
    "`eqx.error_if` are the same": "parity/test_runtime_errors.py::test_error_at_the_call",
    "the number of traces": "parity/test_configuration.py::test_configurations_trace_as_often",
    "are five programs": "parity/test_statics.py::test_five_variants",
    "one value's program answers": "parity/test_statics.py::test_equinox_shares_equal_values",
    "the same rule wherever": "parity/test_static_types.py::test_one_program_for_each_value",
    "filterjit notices a change in place": "parity/test_static_types.py::test_changed_in_place",
    "It does not notice a change": HERE + "test_changes_that_are_noticed",
    "a rule that takes no array, and a spec that does not fit": (
        "sharding/eight_rules.py::test_errors"
    ),
    "onto devices with the same numbers": "sharding/eight_jit.py::test_save_and_load",
    "the same of the calls that were traced": (
        "sharding/eight_programs.py::test_what_each_call_copies"
    ),
    "what `eqx.filter_shard` does": (
        "sharding/eight_programs.py::test_place_in_the_place_of_filter_shard"
    ),
    "A hit costs the same as without shardings": (
        "sharding/eight_jit.py::test_no_more_than_the_flat_jit_on_a_hit"
    ),
    "before the device is done": (
        "parity/test_runtime_errors.py::test_a_call_returns_before_the_device_is_done"
    ),
    "It waits only for a program that can raise": (
        "parity/test_runtime_errors.py::test_a_call_waits_where_the_program_calls_back"
    ),
    "An error about a static that cannot be hashed names it": (
        "parity/test_bad_input.py::test_unhashable_statics"
    ),
    "that define `==`": HERE + "test_containers_of_the_standard_library",
    "are freed with their function": "parity/test_lifetimes.py::test_a_function_dies",
    "or with the instance": (
        "parity/test_lifetimes.py::test_programs_of_methods_die_with_the_instance"
    ),
    "unless the instance is a pytree": (
        "parity/test_lifetimes.py::test_instances_that_cannot_hold_programs"
    ),
    "each jitted function keeps those of at most": (
        "safety/test_memory.py::test_the_least_recently_used_variant_is_evicted"
    ),
    "(4096)": "explain/test_clearing.py::test_cache_info",
    "Programs of bound methods and callable objects": (
        "parity/test_lifetimes.py::test_programs_of_methods_die_with_the_instance"
    ),
    "refuses other statics": "parity/test_lowering.py::test_compiled_for_other_statics",
    "it is a pytree with the same arrays": (
        "parity/test_jitted_modules.py::test_jitted_functions_as_results"
    ),
    "passed as an argument and serialised": "parity/test_jitted_modules.py::test_serialisation",
    "must match the whole path": "parity/test_patterns.py::test_patterns",
    "matches any text": "parity/test_patterns.py::test_patterns",
    "any one field, key or index": "parity/test_patterns.py::test_patterns",
    "any number of them": "parity/test_patterns.py::test_patterns",
    "exactly this key": ("parity/test_patterns.py::test_dots_in_keys_and_between_keys_differ"),
    "the other operand may be any filter": "parity/test_filters.py::test_operators",
    "were equal to the bit with JAX": "parity/test_pack.py::test_1000_steps_are_equal_to_the_bit",
    "On a CPU it pays for": "python benchmarks/packed.py",
    "names the functions that would gain": (
        "parity/test_pack.py::test_reports_say_what_would_gain"
    ),
    "placed elsewhere stay beside": (
        "parity/test_pack.py::test_leaves_that_go_in_and_leaves_that_do_not"
    ),
    "a structure that contains everything else": HERE + "test_structures_that_can_be_hashed",
    "does not see the other leaves": "python benchmarks/trees.py",
    "in the place of any array": "aot/test_stages.py::test_specs_in_a_module",
    "the same path as a hit of any jitted function": "python benchmarks/first_answer.py",
    "for the same kind of machine": "aot/test_save.py::test_other_machines",
    "refuses those that have changed": "aot/test_save.py::test_changed_code",
    "imports no modules and runs no code": "aot/test_files.py::test_references",
    "A file contains no pickle": "aot/test_files.py::test_json_is_all_there_is",
    "be it in one bit": "aot/test_files.py::test_each_bit_of_the_head",
    "Where JAX does not use it": "aot/test_processes.py::test_the_persistent_cache",
    "It traces nothing and runs nothing": (
        "explain/test_explain.py::test_nothing_runs_and_nothing_is_kept"
    ),
    "None of this costs anything on a hit": HERE + "test_explanations_cost_nothing_on_a_hit",
    "are known to behave alike share a program": (
        "parity/test_functions_structure.py::test_recreated_functions_share"
    ),
    "are the same objects": HERE + "test_functions_that_hold_mutable_objects",
    "is always compiled": "parity/test_functions_contents.py::test_doubt_is_a_miss",
    "any doubt is a miss": "parity/test_functions_contents.py::test_doubt_is_a_miss",
    "the same function called again": (
        "parity/test_functions_contents.py::test_attributes_read_by_name"
    ),
    "costs some microseconds a call": HERE + "test_what_a_function_costs",
    "are logged once": "explain/test_programs.py::test_captured_arrays_are_logged_once",
    "`maxsize` different statics are kept": "safety/test_memory.py::test_the_least_recently_used_variant_is_evicted",
    "logs why any function is traced again": "explain/test_retraces.py::test_log_retraces",
    "They are flattened now and, where": HERE + "test_a_partial_is_not_walked_on_each_call",
    "changed NumPy arrays and statics are noticed": (
        "parity/test_partial.py::test_arrays_and_statics_that_change_are_noticed_by_each_call"
    ),
    "`.args` and `.keywords` are copies": (
        "parity/test_partial.py::test_what_is_read_of_a_partial_is_a_copy"
    ),
    "the first filter that takes it": "parity/test_partition.py::test_the_first_filter_wins",
    "`strict` refuses a second one": "parity/test_partition.py::test_combine",
    "in any order, returns the tree": "parity/test_partition_dict.py::test_partition_dict",
    "hashable and picklable if its statics are": HERE + "test_structures_that_can_be_hashed",
    "a static leaf that cannot be hashed": ("parity/test_bad_input.py::test_unhashable_statics"),
    "other interpreters do not": HERE + "test_install_reaches_children_that_import_the_main_module",
    "JAX is the only dependency": HERE + "test_the_only_dependency",
    "the same cases in loops": "python benchmarks/dispatch.py",
    "`jax.jit` of the same function on a flat list": "python benchmarks/dispatch.py",
    "Flax modules with the same weights": (
        "test_benchmarks.py::test_every_peer_returns_the_same_arrays"
    ),
    "are created and freed in caches": "python benchmarks/dispatch.py",
    "In the same run": "python benchmarks/dispatch.py",
    "The same for jax.jit": "python benchmarks/dispatch.py",
    "both filterjit": "python benchmarks/dispatch.py",
    "Programs that others wrote run unchanged and print the same": ".ci/programs",
    "always others with other shardings": "python benchmarks/dispatch.py",
    "on the same pytree of arrays": "python benchmarks/dispatch.py",
    "`filterjit.install()` does the same": ("install/test_install.py::test_install_and_uninstall"),
    "passes the same model repeatedly saves": "python benchmarks/dispatch.py",
    "Valid programs with unhashable static fields": (
        "parity/test_static_types.py::test_unhashable_fields_are_accepted"
    ),
}
SECURITY: dict[str, str] = {
    "a list inside of a `HashableMapping`": "modules/test_static_graphdefs.py::test_mappings",
    "**Direct calls** against a stand-in": "core/call/test_direct_random.py::test_random_calls",
    "differ in the same tests with and without direct calls": ".ci/jax_tests",
    "whose subclass has an `__iter__`": (
        "parity/test_static_types.py::test_one_program_for_each_value"
    ),
    "imports a module inside its body": (
        "parity/test_functions_that_change.py::test_modules_that_a_function_imports"
    ),
    "donated Module without Variables": ("modules/test_nnx_jit.py::test_arrays_of_donated_modules"),
    "threads that met other specs at once": (
        "sharding/eight_jit.py::test_threads_that_meet_other_specs_at_once"
    ),
    "met first by its finalizer": (
        "core/call/test_lifetimes.py::test_a_class_that_is_met_first_by_its_finalizer"
    ),
    "had the hash 0": (
        "core/walk/test_flatten_match_build.py::test_a_built_namedtuple_has_the_hash_of_its_items"
    ),
    "while the garbage collector freed it": (
        "core/call/test_lifetimes.py::test_a_function_that_is_called_while_it_is_freed"
    ),
    "`time.struct_time` in two": "parity/test_static_types.py::test_one_program_for_each_value",
    "replaced what that one had found": "core/hostile/test_hostile_variables.py::test_captures_that_another_call_replaces",
    # What it found: each fault.
    "(-1 into -2)": "parity/test_static_types.py::test_changed_in_place",
    "by another that got its address": (
        "core/structure/test_changed_statics.py::test_another_object_at_the_same_address"
    ),
    "`f.partial(y=1)`, called once": (
        "fuzz/test_found.py::test_a_captured_keyword_after_a_call_that_replaced_it"
    ),
    "`range(0, 3, 2)` for": "fuzz/test_found.py::test_ranges_of_equal_numbers",
    "likewise `Decimal": "fuzz/test_found.py::test_equal_values_that_behave_differently",
    "`register_static` objects": "parity/test_inputs.py::test_static_class_equality",
    "a rule that held in one place": (
        "parity/test_static_types.py::test_one_program_for_each_value"
    ),
    "moved an attribute from": (
        "core/call/test_memo_objects.py::test_a_class_or_a_dict_that_changes"
    ),
    "inside a `GraphDef` of Flax": (
        "modules/test_flax_nnx_library.py::test_a_graphdef_whose_contents_change"
    ),
    "a dict that a Flax mapping shares": (
        "modules/test_flax_nnx.py::test_a_mapping_whose_dict_others_hold_is_compared_by_contents"
    ),
    "dicts held by objects, nested": "core/hostile/test_tree_limits.py::test_deep_trees_on_a_small_stack",
    "another order of memory": "parity/test_static_types.py::test_one_program_for_each_value",
    "whose class later says": "parity/test_input_statics.py::test_a_static_that_becomes_an_array",
    "whose `__signature__` had changed": (
        "parity/test_sharing.py::test_parameters_that_change_between_two_wrappers"
    ),
    "an OrderedDict, defaultdict": "parity/test_static_types.py::test_changed_in_place",
    "`f.partial(...).args` gave out": (
        "parity/test_partial.py::test_what_is_read_of_a_partial_is_a_copy"
    ),
    "a global list, a namedtuple": ("parity/test_functions_contents.py::test_changes_in_place"),
    "its static function had been edited": "aot/test_save.py::test_changed_code",
    "`f.partial(...).keywords` returned the dict": (
        "core/call/test_partial.py::test_its_arguments_are_copies"
    ),
    "`__hash__` calls the same function": (
        "core/hostile/test_hostile_walks.py::test_calls_within_calls_forever"
    ),
    "whose class changes while": ("core/hostile/test_hostile_walks.py::test_changed_during_a_walk"),
    "with a stack of 256 KB": (
        "core/hostile/test_tree_limits.py::test_deep_trees_on_a_small_stack"
    ),
    "before they were complete": "core/hostile/test_collector.py::test_results_of_calls",
    "stayed with the class": (
        "parity/test_lifetimes.py::test_programs_of_methods_die_with_the_instance"
    ),
    "its own function refers to": "install/test_install.py::test_wrappers_made_before_are_freed",
    "under `jax.disable_jit()`": "safety/test_memory.py::test_maxsize_holds_under_disable_jit",
    "`__eq__` recurses without end": (
        "core/hostile/test_hostile_walks.py::test_calls_within_calls_forever"
    ),
    "evicted the oldest variant": (
        "fuzz/test_found.py::test_a_failed_call_drops_nothing_from_a_full_cache"
    ),
    "failed in one thread and succeeded": (
        "safety/test_threads.py::test_a_trace_that_fails_in_one_thread_and_succeeds_in_another"
    ),
    "was still predicted": "fuzz/test_found.py::test_an_evicted_variant_is_not_called",
    "a `KeyboardInterrupt` while": (
        "core/call/test_call_errors.py::test_an_interrupt_in_translate_error"
    ),
    "while an exception was set": "core/hostile/test_hostile_matrix.py::test_place_and_actions",
    "Each fault has a test": HERE + "test_the_faults_are_listed",
    # What is not promised.
    "`filterjit.load` imports no modules": "aot/test_files.py::test_references",
    "is a hit unless its hash changes": HERE + "test_changes_that_are_noticed",
    "a change of its attributes is not noticed": HERE + "test_changes_that_are_noticed",
    "After `os.fork()` the core works": "safety/test_threads.py::test_fork_of_the_core",
    "waits forever": "safety/test_threads.py::test_traced_functions_that_wait_for_threads",
    # What has been tried: figures of runs, with the commands that repeat them.
    "combined with each action": "pytest tests/core/hostile",
    "one trace and one compilation": (
        "safety/test_threads.py::test_a_variant_is_traced_and_compiled_once"
    ),
    "each is a `ValueError`": "aot/test_files.py::test_five_hundred_damaged_files",
    "no report": "make sanitize",
    "0 went wrong": "pytest tests/core/allocations",
    "leaked nothing, and left": "pytest tests/core/allocations",
    "16 that miss the same": ("safety/test_threads.py::test_a_variant_is_traced_and_compiled_once"),
    "no deadlock": "safety/test_threads.py::test_storm",
    "equal each time, except": "pytest tests/zoo",
}
DOCSTRINGS: dict[str, str] = {
    "It returns the same.": "parity/test_direct_arrays.py::test_pairs",
    "and are freed with it": "parity/test_freeze.py::test_nothing_outlives_it",
    "does not matter": "parity/test_freeze.py::test_changes_of_containers_do_not_matter",
    "can be given by position": "parity/test_freeze.py::test_an_argument_called_max_bytes",
    "A trace raises for those": "parity/test_freeze.py::test_a_deleted_array",
    "a static value that was changed in place": (
        "parity/test_freeze.py::test_a_static_that_changed_in_place_is_an_error_in_a_later_trace"
    ),
    "in the same place as a donated array": "sharding/eight_jit.py::test_donation_holds",
    "or a mesh of the same axes": "sharding/eight_programs.py::test_loaded_onto_other_devices",
    "By default, those with the same ids": "sharding/eight_jit.py::test_save_and_load",
    "Of dimensions of the same size": "sharding/eight_rules.py::test_fsdp",
    "each passes the same tree on its host": "sharding/processes.py::check_place",
    "a rule that matches nothing;": "sharding/eight_rules.py::test_errors",
    "calls that traced nothing": HERE + "test_counters",
    "all other calls, except those": HERE + "test_counters",
    "whose programs it keeps": HERE + "test_counters",
    "less than a microsecond a call": HERE + "test_what_timing_costs",
    "take every leaf or none": "parity/test_partition.py::test_no_filter_and_many",
    "the field, key or index of that name": "parity/test_patterns.py::test_patterns",
    "the same figures and more": "explain/test_report_output.py::test_text_and_picture",
    "Two structures are equal if they have": (
        "parity/test_tree_functions.py::test_statics_are_compared_exactly"
    ),
    "Two structures are equal if their static leaves": (
        "parity/test_tree_functions.py::test_statics_are_compared_exactly"
    ),
    "All have the same structure": "parity/test_partition.py::test_errors_of_combine_name_the_place",
    "a leaf in the same place": "parity/test_partition.py::test_errors_of_combine_name_the_place",
    "Static values are compared exactly": "parity/test_statics.py::test_five_variants",
    "Objects without an ``==``": HERE + "test_changes_that_are_noticed",
    "unhashable values are compared by": (
        "parity/test_static_types.py::test_unhashable_fields_are_accepted"
    ),
    "others by identity": (
        "parity/test_static_types.py::test_a_field_whose_hash_raises_is_compared_by_identity"
    ),
    "JAX warns of memory": "parity/test_donation.py::test_warnings",
    "when they are the same object": (
        "parity/test_functions_structure.py::test_identity_is_the_default"
    ),
    "are known to behave alike": (
        "parity/test_functions_structure.py::test_recreated_functions_share"
    ),
    "Their code and globals must be": (
        "parity/test_functions_structure.py::test_contents_are_exact"
    ),
    "a mutable object must be": HERE + "test_functions_that_hold_mutable_objects",
    "other changes in them are not noticed.": (
        "parity/test_functions_contents.py::test_a_change_of_an_attribute_that_is_not_read"
    ),
    "is always traced": "parity/test_functions_contents.py::test_doubt_is_a_miss",
    "A second call does nothing": (
        "install/test_install.py::test_installing_twice_has_no_further_effect"
    ),
    "and changes nothing": (
        "install/test_install.py::test_unknown_equinox_warns_and_changes_nothing"
    ),
    "nothing is imported": "aot/test_save.py::test_a_module_that_is_not_imported",
    "for each retrace of every": "explain/test_retraces.py::test_log_retraces",
    "two arrays have the same path": "parity/test_partition_dict.py::test_partition_dict_errors",
    "the leaf or subtree in the same": "parity/test_tree_functions.py::test_tree_map_over_many_trees",
    "of `paths` exactly once": "parity/test_partition_dict.py::test_partition_dict_errors",
    "Nothing is compiled and nothing runs": "aot/test_stages.py::test_eval_shape",
    "They are flattened now and, where": HERE + "test_a_partial_is_not_walked_on_each_call",
    "a change of one is noticed": (
        "parity/test_partial.py::test_arrays_and_statics_that_change_are_noticed_by_each_call"
    ),
    "Nothing is traced and nothing runs": (
        "explain/test_explain.py::test_nothing_runs_and_nothing_is_kept"
    ),
    "is replaced only when the new one": (
        "explain/test_report_output.py::test_a_failed_plot_leaves_the_old_file"
    ),
    "computes the same to the bit": "parity/test_pack.py::test_1000_steps_are_equal_to_the_bit",
    "exact:": "parity/test_pack.py::test_1000_steps_are_equal_to_the_bit",
    "both are linear in the number of leaves": (
        "parity/test_pack.py::test_gradients_by_the_packed_tree_are_linear_in_its_leaves"
    ),
    "Outside it runs one program": "parity/test_pack.py::test_one_program_each",
    "says by path where it differs first": (
        "parity/test_pack.py::test_replace_says_where_a_tree_differs"
    ),
    "sharded and committed as they were packed": "parity/test_pack.py::test_eight_devices",
    "`filter_jit` sees it": ("parity/test_pack.py::test_statics_that_change_in_place_are_noticed"),
    "or with other static values": "parity/test_lowering.py::test_compiled_for_other_statics",
}
_WORDS = re.compile(
    r"\b(exact|exactly|notice[sd]?|freed|never|always|the same|every|nothing|at most|refuses?)\b"
)


def _promises(sentences: list[str]) -> list[str]:
    return [s for s in sentences if _WORDS.search(re.sub("`+.*?`+", "", s))]


def _sentences(text: str) -> list[str]:
    """Returns the sentences of a text in Markdown, without code and without tables of figures."""
    text = re.sub(r"^```.*?^```$", "", text, flags=re.M | re.S)
    found = []
    for line in text.splitlines():
        cells = re.split(r"(?<!\\)\|", line)[1:-1] if line.startswith("|") else [line]
        if len(cells) <= 3 and not line.startswith("#"):
            found += [s for cell in cells for s in _split(cell)]
    return found


def _split(text: str) -> list[str]:
    return re.split(r"(?<=[.:;])\s+", " ".join(text.split()))


def _markdown(*patterns: str) -> list[str]:
    found = [path for pattern in patterns for path in sorted(ROOT.glob(pattern))]
    assert len(found) >= len(patterns)
    return [s for path in found for s in _sentences(path.read_text())]


def _faults() -> list[str]:
    text = (ROOT / "SECURITY.md").read_text()
    (section,) = re.findall(r"^## What it found$(.*?)^## ", text, re.M | re.S)
    return re.findall(r"^\| (?:[a-z ]+) \| (.*) \|$", section, re.M)[1:]


_TEXTS: dict[str, tuple[Callable[[], list[str]], dict[str, str]]] = {
    "README.md": (
        lambda: _markdown("README.md", "docs/**/*.md", "CHANGELOG.md", "CONTRIBUTING.md"),
        README,
    ),
    "SECURITY.md": (lambda: _markdown("SECURITY.md"), SECURITY),
    "docstrings": (
        lambda: [s for d in public_docstrings().values() for s in _split(d)],
        DOCSTRINGS,
    ),
}


@pytest.mark.parametrize("name", _TEXTS)
def test_each_promise_is_listed(name: str) -> None:
    sentences, table = _TEXTS[name]
    left = [s for s in _promises(sentences()) if not any(text in s for text in table)]
    assert not left, "say in the table of this file what bears these sentences, or reword them"


def test_the_faults_are_listed() -> None:
    faults = _faults()
    assert len(faults) > 20
    assert [s for s in faults if not any(text in s for text in SECURITY)] == []


@pytest.mark.parametrize(
    ("name", "text"), [(name, text) for name, (_, table) in _TEXTS.items() for text in table]
)
def test_the_text_stands_and_is_borne(name: str, text: str) -> None:
    sentences, table = _TEXTS[name]
    assert any(text in s for s in sentences())
    bearer = table[text]
    path, _, test = bearer.partition("::")
    if test:
        assert re.search(rf"^ *def {test}\(", (TESTS / path).read_text(), re.M), bearer
    elif path.startswith("make "):
        assert path.split()[1] in re.findall(r"[\w-]+", (ROOT / "Makefile").read_text())
    else:
        assert (ROOT / path.split()[-1]).exists()


# ---- statics ----


class OwnEquality:
    def __init__(self, value: float) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, OwnEquality)

    __hash__ = None  # type: ignore[assignment]


class OwnHash(OwnEquality):
    def __hash__(self) -> int:  # type: ignore[override]
        return 1


class ChangingHash(OwnEquality):
    def __hash__(self) -> int:  # type: ignore[override]
        return hash(self.value)


class Identity:
    def __init__(self, value: float) -> None:
        self.value = value


@dataclasses.dataclass
class Compared:
    value: float


@dataclasses.dataclass
class NotCompared:
    value: float = dataclasses.field(compare=False)


@dataclasses.dataclass(eq=False)
class WithoutEquality:
    value: float


@pytest.mark.parametrize(
    ("cls", "noticed"),
    [
        (OwnEquality, True),
        (OwnHash, False),
        (ChangingHash, True),
        (Identity, False),
        (Compared, True),
        (NotCompared, False),
        (WithoutEquality, False),
    ],
)
def test_changes_that_are_noticed(cls: Any, noticed: bool) -> None:
    f = filter_jit(lambda holder: holder.x * holder.s.value)
    static = cls(2.0)
    tree = Holder(X, static)
    assert f(tree)[0] == 2
    static.value = 3.0
    assert f(tree)[0] == (3 if noticed else 2)
    # Another object is another static, unless its class says that it is equal.
    assert f(Holder(X, cls(5.0)))[0] == (2 if cls in (OwnHash, NotCompared) else 5)


def _parser() -> Any:
    parser = configparser.ConfigParser()
    parser["a"] = {"b": "-1"}
    return parser


_KEEP = [WithoutEquality(1), WithoutEquality(2)]
_VIEWED: dict[str, int] = {"a": -1}
CONTAINERS: dict[str, tuple[Callable[[], Any], Callable[[Any], Any]]] = {
    "WeakSet": (lambda: weakref.WeakSet(_KEEP[:1]), lambda x: x.add(_KEEP[1])),
    "WeakValueDictionary": (
        lambda: weakref.WeakValueDictionary({"a": _KEEP[0]}),
        lambda x: x.update(a=_KEEP[1]),
    ),
    "WeakKeyDictionary": (
        lambda: weakref.WeakKeyDictionary({_KEEP[0]: -1}),
        lambda x: x.update({_KEEP[0]: -2}),
    ),
    "ConfigParser": (_parser, lambda x: x["a"].update(b="-2")),
    "SectionProxy": (lambda: _parser()["a"], lambda x: x.update(b="-2")),
    "SimpleCookie": (lambda: http.cookies.SimpleCookie("a=1"), lambda x: x.load("a=2")),
    "Namespace": (lambda: argparse.Namespace(a=-1), lambda x: setattr(x, "a", -2)),
    "BoundArguments": (
        lambda: inspect.signature(lambda a: a).bind(-1),
        lambda x: x.arguments.update(a=-2),
    ),
    "items of a dict": (lambda: _VIEWED.items(), lambda x: _VIEWED.update(a=-2)),
    "UserString": (lambda: collections.UserString("a"), lambda x: setattr(x, "data", "b")),
}


@pytest.mark.parametrize("name", CONTAINERS)
def test_containers_of_the_standard_library(name: str) -> None:
    """Those that are not in tests/parity/test_static_types.py."""
    make, change = CONTAINERS[name]
    _VIEWED.update(a=-1)
    f = filter_jit(lambda holder: holder.x)
    tree = Holder(X, make())
    f(tree), f(tree)
    assert len(f.variants) == 1
    change(tree.s)
    f(tree)
    assert len(f.variants) == 2


@pytest.mark.parametrize(
    ("make", "shares"),
    [
        (lambda: (1, "a"), True),
        (lambda: frozenset([1]), True),
        (lambda: eqx.nn.Identity(), True),
        (lambda: [1], False),
        (lambda: {"a": 1}, False),
        (lambda: Compared(1.0), False),
        (lambda: np.ones(2), False),
        (lambda: Identity(1.0), False),
    ],
    ids=["tuple", "frozenset", "Module", "list", "dict", "dataclass", "ndarray", "object"],
)
def test_functions_that_hold_mutable_objects(make: Callable[[], Any], shares: bool) -> None:
    def hold(value: Any) -> Any:
        return lambda x: (x, value)[0]

    f = filter_jit(lambda function, x: function(x), functions="structure")
    f(hold(make()), X), f(hold(make()), X)
    assert len(f.variants) == (1 if shares else 2)


@pytest.mark.filterwarnings("ignore:A JAX array is being set as static")
def test_structures_that_can_be_hashed() -> None:
    for tree in ([X, 1], Holder(X, [1]), Holder(X, np.ones(2))):
        structure = filterjit.flatten(tree)[1]
        again = filterjit.partition_dict(tree)[0]
        assert structure == again and hash(structure) == hash(again)
    for structure in (filterjit.flatten([X, {1}])[1], filterjit.partition_dict([X, {1}])[0]):
        with pytest.raises(TypeError, match="unhashable"):
            hash(structure)


# ---- counters and costs ----


def test_a_partial_is_not_walked_on_each_call() -> None:
    """Custom nodes are, since Python code flattens them."""

    class Node:
        def __init__(self, x: Any) -> None:
            self.x = x

    def flatten(node: Node) -> Any:
        counted.append(1)
        return (node.x,), None

    jtu.register_pytree_node(Node, flatten, lambda _, children: Node(*children))
    counted: list[int] = []
    f = filter_jit(lambda model, x: x)
    p = f.partial(Node(X))
    p(X)
    counted.clear()
    p(X)
    assert len(counted) == 1

    model = Holder([("static", i) for i in range(100_000)], 1)
    p = f.partial(model)
    for call in (lambda: p(X), lambda: f(model, X)):
        call(), call()
    other = Holder([("static", i) for i in range(100_000)], 1)  # is in no memo
    assert _best(lambda: p(X), 5) < _best(lambda: (f(model, X), f(other, X)), 5) / 10


def test_counters() -> None:
    @filter_jit(maxsize=2)
    def f(x: Any, n: Any) -> Any:
        return x / n

    f(X, 1), f(X, 1), f(X, 2), f(X, 3)
    assert f.cache_info()[:3] == (1, 3, 2) and len(f.variants) == 2
    with pytest.raises(TypeError, match="missing"):
        f(X)
    assert f.cache_info()[:3] == (1, 3, 2)
    with pytest.raises(TypeError):
        f(X, "1")
    with pytest.raises(filterjit.StaticArgumentError):
        f(X, {1})
    assert f.cache_info()[:3] == (1, 4, 2)


def _python_calls(f: Callable[[], Any]) -> list[str]:
    """Returns the names of the Python functions that are called."""
    found: list[str] = []
    before = sys.getprofile()
    sys.setprofile(
        lambda frame, event, _: found.append(frame.f_code.co_qualname) if event == "call" else None
    )
    try:
        f()
    finally:
        sys.setprofile(before)
    return found


def _best(f: Callable[[], Any], calls: int = 200) -> float:
    """Returns the seconds of a call, the best of many."""
    return min(timeit.repeat(f, number=calls, repeat=20)) / calls


def test_explanations_cost_nothing_on_a_hit() -> None:
    plain = filter_jit(lambda x, n: x)
    explained = filter_jit(lambda x, n: x, on_retrace="raise", max_traces=5)
    for f in (plain, explained):
        f(X, 1), f(X, 1)
    expected = _python_calls(lambda: plain(X, 1))
    filterjit.log_retraces()
    try:
        for f in (plain, explained):
            assert _python_calls(lambda f=f: f(X, 1)) == expected  # type: ignore[misc]
    finally:
        filterjit.log_retraces(False)
    assert len(expected) == 1  # the lambda


def _times(i: int) -> Any:
    return lambda x: x * i


def test_what_a_function_costs() -> None:
    functions = [_times(i) for i in range(10)]
    plain = filter_jit(lambda x, functions: x)
    structural = filter_jit(lambda x, functions: x, functions="structure")
    for f in (plain, structural):
        f(X, functions), f(X, functions)
    spent = _best(lambda: structural(X, functions)) - _best(lambda: plain(X, functions))
    assert spent / len(functions) < 50e-6


def test_what_timing_costs() -> None:
    f = filter_jit(lambda x: x)
    f(X), f(X)
    plain = _best(lambda: f(X))
    filterjit.time_calls()
    try:
        f(X)
        assert _best(lambda: f(X)) - plain < 1e-6
    finally:
        filterjit.time_calls(False)


# ---- the package ----


def test_the_only_dependency() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert [re.split(r"\W", name)[0] for name in project["dependencies"]] == ["jax"]


CHILDREN = """
import multiprocessing, subprocess, sys
{at_module_level}
QUESTION = "import equinox, filterjit; print(equinox.filter_jit is filterjit.filter_jit, flush=True)"

def child():
    exec(QUESTION)

if __name__ == "__main__":
    {in_main}
    child()
    process = multiprocessing.get_context("spawn").Process(target=child)
    process.start()
    process.join()
    subprocess.run([sys.executable, "-c", QUESTION], check=True)
"""
INSTALL = "import filterjit; filterjit.install()"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("at_module_level", "in_main", "command", "said"),
    [
        (INSTALL, "pass", [], ["True", "True", "False"]),
        ("", INSTALL, [], ["True", "False", "False"]),
        ("", "pass", ["-m", "filterjit", "run"], ["True", "True", "False"]),
    ],
    ids=["module level", "main", "run"],
)
def test_install_reaches_children_that_import_the_main_module(
    at_module_level: str, in_main: str, command: list[str], said: list[str], tmp_path: Path
) -> None:
    script = tmp_path / "script.py"
    script.write_text(CHILDREN.format(at_module_level=at_module_level, in_main=in_main))
    assert run(*command, script, timeout=240).stdout.split() == said
