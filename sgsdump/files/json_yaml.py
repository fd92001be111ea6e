"""JSON and YAML readers for untrusted text, and a JSON writer that every JSON reader accepts.

Untrusted text is parsed into plain dicts, lists, strings and numbers, or refused with a message of one line. Duplicate
keys are refused as ambiguous. PyYAML (the extra ``yaml``) reads YAML in its simplest form: every scalar is text (also
``yes`` and ``1.0``), tags create no objects, and anchors are refused.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

from sgsdump.errors import FormatError, MissingExtra
from sgsdump.files.escaping import quoted

YAML_BYTES = 4 << 20
# PyYAML's time grows with the square of the depth.
DEEPEST = 50


def json_of(text: str, path: Path, what: str = "") -> Any:
    """Parse a JSON text; raise FormatError on invalid JSON. ``what`` describes the expected file in messages."""
    hint = f"; {what}" if what else ""

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        document: dict[str, Any] = {}
        for name, value in pairs:
            if name in document:
                raise FormatError(f"{path}: {quoted(name)} occurs twice in one object{hint}")
            document[name] = value
        return document

    try:
        return json.loads(text.removeprefix("\ufeff"), object_pairs_hook=unique)
    except json.JSONDecodeError as error:
        raise FormatError(f"{path}:{error.lineno}: not valid JSON: {error.msg}{hint}") from None
    except (RecursionError, ValueError) as error:
        raise FormatError(f"{path}: not valid JSON: {str(error)[:100]}{hint}") from None


def json_text(document: Any, indent: int | None = 2) -> str:
    """Return the JSON of a ``strict`` document, with a line end."""
    return json.dumps(strict(document), indent=indent, allow_nan=False) + "\n"


def strict(value: Any) -> Any:
    """Return ``value`` with non-finite floats as the texts "nan", "inf" and "-inf", which float() parses.

    JSON has no such numbers. Dicts and lists are converted recursively; tuples become lists.
    """
    if isinstance(value, dict):
        return {key: strict(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [strict(item) for item in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def yaml_of(text: str, path: Path, what: str = "") -> Any:
    """Parse a YAML text with all scalars as text. Raises FormatError, or MissingExtra without PyYAML."""
    hint = f"; {what}" if what else ""
    try:
        import yaml
    except ImportError:
        raise MissingExtra(f"{path} is YAML; install its library: pip install sgsdump[yaml]") from None

    class Plain(yaml.BaseLoader):
        depth = 0

        def check_depth(self, depth: int, line: int) -> None:
            if depth > DEEPEST:
                raise FormatError(f"{path}:{line + 1}: not valid YAML: nested more than {DEEPEST} levels deep{hint}")

        def fetch_flow_collection_start(self, token: Any) -> None:
            self.check_depth(self.flow_level, self.line)
            super().fetch_flow_collection_start(token)

        def compose_node(self, parent: Any, index: Any) -> Any:
            event = self.peek_event()
            if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None):
                raise FormatError(f"{path}:{event.start_mark.line + 1}: YAML with anchors is not supported")
            self.depth += 1
            self.check_depth(self.depth, event.start_mark.line)
            node = super().compose_node(parent, index)
            self.depth -= 1
            return node

        def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
            document: dict[str, Any] = {}
            for key, value in node.value:
                line = key.start_mark.line + 1
                if not isinstance(key, yaml.ScalarNode):
                    raise FormatError(f"{path}:{line}: a key is not text{hint}")
                if key.value in document:
                    raise FormatError(f"{path}:{line}: {quoted(key.value)} occurs twice in one mapping{hint}")
                document[key.value] = self.construct_object(value, deep=True)
            return document

    if len(text) > YAML_BYTES:
        raise FormatError(f"{path} has more than {YAML_BYTES >> 20} MiB of YAML; check that this is the right file")
    try:
        return yaml.load(text.removeprefix("\ufeff"), Plain)
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise FormatError(
            f"{path}:{line}: not valid YAML: {' '.join(str(error.problem).split())[:100]}{hint}"
        ) from None
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        raise FormatError(f"{path}: not valid YAML: {' '.join(str(error).split())[:100]}{hint}") from None
