"""Each vendor's options, by name, and configuration files: what they mean as a DumpControl, their defaults, what cannot
be asked for together, and a file that changes."""

import json
from types import SimpleNamespace

import pytest

from sgsdump.capture.programs import acl_json
from sgsdump.capture.programs.control import EVERY, DumpControl, Steps, dump_control, from_json, to_json
from sgsdump.capture.programs.options import (
    CaptureOptions,
    MsitOptions,
    TorchAirOptions,
    debug_dump,
    idle_options,
    llm_dump,
    read_msit_config,
    types_of,
    with_config,
)
from sgsdump.capture.programs.program import LiveConfig
from sgsdump.errors import ConfigError


def options(**values):
    """The options by the names of their fields, ``dump_…`` for TorchAir's."""
    msit = {name: values.pop(name) for name in list(values) if name in MsitOptions.__dataclass_fields__}
    torchair = {name[5:]: values.pop(name) for name in list(values) if name.startswith("dump_")}
    return CaptureOptions(MsitOptions(**msit), TorchAirOptions(**torchair), **values)


def flat(control):
    """The control's values by the names of ``FIELDS``."""
    return SimpleNamespace(**{**vars(control), **vars(control.operators), **vars(control.storage)})


def test_the_defaults_of_msit_llm_dump(two_gib_are_left):
    control = llm_dump(options())
    assert types_of(options()) == ("tensor", "model", "layer")
    assert (control.steps, control.content, control.mode) == (Steps(((0, 0),)), "tensor", "all")
    assert (control.when, control.operators.children, control.storage.links) == (
        "inputs-before-outputs-after",
        True,
        "none",
    )
    assert (control.operators.ids, control.operators.names, control.operators.prefixes, control.devices) == (
        (),
        (),
        (),
        (),
    )
    assert (control.seed, control.storage.min_free, control.storage.max_bytes, control.timing) == (
        None,
        2 << 30,
        0,
        False,
    )


def test_the_defaults_of_msit_debug_dump():
    control = debug_dump(options())
    assert (control.steps, control.content, control.mode) == (EVERY, "tensor", "all")
    assert (control.operators.names, control.operators.prefixes, control.operators.patterns) == ((), (), ())


def test_operator_names_are_beginnings_of_types_in_one_and_exact_names_in_the_other():
    asked = options(names=["MatMulv2_1, trans_Cast_0"])
    assert (flat(llm_dump(asked)).prefixes, flat(llm_dump(asked)).names) == (("MatMulv2_1", "trans_Cast_0"), ())
    assert (flat(debug_dump(asked)).prefixes, flat(debug_dump(asked)).names) == ((), ("MatMulv2_1", "trans_Cast_0"))
    assert debug_dump(options(names=["all"])).operators.names == ()


@pytest.mark.parametrize(
    ("asked", "field", "value"),
    [
        (options(types=["model", "tensor", "stats"]), "content", "stats"),
        (options(types=["model"]), "content", "structure"),
        (options(types=["tensor", "cpu_profiling"]), "timing", True),
        (options(description=True), "content", "description"),
        (options(ids=["2,", "3_1"]), "ids", ("2", "3_1")),
        (options(ranges="3,5,7,7"), "steps", Steps(((3, 5), (7, 7)))),
        (options(child="False"), "children", False),
        (options(time="0"), "when", "before"),
        (options(time="1"), "when", "after"),
        (options(time="2"), "when", "both"),
        (options(time="3"), "when", "inputs-before-outputs-after"),
        (options(names=["self"]), "prefixes", ("self",)),
        (options(part="0"), "mode", "input"),
        (options(part="1"), "mode", "output"),
        (options(part="2"), "mode", "all"),
        (options(device="1"), "devices", (1,)),
        (options(symlink=True), "links", "symlink"),
        (options(links="index"), "links", "index"),
        (options(seed=2024), "seed", 2024),
        (options(dump_mode="input"), "mode", "input"),
        (options(dump_step="0|3-5"), "steps", Steps(((0, 0), (3, 5)))),
        (options(dump_layer=" Add  Mul_1 "), "names", ("Add", "Mul_1")),
        (options(dump_data="stats"), "content", "stats"),
        (options(regex=["conv.*"]), "patterns", ("conv.*",)),
        (options(ranks="0,3"), "ranks", (0, 3)),
        (options(max_size=1000), "max_bytes", 1000),
    ],
)
def test_every_option(asked, field, value):
    assert getattr(flat(llm_dump(asked)), field) == value


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        (options(types=["tensors"]), "--type 'tensors' is unknown; use any of model, layer"),
        (options(types=["model", "stats"]), 'also requires "tensor", as in --type model tensor stats'),
        (options(ranges="1"), "is not a list of pairs"),
        (options(ranges="5,3"), "is a descending range"),
        (options(ranges=",".join(["1,1"] * 126)), "has 503 characters; at most 500 are allowed"),
        (options(ids=["3-1"]), "'3-1' is not an operation id; write ids such as 2,3_1"),
        (options(child="maybe"), "-child is 'maybe'; use true or false"),
        (options(time="4"), "-time is '4'; use a number from 0 to 3"),
        (options(part="-1"), "-stp is '-1'; use a number from 0 to 2"),
        (options(device="npu0"), "-device 'npu0' is not a number"),
        (options(names=["A,,B"]), "contain an empty name"),
        (options(regex=["("]), "--operation-regex '(' is not a regular expression"),
        (options(dump_step="0|x"), "'x' is not a step"),
        (options(dump_step="9" * 5000 + "-1"), "is a descending range"),
        (options(dump_mode="input", part="1"), "--dump-mode and -stp both choose inputs or outputs; give one"),
        (options(dump_step="1", ranges="1,1"), "--dump-step and -er both choose steps; give one"),
        (options(symlink=True, links="index"), "-symlink and --links index contradict each other; omit one"),
        (options(description=True, types=["tensor", "stats"]), "-sd and --type stats both choose the content"),
        (options(description=True, dump_data="stats"), "-sd and --dump-data both choose the content"),
        (
            options(dump_data="tensor", types=["tensor", "stats"]),
            "--dump-data tensor and --type stats both choose the content",
        ),
        (options(description=True, types=["model"]), "-sd needs --type tensor"),
        (options(dump_data="stats", types=["model"]), "--dump-data needs --type tensor"),
        (
            options(time="0", part="1"),
            "selects nothing if only outputs are dumped: outputs do not exist before the operator runs",
        ),
    ],
)
def test_what_cannot_be_asked_for(asked, message):
    with pytest.raises(ConfigError) as caught:
        llm_dump(asked)
    assert message in str(caught.value)


def test_options_that_mean_nothing_off_the_card_are_taken_with_a_note():
    tiling, kernel = idle_options(options(tiling=True, types=["tensor", "kernel"]))
    assert tiling.startswith("-tiling has no effect") and kernel.startswith("--type kernel has no effect")
    assert idle_options(options()) == ()


def configured(tmp_path, document, asked=None):
    path = tmp_path / "config.json"
    path.write_text(json.dumps(document))
    asked = asked or options()
    return with_config(llm_dump(asked), asked, path)


def test_msits_configuration_replaces_its_four_options_and_no_others(tmp_path):
    asked = options(ids=["7"], ranges="1,1", child="False", device="3", part="0")
    control, notes = configured(tmp_path, {"dump_enable": "true", "er": "2,2"}, asked)
    assert (control.operators.ids, control.steps, control.operators.children, control.devices) == (
        (),
        Steps(((2, 2),)),
        True,
        (),
    )
    assert (control.mode, control.enabled) == ("input", True)
    assert notes == (f"{tmp_path / 'config.json'} overrides -ids, -er, -child, -device",)
    assert configured(tmp_path, {"dump_enable": "true"})[1] == ()
    control, notes = configured(tmp_path, {"dump_enable": "true", "er": "2,2"}, options(dump_step="0"))
    assert control.steps == Steps(((2, 2),)) and notes[0].endswith("overrides --dump-step")


def test_given_options_win_over_acl_json_whose_own_defaults_count(tmp_path):
    document = {"dump": {"dump_path": str(tmp_path), "dump_op_switch": "on", "dump_step": "1|2"}}
    control, notes = configured(tmp_path, document)
    assert (control.mode, control.steps, control.enabled, notes) == ("output", Steps(((1, 1), (2, 2))), True, ())
    control, notes = configured(tmp_path, document, options(dump_mode="all", dump_step="5", dump_layer="A"))
    assert (control.mode, control.steps, control.operators.names) == ("all", Steps(((5, 5),)), ("A",))
    assert notes == (f"options on the command line take precedence over {tmp_path / 'config.json'}",)


def test_operators_that_an_option_or_acl_json_names_are_dumped(tmp_path):
    document = {"dump": {"dump_path": str(tmp_path), "dump_list": [{"model_name": "Net", "layer": ["conv1"]}]}}
    for given, field, value in (
        ({"names": ["Relu"]}, "prefixes", ("Relu",)),
        ({"dump_layer": "fc"}, "names", ("fc",)),
        ({"regex": ["^bn"]}, "patterns", ("^bn",)),
    ):
        control, notes = configured(tmp_path, document, options(**given))
        assert control.operators.models == (("Net", ("conv1",)),) and getattr(control.operators, field) == value
        wins = f"options on the command line take precedence over {tmp_path / 'config.json'}"
        assert notes == (() if field == "patterns" else (wins,))


def test_a_configuration_that_is_neither_has_the_vendors_words(tmp_path):
    path = tmp_path / "config.json"
    path.write_text("{")
    with pytest.raises(ConfigError, match=r"EP0004"):
        with_config(llm_dump(options()), options(), path)
    with pytest.raises(ConfigError, match=r"nowhere\.json"):
        with_config(llm_dump(options()), options(), tmp_path / "nowhere.json")


def acl(tmp_path, **section):
    return acl_json.control_of(acl_json.parse(json.dumps({"dump": {"dump_path": str(tmp_path), **section}})))


def test_acl_models_and_layers(tmp_path):
    entries = [{"model_name": "ResNet-101"}, {"model_name": "ResNet-50", "layer": ["conv1", "pool1"]}]
    control, notes = acl(tmp_path, dump_list=entries, dump_step="0|2")
    assert control.operators.models == (("ResNet-101", ()), ("ResNet-50", ("conv1", "pool1")))
    assert (control.enabled, control.mode, control.steps, notes) == (True, "output", Steps(((0, 0), (2, 2))), ())
    assert from_json(to_json(control)) == control


def test_acl_single_operators_statistics_overflow_and_nothing(tmp_path):
    control, _ = acl(tmp_path, dump_op_switch="on", dump_data="stats", dump_mode="input")
    assert (control.operators.models, control.content, control.mode, control.steps) == ((), "stats", "input", EVERY)
    control, _ = acl(tmp_path, dump_debug="on")
    assert (control.scene, control.mode) == ("overflow", "all")
    assert not acl(tmp_path)[0].enabled


def test_acl_watcher(tmp_path):
    entries = [{"layer": ["A", "B"], "watcher_nodes": ["C"]}, {"layer": ["B"], "watcher_nodes": ["C", "D"]}]
    control, notes = acl(tmp_path, dump_scene="watcher", dump_list=entries)
    assert not notes
    assert (control.scene, control.operators.names, control.operators.watched, control.mode) == (
        "watcher",
        ("A", "B"),
        ("C", "D"),
        "output",
    )


def test_acl_settings_that_mean_nothing_off_the_card_are_named(tmp_path):
    control, notes = acl(tmp_path, dump_scene="lite_exception")
    assert not control.enabled and "torch_npu enables this dump itself" in notes[0]
    (note,) = acl(tmp_path, dump_op_switch="on", dump_kernel_data="printf")[1]
    assert note.startswith("dump_kernel_data has no effect")
    assert "kernel" in acl(tmp_path, dump_level="kernel", dump_op_switch="on")[1][0]


def msit(tmp_path, text, control=None):
    path = tmp_path / "c.json"
    path.write_text(text if isinstance(text, str) else json.dumps(text))
    return read_msit_config(path, control or DumpControl())


def test_msits_file_as_its_documentation_has_it(tmp_path):
    text = '{"dump_enable": "true", "er": "0,0", "ids": "0,1,2", "child": "true", "device": ""}'
    control = msit(tmp_path, text, DumpControl(content="stats"))
    assert (control.enabled, control.steps, control.operators.ids) == (True, Steps(((0, 0),)), ("0", "1", "2"))
    assert (control.operators.children, control.devices, control.content) == (True, (), "stats")


def test_msits_defaults_are_off_the_first_round_every_operator_with_children(tmp_path):
    for document in ({}, {"dump_enable": "", "er": "", "ids": "", "child": "", "device": ""}):
        control = msit(tmp_path, document, dump_control(children=False, ids=("7",), devices=(3,)))
        assert (control.enabled, control.steps, control.operators.ids) == (False, Steps(((0, 0),)), ())
        assert (control.operators.children, control.devices) == (True, ())
    assert msit(tmp_path, {"er": "all"}).steps == EVERY
    assert not msit(tmp_path, {"dump_enable": "True"}).enabled  # only "true"
    assert msit(tmp_path, {"device": "0,1", "child": "false"}).devices == (0, 1)


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ({"dump_enable": True}, "dump_enable is 'True'; write all values as text"),
        ({"er": "1"}, "is not a list of pairs"),
        ({"ids": "a"}, "'a' is not an operation id"),
        ({"child": "yes"}, "child is 'yes'; use true or false"),
        ({"device": "npu"}, "device 'npu' is not a number"),
        ({"dump_enabled": "true"}, "unknown key 'dump_enabled'"),
        ("[]", "must be a JSON object"),
    ],
)
def test_what_msits_file_may_not_be(document, message, tmp_path):
    with pytest.raises(ConfigError, match="c.json: .*" + message.replace("(", r"\(")):
        msit(tmp_path, document)


def test_a_file_that_changes_is_read_again_and_a_bad_one_is_not_taken(tmp_path):
    path, told = tmp_path / "c.json", []
    path.write_text('{"dump_enable": "false"}')
    live = LiveConfig(path, lambda: read_msit_config(path, DumpControl()), told.append)
    assert live() is None
    path.write_text('{"dump_enable": "true", "er": "all"}')
    assert live().enabled and live() is None
    path.write_text('{"dump_enable": true, "er": "all, and more"}')
    assert live() is None and live() is None
    assert len(told) == 1 and "changed configuration ignored" in told[0]
    path.unlink()
    assert live() is None and len(told) == 2
