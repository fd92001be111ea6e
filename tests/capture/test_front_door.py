"""Each vendor's options, by name: what they mean, their defaults, and what cannot be asked for together."""

import json

import pytest

from sgsdump.capture.front_door import Asked, debug_dump, idle_options, llm_dump, types_of, with_config
from sgsdump.capture.steps import EVERY, Steps
from sgsdump.errors import ConfigError


def test_the_defaults_of_msit_llm_dump():
    control = llm_dump(Asked())
    assert types_of(Asked()) == ("tensor", "model", "layer")
    assert (control.steps, control.content, control.mode) == (Steps(((0, 0),)), "tensor", "all")
    assert (control.when, control.children, control.links) == ("inputs-before-outputs-after", True, "none")
    assert (control.ids, control.names, control.prefixes, control.devices) == ((), (), (), ())
    assert (control.seed, control.min_free, control.max_bytes, control.timing) == (None, 2 << 30, 0, False)


def test_the_defaults_of_msit_debug_dump():
    control = debug_dump(Asked())
    assert (control.steps, control.content, control.mode) == (EVERY, "tensor", "all")
    assert (control.names, control.prefixes, control.patterns) == ((), (), ())


def test_operator_names_are_beginnings_of_types_in_one_and_exact_names_in_the_other():
    asked = Asked(names=["MatMulv2_1, trans_Cast_0"])
    assert (llm_dump(asked).prefixes, llm_dump(asked).names) == (("MatMulv2_1", "trans_Cast_0"), ())
    assert (debug_dump(asked).prefixes, debug_dump(asked).names) == ((), ("MatMulv2_1", "trans_Cast_0"))
    assert debug_dump(Asked(names=["all"])).names == ()


@pytest.mark.parametrize(
    ("asked", "field", "value"),
    [
        (Asked(types=["model", "tensor", "stats"]), "content", "stats"),
        (Asked(types=["model"]), "content", "structure"),
        (Asked(types=["tensor", "cpu_profiling"]), "timing", True),
        (Asked(description=True), "content", "description"),
        (Asked(ids=["2,", "3_1"]), "ids", ("2", "3_1")),
        (Asked(ranges="3,5,7,7"), "steps", Steps(((3, 5), (7, 7)))),
        (Asked(child="False"), "children", False),
        (Asked(time="0"), "when", "before"),
        (Asked(time="1"), "when", "after"),
        (Asked(time="2"), "when", "both"),
        (Asked(time="3"), "when", "inputs-before-outputs-after"),
        (Asked(names=["self"]), "prefixes", ("self",)),
        (Asked(part="0"), "mode", "input"),
        (Asked(part="1"), "mode", "output"),
        (Asked(part="2"), "mode", "all"),
        (Asked(device="1"), "devices", (1,)),
        (Asked(symlink=True), "links", "symlink"),
        (Asked(links="index"), "links", "index"),
        (Asked(seed=2024), "seed", 2024),
        (Asked(dump_mode="input"), "mode", "input"),
        (Asked(dump_step="0|3-5"), "steps", Steps(((0, 0), (3, 5)))),
        (Asked(dump_layer=" Add  Mul_1 "), "names", ("Add", "Mul_1")),
        (Asked(dump_data="stats"), "content", "stats"),
        (Asked(regex=["conv.*"]), "patterns", ("conv.*",)),
        (Asked(ranks="0,3"), "ranks", (0, 3)),
        (Asked(max_size=1000), "max_bytes", 1000),
    ],
)
def test_every_option(asked, field, value):
    assert getattr(llm_dump(asked), field) == value


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        (Asked(types=["tensors"]), "--type 'tensors' is none of model, layer"),
        (Asked(types=["model", "stats"]), "give both, --type model tensor stats"),
        (Asked(ranges="1"), "not pairs of step numbers"),
        (Asked(ranges="5,3"), "goes backwards"),
        (Asked(ranges=",".join(["1,1"] * 126)), "has 503 characters; at most 500 are read"),
        (Asked(ids=["3-1"]), "operation id '3-1' is no id; write them as 2,3_1"),
        (Asked(child="maybe"), "-child is 'maybe'; it must be true or false"),
        (Asked(time="4"), "-time is '4'; it must be a number from 0 to 3"),
        (Asked(part="-1"), "-stp is '-1'; it must be a number from 0 to 2"),
        (Asked(device="npu0"), "-device 'npu0' is no number"),
        (Asked(names=["A,,B"]), "leave one out"),
        (Asked(regex=["("]), "--operation-regex '(' is no regular expression"),
        (Asked(dump_step="0|x"), "'x' is no step"),
        (Asked(dump_step="9" * 5000 + "-1"), "goes backwards"),
        (Asked(dump_mode="input", part="1"), "--dump-mode and -stp both choose inputs or outputs; give one"),
        (Asked(dump_step="1", ranges="1,1"), "--dump-step and -er both choose steps; give one"),
        (Asked(symlink=True, links="index"), "-symlink and --links index contradict; leave one out"),
        (Asked(description=True, types=["tensor", "stats"]), "-sd and --type stats both say"),
        (Asked(description=True, dump_data="stats"), "-sd and --dump-data both say"),
        (Asked(dump_data="tensor", types=["tensor", "stats"]), "--dump-data tensor and --type stats both say"),
        (Asked(description=True, types=["model"]), "-sd is of tensors, and --type has none"),
        (Asked(dump_data="stats", types=["model"]), "--dump-data is of tensors, and --type has none"),
        (Asked(time="0", part="1"), "leaves nothing: there are none before their operator ran"),
    ],
)
def test_what_cannot_be_asked_for(asked, message):
    with pytest.raises(ConfigError) as caught:
        llm_dump(asked)
    assert message in str(caught.value)


def test_options_that_mean_nothing_off_the_card_are_taken_with_a_note():
    tiling, kernel = idle_options(Asked(tiling=True, types=["tensor", "kernel"]))
    assert tiling.startswith("-tiling has no effect") and kernel.startswith("--type kernel has no effect")
    assert idle_options(Asked()) == ()


def configured(tmp_path, document, asked=None):
    path = tmp_path / "config.json"
    path.write_text(json.dumps(document))
    asked = asked or Asked()
    return with_config(llm_dump(asked), asked, path)


def test_msits_configuration_replaces_its_four_options_and_no_others(tmp_path):
    asked = Asked(ids=["7"], ranges="1,1", child="False", device="3", part="0")
    control, notes = configured(tmp_path, {"dump_enable": "true", "er": "2,2"}, asked)
    assert (control.ids, control.steps, control.children, control.devices) == ((), Steps(((2, 2),)), True, ())
    assert (control.mode, control.enabled) == ("input", True)
    assert notes == (f"{tmp_path / 'config.json'} takes the place of -ids, -er, -child, -device",)
    assert configured(tmp_path, {"dump_enable": "true"})[1] == ()
    control, notes = configured(tmp_path, {"dump_enable": "true", "er": "2,2"}, Asked(dump_step="0"))
    assert control.steps == Steps(((2, 2),)) and notes[0].endswith("takes the place of --dump-step")


def test_given_options_win_over_acl_json_whose_own_defaults_count(tmp_path):
    document = {"dump": {"dump_path": str(tmp_path), "dump_op_switch": "on", "dump_step": "1|2"}}
    control, notes = configured(tmp_path, document)
    assert (control.mode, control.steps, control.enabled, notes) == ("output", Steps(((1, 1), (2, 2))), True, ())
    control, notes = configured(tmp_path, document, Asked(dump_mode="all", dump_step="5", dump_layer="A"))
    assert (control.mode, control.steps, control.names) == ("all", Steps(((5, 5),)), ("A",))
    assert notes == (f"the options given here win over {tmp_path / 'config.json'}",)


def test_a_configuration_that_is_neither_has_the_vendors_words(tmp_path):
    path = tmp_path / "config.json"
    path.write_text("{")
    with pytest.raises(ConfigError, match=r"EP0004"):
        with_config(llm_dump(Asked()), Asked(), path)
    with pytest.raises(ConfigError, match=r"nowhere\.json"):
        with_config(llm_dump(Asked()), Asked(), tmp_path / "nowhere.json")
