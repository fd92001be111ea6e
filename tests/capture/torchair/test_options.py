"""TorchAir's options: names, defaults, what they refuse. No torch is needed for any of it."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from sgsdump.capture.programs.control import Steps
from sgsdump.capture.torchair.backend import get_npu_backend
from sgsdump.capture.torchair.options import CompilerConfig
from sgsdump.capture.torchair.plan import plan_of
from sgsdump.dumps.formats.ascend.ascend_stats import DEFAULT
from sgsdump.errors import ConfigError

WATCHER = {"dump_scene": "watcher", "dump_list": [{"watcher_nodes": ["c"]}]}


def config(**options: Any) -> CompilerConfig:
    made = CompilerConfig()
    for name, value in options.items():
        setattr(made.dump_config, name, value)
    return made


def json_file(folder: Path, **section: Any) -> str:
    path = folder / "dump.json"
    path.write_text(json.dumps({"dump": {"dump_path": str(folder), **section}}))
    return str(path)


def test_defaults_are_those_of_the_vendor() -> None:
    options = CompilerConfig().dump_config
    assert {name: getattr(options, name) for name in dir(options)} == {
        "enable_dump": False,
        "dump_mode": "all",
        "dump_path": "./",
        "quant_dumpable": False,
        "dump_step": None,
        "dump_layer": None,
        "dump_data": "tensor",
        "dump_config_path": None,
        "data_dump_stage": "optimized",
    }
    plan = plan_of(options)
    assert not plan.control.enabled and plan.path == Path.cwd() and plan.control.mode == "all"


@pytest.mark.parametrize(
    ("name", "value", "why"),
    [
        ("dump_layers", "Add", "no option 'dump_layers'; did you mean 'dump_layer'"),
        ("enable_dump", 1, "True or False"),
        ("dump_mode", "inputs", "one of input, output, all"),
        ("dump_data", "stat", "one of tensor, stats"),
        ("dump_step", "1-", "is not a step"),
        ("dump_step", "5-2", "is a descending range"),
        ("dump_step", "9" * 5000 + "-1", "is a descending range"),
        ("quant_dumpable", "on", "True or False"),
        ("dump_layer", "Add;rm", "letters, digits"),
        ("dump_layer", ["Add"], "use a string"),
        ("dump_config_path", "dump.txt", r"does not end in \.json"),
        ("data_dump_stage", "first", "one of original, optimized"),
    ],
)
def test_what_cannot_be_is_refused_when_it_is_set(name: str, value: Any, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        setattr(CompilerConfig().dump_config, name, value)


def test_steps_and_names_are_read_as_the_vendor_reads_them(tmp_path: Path) -> None:
    made = config(
        enable_dump=True, dump_path=str(tmp_path), dump_step="0|3-5|10|", dump_layer=' "Add1_in_0" Add  Mul_2 '
    )
    control = plan_of(made.dump_config).control
    assert control.steps == Steps(((0, 0), (3, 5), (10, 10))) and control.operators.names == (
        "Add1_in_0",
        "Add",
        "Mul_2",
    )


@pytest.mark.parametrize("path", ["nowhere", "file"])
def test_a_path_that_is_no_folder_is_refused_before_anything_is_compiled(tmp_path: Path, path: str) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match="is not a folder"):
        get_npu_backend(compiler_config=config(enable_dump=True, dump_path=str(tmp_path / path)))


def test_a_relative_path_is_below_the_current_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "out").mkdir()
    monkeypatch.chdir(tmp_path)
    assert plan_of(config(dump_path="out").dump_config).path == tmp_path / "out"


def test_a_path_that_cannot_be_read_or_written_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for lacking in (os.R_OK, os.W_OK):
        monkeypatch.setattr(os, "access", lambda path, mode, lacking=lacking: not mode & lacking)
        with pytest.raises(ConfigError, match="is not readable and writable"):
            plan_of(config(enable_dump=True, dump_path=str(tmp_path)).dump_config)


def test_values_before_quantisation_are_asked_for_without_effect(tmp_path: Path) -> None:
    plans = [
        plan_of(config(enable_dump=True, dump_path=str(tmp_path), quant_dumpable=asked).dump_config)
        for asked in (False, True)
    ]
    assert plans[0] == plans[1]


def test_a_relative_json_and_its_relative_path_are_below_the_current_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "given").mkdir()
    json_file(tmp_path / "given", dump_path="out", dump_op_switch="on")
    monkeypatch.chdir(tmp_path)
    assert plan_of(config(enable_dump=True, dump_config_path="given/dump.json").dump_config).path == tmp_path / "out"


def test_only_max_autotune_dumps() -> None:
    made = config(enable_dump=True)
    made.mode = "reduce-overhead"
    with pytest.raises(ConfigError, match="max-autotune"):
        get_npu_backend(compiler_config=made)


def test_other_options_of_the_hardware_are_taken() -> None:
    made = CompilerConfig()
    made.experimental_config.frozen_parameter = True
    made.debug.graph_dump.type = "pbtxt"
    assert made.experimental_config.frozen_parameter is True
    get_npu_backend(compiler_config=made, custom_decompositions={})


def test_the_json_has_its_own_default_mode_and_the_option_wins(tmp_path: Path) -> None:
    file = json_file(tmp_path, dump_list=[{"model_name": "Net"}], dump_step="2", dump_data="stats")
    plan = plan_of(config(enable_dump=True, dump_config_path=file).dump_config)
    assert (plan.control.mode, plan.control.content, plan.path) == ("output", "stats", tmp_path)
    assert plan.control.operators.models == (("Net", ()),) and plan.control.steps == Steps(((2, 2),))
    assert plan.control.enabled and plan.statistics == DEFAULT
    (tmp_path / "other").mkdir()
    options = {"dump_mode": "all", "dump_step": "1", "dump_data": "tensor", "dump_path": str(tmp_path / "other")}
    control = plan_of(config(enable_dump=True, dump_config_path=file, **options).dump_config)
    assert (control.control.mode, control.control.content, control.path) == ("all", "tensor", tmp_path / "other")
    assert control.control.steps == Steps(((1, 1),))


def test_the_master_switch_is_not_in_the_json(tmp_path: Path) -> None:
    file = json_file(tmp_path, dump_op_switch="on", dump_list=[])
    assert not plan_of(config(dump_config_path=file).dump_config).control.enabled
    plan = plan_of(config(enable_dump=True, dump_config_path=file).dump_config)
    assert plan.control.enabled and not plan.control.operators.models
    assert (plan.control.mode, plan.control.content) == ("output", "tensor")


def test_names_of_the_option_replace_those_of_the_json(tmp_path: Path) -> None:
    file = json_file(tmp_path, dump_list=[{"model_name": "Net", "layer": ["conv"]}])
    control = plan_of(config(enable_dump=True, dump_config_path=file, dump_layer="relu").dump_config).control
    assert control.operators.names == ("relu",) and not control.operators.models


def test_a_scene_of_exceptions_has_no_effect_and_says_so(tmp_path: Path) -> None:
    plan = plan_of(
        config(enable_dump=True, dump_config_path=json_file(tmp_path, dump_scene="lite_exception")).dump_config
    )
    assert not plan.control.enabled and "no effect" in plan.notes[0]


def test_a_watcher_dumps_outputs_only(tmp_path: Path) -> None:
    file = json_file(tmp_path, dump_scene="watcher", dump_list=[{"layer": ["a"], "watcher_nodes": ["c", "d"]}])
    control = plan_of(config(enable_dump=True, dump_config_path=file).dump_config).control
    assert (control.scene, control.mode, control.operators.names, control.operators.watched) == (
        "watcher",
        "output",
        ("a",),
        ("c", "d"),
    )
    with pytest.raises(ConfigError, match="only outputs"):
        plan_of(config(enable_dump=True, dump_config_path=file, dump_mode="all").dump_config)


@pytest.mark.parametrize(
    "section",
    [
        {"dump_debug": "on", "dump_list": [{"optype_blacklist": [{"name": "Add", "pos": ["input0"]}]}]},
        {
            "dump_scene": "watcher",
            "dump_list": [{"watcher_nodes": ["c"], "opname_blacklist": [{"name": "c", "pos": ["output0"]}]}],
        },
    ],
)
def test_scenes_choose_by_themselves_and_say_so_of_lists(tmp_path: Path, section: dict[str, Any]) -> None:
    plan = plan_of(
        config(enable_dump=True, dump_config_path=json_file(tmp_path, dump_level="op", **section)).dump_config
    )
    assert not plan.ranges and not plan.entries
    assert plan.notes[-1].startswith("blacklists and opname_range have no effect in the scene ")


@pytest.mark.parametrize(
    ("section", "why"),
    [
        ({"dump_debug": "on", "dump_op_switch": "on", "dump_list": []}, "dump_debug"),
        ({"dump_debug": "on", "dump_list": [{"model_name": "Net"}]}, "dump_debug"),
        ({"dump_op_switch": "on", "dump_path": ""}, "dump_path"),
        ({"dump_debug": "on", "dump_path": ""}, "dump_path"),
        ({**WATCHER, "dump_path": ""}, "dump_path"),
        ({**WATCHER, "dump_debug": "on"}, "dump_debug"),
        ({**WATCHER, "dump_op_switch": "on"}, "dump_op_switch"),
        ({**WATCHER, "dump_mode": "all"}, "dump_mode"),
        ({**WATCHER, "dump_list": [{"model_name": "Net", "watcher_nodes": ["c"]}]}, "model_name"),
    ],
)
def test_scenes_that_do_not_go_together_and_paths_that_lack_are_refused(
    tmp_path: Path, section: dict[str, Any], why: str
) -> None:
    file = json_file(tmp_path, **section)
    with pytest.raises(ConfigError, match=why):
        plan_of(config(enable_dump=True, dump_config_path=file).dump_config)
