"""Pairing by rules that make benchmark names of sample names."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

from sgsdump.comparison.naming.name_rules import LONGEST_NAME, Rule, described, renamed
from sgsdump.comparison.naming.unsettled import Unsettled
from sgsdump.comparison.pairing.alignment import Pair
from sgsdump.dumps.dump import Record
from sgsdump.errors import ConfigError


def pairs_by_rules(state: Unsettled, rules: Sequence[Rule]) -> None:
    """Pair the sample's names, rewritten, with the benchmark's."""
    of_benchmark: defaultdict[tuple[str, str], list[Record]] = defaultdict(list)
    for record in state.benchmark:
        of_benchmark[record.io, record.name].append(record)
    pairs: list[Pair] = []
    changed = 0
    for (io, name), records in _by_io_and_name(state.sample).items():
        made, used = renamed(name, rules)
        changed += bool(used)
        others = of_benchmark.get((io, made), []) if used else []
        pairs += [Pair(a, b, described(used)) for a, b in zip(records, others)]
        if used and not others:
            state.reasons |= {
                id(r): f"{described(used)} makes it {made[:200]!r}, which is not in the benchmark" for r in records
            }
        elif len(name) > LONGEST_NAME:
            state.reasons |= {
                id(r): f"its name has more than {LONGEST_NAME} characters, no rule is tried" for r in records
            }
    if not changed and not state.pairs:
        raise ConfigError(f"{described(rules)} fits no name of the sample; rules make benchmark names of sample names")
    # A name that a rule makes, and that the sample has itself, is given to two.
    kept = {(record.io, record.name): record for record in state.sample if not renamed(record.name, rules)[1]}
    claims = [
        Pair(kept[key], p.benchmark, "name") for p in pairs if (key := (p.benchmark.io, p.benchmark.name)) in kept
    ]
    state.take([*pairs, *claims])


def _by_io_and_name(records: Iterable[Record]) -> dict[tuple[str, str], list[Record]]:
    groups: defaultdict[tuple[str, str], list[Record]] = defaultdict(list)
    for record in records:
        groups[record.io, record.name].append(record)
    return dict(groups)
