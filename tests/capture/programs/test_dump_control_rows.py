"""Every row of the table of options, ``dump_control.md``, has its tests, or the sentence that says why it has none."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
ONE_LINE_ROW = re.compile(r"^\| (.+?) \|")
AIR, DEVICES, EXEC, TORCH, FRONT, OPTIONS = (
    "tests/capture/torchair/test_dump.py",
    "tests/capture/programs/test_torch_devices.py",
    "tests/capture/commands/test_exec.py",
    "tests/capture/programs/test_torch_programs.py",
    "tests/capture/programs/test_options.py",
    "tests/capture/torchair/test_options.py",
)
TOGETHER = "test_scenes_that_do_not_go_together_and_paths_that_lack_are_refused"
COMPILED, RUNNING, MODULES = (
    f"docs/dump_{page}.md" for page in ("a_compiled_program", "a_running_program", "torch_modules")
)
# A row's first cell -> where it is held: a test by its name, a page by a sentence of it.
ROWS = {
    "001": {
        "enable_dump": [
            (OPTIONS, "test_defaults_are_those_of_the_vendor"),
            (AIR, "test_nothing_is_dumped_and_nothing_slowed_when_it_is_off"),
            (OPTIONS, "test_the_master_switch_is_not_in_the_json"),
        ],
        "dump_mode": [
            (AIR, "test_a_side"),
            (OPTIONS, "test_the_json_has_its_own_default_mode_and_the_option_wins"),
        ],
        "dump_path": [
            (OPTIONS, "test_a_path_that_is_no_folder_is_refused_before_anything_is_compiled"),
            (OPTIONS, "test_a_path_that_cannot_be_read_or_written_is_refused"),
            (OPTIONS, "test_a_relative_path_is_below_the_current_folder"),
        ],
        "quant_dumpable": [
            (OPTIONS, "test_values_before_quantisation_are_asked_for_without_effect"),
            (COMPILED, "sgsdump fuses no operators. Tensor values before quantisation are therefore always available"),
        ],
        "dump_step": [
            (AIR, "test_steps_are_numbered_as_they_are_asked_for"),
            (OPTIONS, "test_steps_and_names_are_read_as_the_vendor_reads_them"),
        ],
        "dump_layer": [
            (AIR, "test_a_named_operator_brings_the_data_it_reads_and_the_block_joins_in"),
            (AIR, "test_of_two_inputs_only_the_one_that_is_read_comes_along"),
        ],
        "where names come from": [
            (
                "tests/capture/torchair/test_program.py",
                "test_the_program_prints_the_same_and_its_operators_can_be_listed_first",
            )
        ],
        "dump_data": [
            (AIR, "test_statistics_have_the_device_s_columns"),
            (COMPILED, "dump statistics first (`dump_data=stats`), then the tensors of suspicious operators"),
        ],
        "dump_config_path": [
            (OPTIONS, "test_the_json_has_its_own_default_mode_and_the_option_wins"),
            (OPTIONS, "test_names_of_the_option_replace_those_of_the_json"),
            (OPTIONS, "test_a_relative_json_and_its_relative_path_are_below_the_current_folder"),
            (COMPILED, "TorchAir advises against setting options in both places"),
            (AIR, "test_the_json_may_be_edited_while_the_program_runs"),
        ],
        "JSON model dump": [
            (AIR, "test_a_model_of_the_json_is_meant_by_its_class"),
            ("tests/capture/programs/test_acl_json.py", "test_the_vendors_verdicts"),
            ("tests/capture/torchair/test_choice.py", "test_a_range_is_dumped_from_its_begin_to_its_end"),
        ],
        "JSON single-op": [
            (OPTIONS, "test_the_master_switch_is_not_in_the_json"),
            (AIR, "test_the_json_may_be_edited_while_the_program_runs"),
            (OPTIONS, TOGETHER),
        ],
        "JSON overflow": [
            ("tests/capture/torchair/test_scenes.py", "test_only_operators_that_overflow_are_dumped_with_their_inputs"),
            (OPTIONS, TOGETHER),
            (EXEC, "test_what_only_a_compiled_graph_or_another_machine_has_is_refused"),
            (COMPILED, "`dump_debug` applies to every operator, not only to operators that run on AI cores."),
            (COMPILED, "No status files are written."),
        ],
        "JSON watcher": [
            ("tests/capture/torchair/test_scenes.py", "test_the_watcher_finds_the_write_through_an_alias"),
            ("tests/capture/torchair/test_scenes.py", "test_a_name_in_both_lists_dumps_its_own_alone"),
            ("tests/capture/torchair/test_scenes.py", "test_collective_communication_is_not_looked_behind"),
            ("tests/capture/torchair/test_scenes.py", "test_a_graph_whose_sizes_change_is_watched_too"),
            (OPTIONS, "test_a_watcher_dumps_outputs_only"),
            (OPTIONS, TOGETHER),
            (COMPILED, "names of operators do not change through fusion"),
        ],
        "exception scene": [
            (OPTIONS, "test_a_scene_of_exceptions_has_no_effect_and_says_so"),
            (
                COMPILED,
                "For example, only torch_npu on the Ascend card can write a dump when an exception occurs",
            ),
        ],
        "result tree": [
            (AIR, "test_the_tree_is_the_vendor_s"),
            (AIR, "test_the_tree_names_the_rank_of_a_distributed_run"),
            (AIR, "test_what_no_folder_should_be_called_is_an_underscore_in_a_graph_s_name"),
            (AIR, "test_steps_are_numbered_as_they_are_asked_for"),
            (AIR, "test_each_graph_has_its_folder_and_its_number"),
        ],
        "scope.data_dump()": [
            (AIR, "test_the_block_goes_with_every_other_option"),
            (AIR, "test_the_block_alone_leaves_the_rest_out"),
            (AIR, "test_a_named_operator_brings_the_data_it_reads_and_the_block_joins_in"),
        ],
        "dump → npy → txt": [
            (AIR, "test_a_step_becomes_npy_files_and_text"),
            (COMPILED, "sgsdump convert TREE --step 1 out/"),
        ],
    },
    "002": {
        "--exec CMD": [
            (EXEC, "test_the_program_in_one_text"),
            (TORCH, "test_behind_a_bash_wrapper"),
            ("tests/capture/programs/test_program.py", "test_redirection_is_refused_with_msits_advice"),
        ],
        "--type …": [
            (FRONT, "test_the_defaults_of_msit_llm_dump"),
            ("tests/capture/programs/test_trees.py", "test_the_whole_tree"),
            (FRONT, "test_options_that_mean_nothing_off_the_card_are_taken_with_a_note"),
        ],
        "stats content": [
            (EXEC, "test_statistics_and_descriptions"),
            ("tests/capture/programs/test_torch_values.py", "test_statistics_are_those_of_plain_numpy"),
            ("tests/capture/programs/test_session.py", "test_statistics_are_a_header_of_exactly_msits_seven"),
            ("tests/capture/programs/test_session.py", "test_a_sum_of_squares_beyond_a_double_is_told"),
            (RUNNING, "if the sum of squares overflows, the norm is infinite"),
        ],
        "-sd --only-save-desc": [
            (EXEC, "test_statistics_and_descriptions"),
            ("tests/capture/programs/test_torch_values.py", "test_a_description_and_a_structure_hold_no_values"),
        ],
        "-ids --save-operation-ids": [
            (EXEC, "test_which_operators"),
            ("tests/capture/programs/test_torch_values.py", "test_ids_count_in_the_order_of_execution"),
            (EXEC, "test_an_unknown_operator_of_a_program_that_was_dumped_before"),
        ],
        "-er --execute-range": [(EXEC, "test_which_steps"), (FRONT, "test_what_cannot_be_asked_for")],
        "-child --save-operation-child": [
            ("tests/capture/commands/test_exec_torch.py", "test_layers_first_then_what_is_inside_one")
        ],
        "-time --save-time": [
            (EXEC, "test_which_side_at_which_moment"),
            ("tests/capture/programs/test_session.py", "test_when_each_side_is_taken"),
        ],
        "-opname --operation-name": [
            (EXEC, "test_which_operators"),
            (EXEC, "test_a_type_that_no_library_has_is_told_before_the_program_starts"),
        ],
        "-tiling --save-tiling": [
            (EXEC, "test_levels_of_messages"),
            (RUNNING, "no effect, because the option concerns kernels of the Ascend card"),
        ],
        "-stp --save-tensor-part": [(EXEC, "test_which_side_at_which_moment")],
        "-o --output": [(EXEC, "test_output_and_status_are_the_programs_and_messages_go_to_standard_error")],
        "-device --device-id": [
            (EXEC, "test_one_device"),
            ("tests/capture/programs/test_session.py", "test_rank_and_device_are_the_launchers"),
        ],
        "-symlink --enable-symlink": [(EXEC, "test_links")],
        "-config --config-path": [
            (FRONT, "test_msits_configuration_replaces_its_four_options_and_no_others"),
            (
                "tests/capture/programs/test_options.py",
                "test_msits_defaults_are_off_the_first_round_every_operator_with_children",
            ),
            ("tests/capture/programs/test_options.py", "test_what_msits_file_may_not_be"),
            (EXEC, "test_a_configuration_switched_on_while_the_program_runs"),
        ],
        "-l --log-level": [(EXEC, "test_levels_of_messages")],
        "-seed": [
            (
                "tests/capture/commands/test_exec_torch.py",
                "test_a_seed_starts_every_generator_and_without_one_nothing_is_touched",
            ),
            (TORCH, "test_a_seed_makes_two_runs_equal"),
        ],
        "-h": [("tests/tools/test_msit.py", "test_help_and_errors_are_msits")],
        "disk guard": [
            ("tests/capture/programs/test_session.py", "test_a_full_disk_stops_the_dump_with_msits_sentence"),
            ("tests/capture/programs/test_program.py", "test_on_a_full_disk_the_program_runs_and_is_not_dumped"),
            ("tests/capture/programs/test_replay.py", "test_a_full_disk_and_a_full_dump_end_it"),
            (AIR, "test_a_full_disk_stops_the_dump_and_not_the_program"),
            ("tests/capture/msit/test_module_hook.py", "test_a_full_disk_ends_the_dump_and_not_the_program"),
        ],
        "outputs": [
            ("tests/capture/programs/test_trees.py", "test_the_whole_tree"),
            ("tests/capture/programs/test_trees.py", "test_the_tables_are_read_by_the_reader_of_the_vendors"),
            (
                "tests/capture/programs/test_trees.py",
                "test_the_onnx_opens_with_types_and_atb_json_to_onnx_makes_the_same",
            ),
            (RUNNING, "the option concerns kernels of the Ascend card"),
        ],
        "token numbering": [(TORCH, "test_rounds_are_warm_up_prefill_and_decoding")],
        "atb_json_to_onnx(path, level, {})": [
            ("tests/capture/msit/test_bin_data.py", "test_signatures_are_msits"),
            ("tests/capture/msit/test_bin_data.py", "test_topologies_become_the_vendors_graphs"),
        ],
    },
    "003": {
        "debug dump --exec --output(./) -opname/--operation-name A,B (all)": [
            ("tests/tools/test_msit.py", "test_debug_dump_takes_every_run_and_exact_names"),
            (FRONT, "test_the_defaults_of_msit_debug_dump"),
            (FRONT, "test_operator_names_are_beginnings_of_types_in_one_and_exact_names_in_the_other"),
        ],
        "three routes": [(TORCH, "test_every_kind_of_program_runs_as_before_and_is_dumped")],
        "asynchronous device": [
            (DEVICES, "test_a_device_is_dumped_as_the_cpu_is"),
            (DEVICES, "test_copies_that_arrive_late_are_read_when_they_are_there"),
            ("tests/capture/programs/test_session.py", "test_an_index_tells_what_ran_and_whether_it_came_to_its_end"),
        ],
        "side files": [
            ("tests/comparison/naming/test_mapping_files.py", "test_mindies_two_files_are_joined"),
            (MODULES, "A saved and reloaded model has no mapping files."),
        ],
        "golden side": [
            ("tests/capture/msit/test_module_hook.py", "test_every_token_is_what_an_independent_hook_sees"),
            ("tests/capture/msit/test_module_hook.py", "test_the_defaults_are_msits"),
            ("tests/capture/msit/test_module_hook.py", "test_only_what_is_asked_for"),
            ("tests/capture/msit/test_module_hook.py", "test_statistics_are_torchs"),
            ("tests/capture/msit/test_module_hook.py", "test_a_seed_makes_runs_equal_and_deterministic"),
            ("tests/capture/msit/test_module_hook.py", "test_files_are_where_msit_has_them_and_torch_loads_them"),
        ],
    },
}


def rows_of(text):
    """The first cells of each seed's table, without its heading and the line below that."""
    sections = re.split(r"^## Seed (\d+).*$", text, flags=re.MULTILINE)
    for seed, section in zip(sections[1::2], sections[2::2]):
        lines = [line for line in section.splitlines() if line.startswith("|")]
        yield seed, [ONE_LINE_ROW.match(line)[1].replace("`", "") for line in lines[2:]]


def test_every_row_is_here(shared):
    table = (shared / "../dump_control.md").read_text(encoding="utf-8")
    assert dict(rows_of(table)) == {seed: list(rows) for seed, rows in ROWS.items()}


@pytest.mark.parametrize("seed", ROWS)
def test_each_test_and_each_sentence_is_there(seed):
    for row, places in ROWS[seed].items():
        assert places, row
        for file, held in places:
            text = (ROOT / file).read_text(encoding="utf-8")
            assert (f"def {held}(" if file.endswith(".py") else held) in text, f"{row}: {file} has no {held!r}"
