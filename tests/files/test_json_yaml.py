"""JSON that every reader takes."""

from __future__ import annotations

import json

import numpy as np

from sgsdump.files.json_yaml import json_text


def test_json_has_texts_for_what_is_not_finite():
    document = {"a": [float("nan"), (np.float64("inf"), 1)], "b": {"c": -float("inf")}, "d": 1.5, "e": None}
    assert json.loads(json_text(document)) == {"a": ["nan", ["inf", 1]], "b": {"c": "-inf"}, "d": 1.5, "e": None}
    assert json_text([1], indent=None) == "[1]\n"
