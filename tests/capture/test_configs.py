"""What a configuration file means as a DumpControl: acl.json, msit's own, and one that changes."""

import json

import pytest

from sgsdump.capture.configs import acl_json, acl_use, msit_json
from sgsdump.capture.configs.live import LiveConfig
from sgsdump.capture.control import DumpControl, from_json, to_json
from sgsdump.capture.steps import EVERY, Steps
from sgsdump.errors import ConfigError


def acl(tmp_path, **section):
    return acl_use.control_of(acl_json.parse(json.dumps({"dump": {"dump_path": str(tmp_path), **section}})))


def test_acl_models_and_layers(tmp_path):
    entries = [{"model_name": "ResNet-101"}, {"model_name": "ResNet-50", "layer": ["conv1", "pool1"]}]
    control, notes = acl(tmp_path, dump_list=entries, dump_step="0|2")
    assert control.models == (("ResNet-101", ()), ("ResNet-50", ("conv1", "pool1")))
    assert (control.enabled, control.mode, control.steps, notes) == (True, "output", Steps(((0, 0), (2, 2))), ())
    assert from_json(to_json(control)) == control


def test_acl_single_operators_statistics_overflow_and_nothing(tmp_path):
    control, _ = acl(tmp_path, dump_op_switch="on", dump_data="stats", dump_mode="input")
    assert (control.models, control.content, control.mode, control.steps) == ((), "stats", "input", EVERY)
    control, _ = acl(tmp_path, dump_debug="on")
    assert (control.scene, control.mode) == ("overflow", "all")
    assert not acl(tmp_path)[0].enabled


def test_acl_watcher(tmp_path):
    entries = [{"layer": ["A", "B"], "watcher_nodes": ["C"]}, {"layer": ["B"], "watcher_nodes": ["C", "D"]}]
    control, _ = acl(tmp_path, dump_scene="watcher", dump_list=entries)
    assert (control.scene, control.names, control.watched, control.mode) == (
        "watcher",
        ("A", "B"),
        ("C", "D"),
        "output",
    )


def test_acl_settings_that_mean_nothing_off_the_card_are_named(tmp_path):
    control, notes = acl(tmp_path, dump_scene="lite_exception")
    assert not control.enabled and "torch_npu has that dump on already" in notes[0]
    (note,) = acl(tmp_path, dump_op_switch="on", dump_kernel_data="printf")[1]
    assert note.startswith("dump_kernel_data has no effect")
    assert "kernel" in acl(tmp_path, dump_level="kernel", dump_op_switch="on")[1][0]


def msit(tmp_path, text, control=None):
    path = tmp_path / "c.json"
    path.write_text(text if isinstance(text, str) else json.dumps(text))
    return msit_json.read(path, control or DumpControl())


def test_msits_file_as_its_documentation_has_it(tmp_path):
    text = '{"dump_enable": "true", "er": "0,0", "ids": "0,1,2", "child": "true", "device": ""}'
    control = msit(tmp_path, text, DumpControl(content="stats"))
    assert (control.enabled, control.steps, control.ids) == (True, Steps(((0, 0),)), ("0", "1", "2"))
    assert (control.children, control.devices, control.content) == (True, (), "stats")


def test_msits_defaults_are_off_the_first_round_every_operator_with_children(tmp_path):
    for document in ({}, {"dump_enable": "", "er": "", "ids": "", "child": "", "device": ""}):
        control = msit(tmp_path, document, DumpControl(children=False, ids=("7",), devices=(3,)))
        assert (control.enabled, control.steps, control.ids) == (False, Steps(((0, 0),)), ())
        assert (control.children, control.devices) == (True, ())
    assert msit(tmp_path, {"er": "all"}).steps == EVERY
    assert not msit(tmp_path, {"dump_enable": "True"}).enabled  # only "true"
    assert msit(tmp_path, {"device": "0,1", "child": "false"}).devices == (0, 1)


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ({"dump_enable": True}, "dump_enable is 'True'; all values are text"),
        ({"er": "1"}, "not pairs of step numbers"),
        ({"ids": "a"}, "operation id 'a' is no id"),
        ({"child": "yes"}, "child is 'yes'; it must be true or false"),
        ({"device": "npu"}, "device 'npu' is no number"),
        ({"dump_enabled": "true"}, "'dump_enabled' is none of its keys"),
        ("[]", "is an object"),
    ],
)
def test_what_msits_file_may_not_be(document, message, tmp_path):
    with pytest.raises(ConfigError, match="c.json: .*" + message.replace("(", r"\(")):
        msit(tmp_path, document)


def test_a_file_that_changes_is_read_again_and_a_bad_one_is_not_taken(tmp_path):
    path, told = tmp_path / "c.json", []
    path.write_text('{"dump_enable": "false"}')
    live = LiveConfig(path, lambda: msit_json.read(path, DumpControl()), told.append)
    assert live() is None
    path.write_text('{"dump_enable": "true", "er": "all"}')
    assert live().enabled and live() is None
    path.write_text('{"dump_enable": true, "er": "all, and more"}')
    assert live() is None and live() is None
    assert len(told) == 1 and "the changed configuration is not taken" in told[0]
    path.unlink()
    assert live() is None and len(told) == 2
