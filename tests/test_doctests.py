"""The examples in the docstrings of the public API are run, in a folder of their own."""

import doctest
import importlib

import pytest

PUBLIC = (
    "sgsdump",
    "sgsdump.dumps.dump",
    "sgsdump.dumps.io",
    "sgsdump.tensors.tensor",
    "sgsdump.comparison.compare",
)


@pytest.mark.parametrize("name", PUBLIC)
def test_examples(name, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    results = doctest.testmod(importlib.import_module(name), optionflags=doctest.NORMALIZE_WHITESPACE)
    assert results.failed == 0, capsys.readouterr().out
