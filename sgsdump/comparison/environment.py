"""Differences between two runs other than tensors: environments, inputs, and identical or swapped dumps.

``environment_findings`` compares the versions, variables and settings that the dumping tool recorded
(``Dump.environment``). The seed and the generator state count only if random numbers can matter: if a run draws random
numbers, or if weights differ. ``other_inputs`` compares integer inputs of programs (tokens, indices). ``other_runs``
checks whether two dumps of a model had the same input, are the same file, or are swapped.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Hashable, Iterable, Mapping, Sequence

from sgsdump.comparison.alignment import Pair, has_own_inputs
from sgsdump.comparison.finding import Finding
from sgsdump.comparison.row import Failed, Row, differs, is_suspicious
from sgsdump.dumps.dump import Dump, Environment, Network, Record
from sgsdump.dumps.run_inputs import least_alike
from sgsdump.replay.bounds import RANDOM
from sgsdump.tensors.dtypes import KNOWN, is_integer

VERSION, RANDOM_NUMBERS, STATE = "versions", "random", "state"
DRAWN, INPUTS = ("drawn", "random operators"), "inputs"
SAME_FILE, SWAPPED = "same file", "swapped"
OF_OTHER_RUNS = (SAME_FILE, SWAPPED, INPUTS)  # the dumps are not a sample and its benchmark on the same input


def environment_findings(
    environments: tuple[Environment, Environment], networks: tuple[Network, Network], weights_differ: bool
) -> tuple[Finding, ...]:
    """Return the differences: versions, variables, settings, random numbers; none if a side recorded nothing."""
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


def within_module(dumps: tuple[Dump, Dump], networks: tuple[Network, Network]) -> tuple[Dump, Dump]:
    """Return both dumps, limited to one module if either dump contains only that module."""
    module = next((found for dump in dumps if (found := dump.environment().get(("selection", "module")))), "")
    if not module or not all(networks):
        return dumps

    def cut(dump: Dump, network: Network) -> Dump:
        inside = {index for index, operator in network.items() if f"{operator.module}.".startswith(f"{module}.")}
        return dump.with_records([record for record in dump.records if record.op_index in inside], dump.variant)

    return cut(dumps[0], networks[0]), cut(dumps[1], networks[1])


def other_inputs(rows: Sequence[Row], pairs: Iterable[Pair], networks: tuple[Network, Network]) -> tuple[Finding, ...]:
    """Return one finding with all integer inputs (tokens, indices) that differ, or ().

    They are no operator's output and no weight: the runs had different inputs, so later differences are not errors.
    """
    made = [
        {value for operator in network.values() for (io, _), value in operator.values.items() if io == "out"}
        for network in networks
    ]
    differing = {(row.op_index, row.slot) for row in rows if row.io == "in" and _is_whole(row) and differs(row)}
    names = [
        pair.benchmark.name
        for pair in pairs
        if pair.benchmark.io == "in"
        and (pair.benchmark.op_index, pair.benchmark.slot) in differing
        and all(
            _is_from_outside(record, network, of_run)
            for record, network, of_run in zip((pair.sample, pair.benchmark), networks, made)
        )
    ]
    if not names:
        return ()
    return (Finding("environment", names[0], names=tuple(names), facts={"what": INPUTS, "argument": names[0]}),)


def other_runs(dumps: tuple[Dump, Dump], rows: Iterable[Row | Failed]) -> tuple[Finding, ...]:
    """Return findings if both dumps are the same file, look swapped, or had different inputs.

    Inputs are compared only if a layer differs by more than rounding.
    """
    sample, benchmark = dumps
    if sample.path is not None and sample.path == benchmark.path:
        return (Finding("environment", facts={"what": SAME_FILE, "argument": str(sample.path)}),)
    swapped = is_quantised_run(benchmark) and not is_quantised_run(sample)
    found = (Finding("environment", facts={"what": SWAPPED, "argument": ""}),) if swapped else ()
    if any(map(has_own_inputs, dumps)) or not any(map(is_suspicious, rows)):
        return found
    if (least := least_alike(*dumps)) is None:
        return found
    name, likeness = least
    facts = {"what": INPUTS, "argument": name}
    return (*found, Finding("environment", name, figures={"likeness": likeness}, names=(name,), facts=facts))


def is_quantised_run(dump: Dump) -> bool:
    """Return whether the dump is of a fixed model, that is, at least half of its outputs have a scale."""
    outputs = dump.outputs.values()
    return 2 * sum(tensor.info.quant is not None for tensor in outputs) > len(outputs)


def _is_whole(row: Row) -> bool:
    dtypes = (KNOWN.get(name) for name in (row.sample_dtype, row.benchmark_dtype))
    return all(dtype is not None and is_integer(dtype) for dtype in dtypes)


def _is_from_outside(record: Record, network: Network, made: Container[Hashable]) -> bool:
    operator = network.get(record.op_index)
    if operator is None or (record.io, record.slot) in operator.weights:
        return False
    value = operator.values.get((record.io, record.slot))
    return value is not None and value not in made


def _counts(
    key: tuple[str, str], environments: tuple[Environment, Environment], may_be_random: bool, are_drawn: bool
) -> bool:
    """Return whether a difference matters. A library that only one program imports does not."""
    group, name = key
    sample, benchmark = (environment.get(key) for environment in environments)
    if sample == benchmark or (group == VERSION and None in (sample, benchmark)):
        return False
    return group != RANDOM_NUMBERS or (are_drawn if name == STATE else may_be_random)


def _drawn(network: Network) -> Mapping[str, int]:
    """Return the number of random operators of a run, by kind."""
    kinds = (operator.kind.partition(".")[2] for operator in network.values() if not operator.is_module)
    return Counter(kind for kind in kinds if kind.strip("_") in RANDOM or kind in RANDOM)


def _text(drawn: Mapping[str, int]) -> str:
    return ", ".join(f"{kind} {count}" for kind, count in sorted(drawn.items())) or "none"


def _finding(key: tuple[str, str], sample: str | None, benchmark: str | None) -> Finding:
    values = {"sample": sample, "benchmark": benchmark}
    known = {side: value for side, value in values.items() if value is not None}
    return Finding("environment", facts={"what": key[0], "argument": key[1], **known})
