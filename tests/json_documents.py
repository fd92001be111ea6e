"""What a command wrote as JSON, checked against the schema of its format."""

from __future__ import annotations

import json
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

SCHEMAS = files("sgsdump.reports.schemas")


def schema(name: str) -> Any:
    """Of ``sgsdump NAME``."""
    return json.loads((SCHEMAS / f"{name.replace(' ', '_')}.json").read_text(encoding="utf-8"))


def closed(node: Any) -> Any:
    """The schema in which no field may stand that it does not name."""
    if isinstance(node, list):
        return [closed(each) for each in node]
    if not isinstance(node, dict):
        return node
    node = {key: closed(value) for key, value in node.items()}
    return node | {"additionalProperties": False} if isinstance(node.get("properties"), dict) else node


def checked(text: str | Path) -> Any:
    """The document of a text, or of a file: strict JSON, which its own schema takes and which has no field beside."""
    jsonschema = pytest.importorskip("jsonschema", reason="jsonschema (the extra test) is not installed")

    def refuse(word: str) -> None:
        raise AssertionError(f"{word} is not JSON")

    text = text.read_text(encoding="utf-8") if isinstance(text, Path) else text
    document = json.loads(text, parse_constant=refuse)
    own = schema(document["format"].removeprefix("sgsdump "))
    for each in (own, closed(own)):
        jsonschema.Draft202012Validator(each).validate(document)
    return document
