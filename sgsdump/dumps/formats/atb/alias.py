"""Aliases in an ATB dump: files that name another one, which has their values.

``data=1_2_outtensor0.bin`` means output 0 of child 2 of layer 1 in the same execution, of the alias's own layer where
several have this number. The target may be an alias too.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace

from sgsdump.dumps.formats.atb.place import Execution, Place, alias_of
from sgsdump.dumps.formats.atb.tensor import Content

_LONGEST_CHAIN = 100
Targets = Mapping[tuple[Execution, tuple[int, ...], str, int], Sequence[str]]


def targets_of(chosen: Mapping[Place, str]) -> Targets:
    """The paths that an alias of each execution may mean, by ids, io and slot."""
    targets: defaultdict[tuple[Execution, tuple[int, ...], str, int], list[str]] = defaultdict(list)
    for place, path in chosen.items():
        targets[place.execution, place.ids, place.io, place.slot].append(path)
    return targets


def followed(
    path: str, contents: Mapping[str, Content], targets: Targets, places: Mapping[str, Place]
) -> tuple[Content, str]:
    """The content of a file, where it is an alias with the values of its target, or why it has none."""
    own = content = contents[path]
    seen = [path]
    while content.alias:
        target, why = _target(content.alias, places[seen[-1]], targets, places)
        if target in seen or len(seen) > _LONGEST_CHAIN:
            target, why = "", "aliases lead in a circle"
        if not target:
            return own, why
        seen.append(target)
        content = contents[target]
    if content is own:
        return own, ""
    if content.statistics is None and own.coding.size(own.count) != content.coding.size(content.count):
        return own, f"it is an alias of {seen[-1]}, which has another size"
    return replace(own, path=content.path, offset=content.offset, alias="", statistics=content.statistics), ""


def _target(alias: str, place: Place, targets: Targets, places: Mapping[str, Place]) -> tuple[str, str]:
    """The path an alias at a place means, or "" and why there is none."""
    named = alias_of(alias)
    if named is None:
        return "", f"{alias[:60]!r} is no alias"
    candidates = targets.get((place.execution, named.ids, named.io, named.slot), ())
    same = [path for path in candidates if places[path].operators[:1] == place.operators[:1]] or list(candidates)
    if len(same) > 1:
        same = [path for path in same if places[path].label == named.label] or same
    if not same:
        return "", f"it is an alias of {alias[:60]}, which is not in the dump; was it copied whole?"
    if len(same) > 1:
        return "", f"it is an alias of {alias[:60]}, of which there are {len(same)}"
    return same[0], ""
