"""In what the environments of two runs of programs differ (``environment_findings``). Apart: no values are compared.

Versions, variables and settings are what the dumping tool recorded of each run (``Dump.environment``). The seed, and
the state of the generator, count only where random numbers may matter: where the run draws some, or weights differ.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from sgsdump.comparison.finding import Finding
from sgsdump.dumps.dump import Environment, Network
from sgsdump.replay.bounds import RANDOM

VERSION, RANDOM_NUMBERS, STATE = "versions", "random", "state"
DRAWN = ("drawn", "random operators")


def environment_findings(
    environments: tuple[Environment, Environment], networks: tuple[Network, Network], weights_differ: bool
) -> tuple[Finding, ...]:
    """What differs, in the order versions, variables, settings, random numbers; nothing where a side has no record."""
    if not all(environments):
        return ()
    drawn = [_drawn(network) for network in networks]
    found = [
        _finding(key, *(environment.get(key) for environment in environments))
        for key in dict.fromkeys([*environments[1], *environments[0]])
        if _counts(key, environments, weights_differ or any(drawn), any(drawn))
    ]
    if drawn[0] != drawn[1]:
        found.append(_finding(DRAWN, *map(_text, drawn)))
    return tuple(found)


def _counts(
    key: tuple[str, str], environments: tuple[Environment, Environment], may_be_random: bool, are_drawn: bool
) -> bool:
    """Whether a difference is one that matters; a library that one program alone imports is none."""
    group, name = key
    sample, benchmark = (environment.get(key) for environment in environments)
    if sample == benchmark or (group == VERSION and None in (sample, benchmark)):
        return False
    return group != RANDOM_NUMBERS or (are_drawn if name == STATE else may_be_random)


def _drawn(network: Network) -> Mapping[str, int]:
    """The random operators of a run, by their kind."""
    kinds = (operator.kind.partition(".")[2] for operator in network.values() if not operator.is_module)
    return Counter(kind for kind in kinds if kind.strip("_") in RANDOM or kind in RANDOM)


def _text(drawn: Mapping[str, int]) -> str:
    return ", ".join(f"{kind} {count}" for kind, count in sorted(drawn.items())) or "none"


def _finding(key: tuple[str, str], sample: str | None, benchmark: str | None) -> Finding:
    values = {"sample": sample, "benchmark": benchmark}
    known = {side: value for side, value in values.items() if value is not None}
    return Finding("environment", facts={"what": key[0], "argument": key[1], **known})
