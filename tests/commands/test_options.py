"""One spelling for one thing: hyphens, ``-m`` the model, ``-n`` the preprocess file; the vendors' work beside them."""

import argparse

import pytest

from sgsdump.commands.parser import VENDORS_NAMES, Parser, build_parser


def parsers():
    """Every parser that takes options, by the words that lead to it."""

    def walk(words, parser):
        yield words, parser
        for action in parser._actions:
            if isinstance(action, argparse._SubParsersAction):
                for name, inner in action.choices.items():
                    yield from walk(f"{words} {name}", inner)

    return dict(walk("sgsdump", build_parser()))


PARSERS = parsers()
LONG = [
    (words, option) for words, parser in PARSERS.items() for option in parser._option_string_actions if "--" in option
]


@pytest.mark.parametrize(("words", "option"), LONG)
def test_hyphens_are_ours_and_underscores_the_sdks(words, option):
    assert "_" not in option
    assert list(PARSERS[words]._our_spelling([option.replace("-", "_").replace("__", "--", 1), "a_b"])) == [
        option,
        "a_b",
    ]


@pytest.mark.parametrize("words", PARSERS)
def test_a_model_is_m_and_n_is_the_preprocess_file(words):
    options = PARSERS[words]._option_string_actions
    if "--model" in options:
        assert options["-m"] is options["--model"]
    if "-m" in options:
        assert options["-m"].dest == "model"
    if "-n" in options:
        assert options["-n"].dest == "preprocess"


@pytest.mark.parametrize(
    ("given", "taken"),
    [
        (["--model_file", "m.onnx", "-i", "x.npy"], ["--model", "m.onnx", "-i", "x.npy"]),
        (["--model_file=my_model.onnx"], ["--model=my_model.onnx"]),
        (["--input_conf", "i.ini"], ["--input-conf", "i.ini"]),
        (["-d", "m.onnx"], ["--model", "m.onnx"]),
        (["--no_such_option"], ["--no_such_option"]),
        (["--", "--model_file"], ["--", "--model_file"]),
        (["-o", "--_--"], ["-o", "--_--"]),
    ],
)
def test_the_vendors_spellings(given, taken):
    assert list(PARSERS["sgsdump dump"]._our_spelling(given)) == taken


def test_an_option_that_the_parser_knows_as_it_is_spelt_stays():
    parser = Parser(prog="p")
    for option in ("--in_file", "--in-file", "-d", "--model"):
        parser.add_argument(option, dest=option)
    assert list(parser._our_spelling(["--in_file=a", "-d", "b"])) == ["--in_file=a", "-d", "b"]


def test_the_vendors_names_stand_for_ours():
    known = {option for parser in PARSERS.values() for option in parser._option_string_actions}
    assert {*VENDORS_NAMES.values()} <= known
    assert VENDORS_NAMES["--model-file"] == VENDORS_NAMES["-d"] == "--model"
