"""acl.json's dump section: the vendor's verdicts, those that are known, and its rules one by one."""

import json

import pytest

from sgsdump.capture.programs.acl_json import Refused, parse, read
from sgsdump.capture.programs.control import Steps


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def verdict(text):
    try:
        acl = parse(text)
    except Refused as error:
        return error.code, error.item, error.value, False, None, error.reason
    return None, None, None, acl.need_dump, acl.dump_type, None


def test_the_vendors_verdicts(shared):
    lines = (shared / "ascend/dump_config_verdicts.jsonl").read_text(encoding="utf-8").splitlines()
    assert len(lines) >= 30
    for line in lines:
        case = json.loads(line)
        *found, reason = verdict(case["json"])
        assert found == [case[name] for name in ("code", "item", "value", "need_dump", "dump_type")], case["json"]
        assert case["reason"] in (None, reason), case["json"]


def dump(**section):
    return json.dumps({"dump": {"dump_path": "./", **section}})


WATCHER = {"dump_scene": "watcher", "dump_list": [{"watcher_nodes": ["C"]}]}


@pytest.mark.parametrize(
    ("text", "code", "item"),
    [
        ("{", "EP0004", None),
        ("[1]", "EP0004", None),
        ("[" * 100000, "EP0004", None),
        ('{"dump": 1}', "EP0001", "dump"),
        ('{"dump": {"dump_mode": "all"}}', "EP0001", "dump_path"),
        (dump(dump_path=""), "EP0001", "dump_path"),
        (dump(dump_path=7), "EP0001", "dump_path"),
        (dump(dump_path="x" * 513), "EP0003", "dump_path"),
        (dump(dump_path="file"), "EP0003", "dump_path"),
        (dump(dump_step=3), "EP0001", "dump_step"),
        (dump(dump_step="1|"), "EP0003", "dump_step[1]"),
        (dump(dump_step="1-2-3"), "EP0003", "dump_step[0]"),
        (dump(dump_step="|".join(map(str, range(101)))), "EP0003", "dump_step"),
        (dump(dump_list={}), "EP0001", "dump_list"),
        (dump(dump_list=["a"]), "EP0001", "dump_list[0]"),
        (dump(dump_list=[{"layer": "a"}]), "EP0001", "dump_list[0].layer"),
        (dump(dump_list=[{"layer": [1]}]), "EP0001", "dump_list[0].layer[0]"),
        (dump(dump_list=[{"model_name": ""}]), "EP0001", "dump_list[0].model_name"),
        (dump(dump_list=[{"watcher_nodes": ["C"]}]), "EP0005", None),
        (dump(dump_data="Tensor"), "EP0002", "dump_data"),
        (dump(dump_data="stats", dump_stats=["Sum"]), "EP0002", "dump_stats"),
        (dump(dump_stats=["Max"]), "EP0005", None),
        (dump(dump_kernel_data="printf,none"), "EP0002", "dump_kernel_data"),
        (dump(dump_debug="on", dump_op_switch="on"), "EP0005", None),
        (dump(dump_op_switch="on", **WATCHER), "EP0005", None),
        (dump(dump_debug="on", **WATCHER), "EP0005", None),
        (dump(dump_mode="all", **WATCHER), "EP0005", None),
        (dump(dump_scene="watcher", dump_list=[{"layer": ["A"]}]), "EP0001", "dump_list[0].watcher_nodes"),
        (dump(dump_level="op", dump_list=[{"opname_range": []}]), "EP0001", "dump_list[0].model_name"),
        (
            dump(dump_level="op", dump_list=[{"optype_blacklist": [{"name": "x"}] * 101}]),
            "EP0003",
            "dump_list[0].optype_blacklist",
        ),
    ],
)
def test_what_is_refused(text, code, item, tmp_path):
    (tmp_path / "file").touch()
    assert verdict(text)[:2] == (code, item)


@pytest.mark.parametrize(
    ("text", "needed", "kind"),
    [
        ("{}", False, None),
        ('{"dump": {}}', False, None),
        (dump(dump_list=[], dump_op_switch="off"), False, None),
        (dump(dump_path="192.168.0.3:/not/here", dump_op_switch="on"), True, "tensor"),
        (dump(dump_scene="watcher"), True, "tensor"),
        (dump(**WATCHER), True, "tensor"),
        ('{"dump": {"dump_scene": "aic_err_norm_dump"}}', True, "aic_err_norm_dump"),
        (dump(dump_list=[{"model_name": "", "layer": []}], dump_op_switch="on"), True, "tensor"),
        (dump(dump_list=[{"model_name": "m"}], dump_level="op"), True, "tensor"),
    ],
)
def test_what_is_taken(text, needed, kind):
    acl = parse(text)
    assert (acl.need_dump, acl.dump_type) == (needed, kind)


def test_the_first_error_wins_type_before_value_before_conflict():
    section = {"dump_step": 3, "dump_mode": "INPUT", "dump_debug": "on", "dump_op_switch": "on"}
    assert verdict(dump(**section))[:2] == ("EP0001", "dump_step")
    assert verdict(dump(**{**section, "dump_step": "1"}))[:2] == ("EP0002", "dump_mode")
    assert verdict(dump(**{**section, "dump_step": "1", "dump_mode": "input"}))[0] == "EP0005"


def test_everything_of_a_file_is_kept(tmp_path):
    entry = {"model_name": "m", "layer": ["a"], "opname_range": [{"begin": "a", "end": "b"}]}
    entry |= {"optype_blacklist": [{"name": "conv", "pos": ["input0"]}], "opname_blacklist": [{"name": "x"}]}
    stats = {"dump_data": "stats", "dump_stats": ["Max", "L2norm"]}
    path = tmp_path / "acl.json"
    path.write_text(dump(dump_level="op", dump_step="0|3-5", dump_list=[entry], dump_mode="all", **stats))
    acl = read(path)
    assert (acl.mode, acl.level, acl.data, acl.statistics) == ("all", "op", "stats", ("Max", "L2norm"))
    assert acl.steps == Steps(((0, 0), (3, 5)))
    (one,) = acl.entries
    assert (one.model_name, one.layer, one.op_name_ranges) == ("m", ("a",), (("a", "b"),))
    assert (one.op_type_blacklist, one.op_name_blacklist) == ((("conv", ("input0",)),), (("x", ()),))


def test_the_error_of_a_file_names_file_key_value_and_reason(tmp_path):
    path = tmp_path / "acl.json"
    path.write_text(dump(dump_mode="INPUT"))
    with pytest.raises(Refused) as caught:
        read(path)
    assert str(caught.value) == f"{path}: dump_mode is 'INPUT': it must be input, output or all (EP0002)"
    assert caught.value.code == "EP0002"
