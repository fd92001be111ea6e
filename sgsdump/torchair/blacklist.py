"""Inputs and outputs that a configuration leaves out of the dump: optype_blacklist and opname_blacklist.

An item names operators by type, or one by name, and places, ``input0`` or ``output1``; without a name or a place it
leaves out nothing. One of an entry with ``model_name`` is for that graph alone, the others are for all. Both lists
count together. Source: the vendor's table of acl.json.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence

from sgsdump.capture.configs.acl_json import Entry
from sgsdump.torchair.choice import Names
from sgsdump.torchair.operators import Operator

_PLACE = re.compile(r"(input|output)([0-9]{1,9})")
Places = frozenset[tuple[str, int]]


def left_out(
    operators: Sequence[Operator], entries: Iterable[Entry], graphs: Collection[str], names: Names
) -> dict[str, Places]:
    """By node what is left out of it: ``("input", 0)``. ``graphs`` are the names by which an entry may mean this graph;
    ``names`` are told what is looked for."""
    places: dict[str, Places] = {}
    for entry in entries:
        if entry.model_name and entry.model_name not in graphs:
            continue
        for name, texts in entry.op_type_blacklist:
            for node in names.find_type(operators, [name] if name else [], "optype_blacklist"):
                places[node] = places.get(node, Places()) | _places(texts)
        for name, texts in entry.op_name_blacklist:
            for node in names.find(operators, [name] if name else [], "opname_blacklist"):
                places[node] = places.get(node, Places()) | _places(texts)
    return places


def idle_items(entries: Iterable[Entry]) -> Iterator[str]:
    """A sentence for each item that leaves out nothing, and for each place that there is not."""
    for entry in entries:
        lists = {"optype_blacklist": entry.op_type_blacklist, "opname_blacklist": entry.op_name_blacklist}
        for option, items in lists.items():
            for name, texts in items:
                if not (name and texts):
                    yield f"{option}: an item without {'pos' if name else 'name'} leaves out nothing"
                for text in texts:
                    if not _PLACE.fullmatch(text):
                        yield f"{option}: {text[:40]!r} is no place of {name[:80]!r}; write input0 or output0"


def _places(texts: Iterable[str]) -> Places:
    matches = filter(None, map(_PLACE.fullmatch, texts))
    return frozenset((match[1], int(match[2])) for match in matches)
