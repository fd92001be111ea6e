"""Pair a dump of the SDK's tools with one of a Caffe network: a blob is paired with its last stage.

The SDK creates a separate tensor for every value of a blob that in-place layers overwrite
(``sgsdump/tensors/stages.py``). pycaffe, and dumps of a prototxt, show only the last value under the blob's name. For
example, ``conv1`` of such a dump is ``conv1_xx_xx_xx`` of the SDK's dump, not its ``conv1``. The rule applies if one
dump has the stages and the other lacks these names; if both have them, names pair. A model's table of stages, if given,
states the same facts without guessing.

A name may be a stage of two blobs (blobs ``c`` and ``c_xx``). In this case an operator that cannot work in place begins
the next blob. Overwritten values, which ``dump --every-layer`` adds under their layers' names, are counted: the k-th
value of a blob is its stage k.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import takewhile

from sgsdump.comparison.alignment import Pair, compared, ids_of, size_of
from sgsdump.comparison.naming.sides import Settled, Sides
from sgsdump.dumps.dump import Dump, Record
from sgsdump.tensors.stages import (
    Stage,
    StageNames,
    is_converters_own,
    is_product,
    last_of_table,
    of_layers,
    root_of,
    without_copy,
)

STAGE, COPY, ORDER, TABLE = "stage", "copy", "the order of the layers in place", "the model's stages"
OWN = "added by the converter; the model itself has no such tensor"
_STEP = re.compile(r"[a-z]+\d*")  # fc/flatten: a step within a layer, as sgsdump's own conversion names it
NO_STAGE = "has no stage for it (a BatchNorm and its Scale form one stage)"
_CONCAT = "CONCATENATION"
_CHANNELS = {"NHWC": -1, "NCHW": 1}
_RESHAPES = frozenset(("RESHAPE", "Reshape_Alias"))
_WEIGHTS = "_filter"
_OPERATORS = frozenset(
    "ADD AVERAGE_POOL_2D CONCATENATION CONV_2D DEPTHWISE_CONV_2D FULLY_CONNECTED LEAKY_RELU LOGISTIC MAX_POOL_2D MUL "
    "PRELU RELU RELU6 RESHAPE SOFTMAX TRANSPOSE_CONV Reshape_Alias Concatenation_Alias".split()
)
_IN_PLACE = frozenset(
    "ADD MUL RELU RELU6 LEAKY_RELU PRELU LOGISTIC TANH ELU EXP LOG ABS POW SQRT SUB RESHAPE Reshape_Alias".split()
)


def propose(sides: Sides, settled: Settled) -> Settled:
    """Pair stages with blobs if one dump has stages and the other blobs."""
    ids, table = settled.ids, sides.stages
    one = _Side("sample", sides.sample, sides.inputs, ids)
    other = _Side("benchmark", sides.benchmark, sides.inputs, ids)
    if one.all == other.all:
        return settled
    by_table = bool(table) and (_has_stages(one, other, table) or _has_stages(other, one, table))
    for staged, blobs in ((one, other), (other, one)):
        found = _Stages(staged, blobs)
        if by_table and _has_stages(staged, blobs, table):
            found.by_table(table)
        elif not by_table and _is_pair_of(staged, blobs):
            found.by_names()
        elif staged.is_sdks and blobs.is_sdks:
            found.copies()
            if not found.pairs:
                continue
        else:
            continue
        if not (found.pairs or staged.is_sdks):
            continue
        if not blobs.is_sdks:
            found.explain()
        if staged is one:
            pairs = found.pairs
        else:
            pairs = [replace(pair, sample=pair.benchmark, benchmark=pair.sample) for pair in found.pairs]
        return replace(
            settled,
            pairs=(*settled.pairs, *pairs),
            unmatched={**settled.unmatched, **found.unmatched},
            reasons={**settled.reasons, **found.reasons},
            expected=settled.expected | found.expected,
        )
    return settled


def _is_pair_of(staged: _Side, blobs: _Side) -> bool:
    """Return whether one dump is from the SDK's tools and the other is not.

    If a format has no operators, every name must be a blob's, a stage of a blob, or the converter's own.
    """
    if blobs.is_sdks:
        return False
    if staged.words:
        return staged.is_sdks
    roots = {root_of(name) for name in blobs.records}
    return all(root_of(name) in roots or is_product(name) or is_converters_own(name) for name in staged.records)


def _has_stages(staged: _Side, blobs: _Side, table: Sequence[Stage]) -> bool:
    """Return whether one dump has stages of the table and the other has only names that blobs have too."""
    of_blobs = {stage.blob for stage in table} | of_layers(table).keys()
    names = {stage.name for stage in table} - of_blobs
    return bool(names & staged.with_copies.keys()) and not names & blobs.records.keys()


class _Side:
    """One dump: its unpaired output tensors by name, if the name is unique, and facts about its operators."""

    def __init__(self, side: str, dump: Dump, inputs: bool, settled: Set[int]):
        self.side = side
        self.dump = dump
        self.all = {record.name for record in dump.records}
        self.free = [r for r in compared(dump, inputs) if r.io == "out" and id(r) not in settled]
        counts = Counter(record.name for record in self.free)
        self.records = {r.name: r for r in self.free if counts[r.name] == 1 and r.slot == 0}

    @cached_property
    def words(self) -> set[str]:
        """Names of its operators; a reference's dump repeats the tensor's name there."""
        return {r.op_type for r in self.dump.records if r.io == "out" and r.op_type not in ("", r.name)}

    @cached_property
    def is_sdks(self) -> bool:
        return bool(self.words & _OPERATORS)

    @cached_property
    def with_copies(self) -> dict[str, Record]:
        """Records by name; a copy also counts under its original's name if the original is missing."""
        records = dict(self.records)
        for name, record in self.records.items():
            if "#" in name and (of := without_copy(name)) not in self.all:
                records.setdefault(of, record)
        return records

    @cached_property
    def stages(self) -> StageNames:
        return StageNames(self.with_copies)

    @cached_property
    def operators(self) -> Mapping[int, list[Record]]:
        operators: defaultdict[int, list[Record]] = defaultdict(list)
        for record in self.dump.records:
            operators[record.op_index].append(record)
        return operators

    @cached_property
    def products(self) -> set[str]:
        """Products that only a sum with a constant reads: the first halves of a BatchNorm, Scale or Power."""
        readers: defaultdict[str, list[int]] = defaultdict(list)
        for record in self.dump.records:
            if record.io == "in" and not record.constant:
                readers[record.name].append(record.op_index)
        return {name for name, record in self.records.items() if record.op_type == "MUL" and self._sums(readers[name])}

    def _sums(self, readers: list[int]) -> bool:
        if len(readers) != 1:
            return False
        records = self.operators[readers[0]]
        return any(r.constant for r in records) and any(r.io == "out" and r.op_type == "ADD" for r in records)

    def works_in_place(self, name: str) -> bool:
        """Return whether the operator of a tensor may overwrite its input.

        It must have one variable input, and each word of a fused operator must allow it.
        """
        records = self.operators[self.records[name].op_index]
        variable = {r.name for r in records if r.io == "in" and not r.constant}
        return len(variable) <= 1 and {r.op_type for r in records} <= _IN_PLACE

    def is_layer(self, name: str) -> bool:
        """Return whether a name belongs to a layer and not to a blob.

        Its weights are then read by a separate operator whose output has another name.
        """
        index = self._weights.get(f"{name}{_WEIGHTS}")
        records = [r for r in self.operators[index] if r.io == "out" or not r.constant] if index is not None else []
        roots = {root_of(r.name) for r in records if r.io == "out"}
        return len({r.op_type for r in records}) == 1 and root_of(name) not in roots

    @cached_property
    def _weights(self) -> dict[str, int]:
        return {r.name: r.op_index for r in self.dump.records if r.constant and r.name.endswith(_WEIGHTS)}

    @property
    def stages_of_inputs(self) -> list[str]:
        """Stages of the network's inputs, which in-place layers overwrite."""
        stages = {stage for name in self.dump.inputs for stage in self.stages.of(name) if stage != name}
        return [name for name in self.records if name in stages and name not in self.products]


@dataclass
class _Stages:
    """Pairs of a staged dump (as the sample) and a dump of blobs, and facts about the rest by ``id``."""

    staged: _Side
    blobs: _Side
    pairs: list[Pair] = field(default_factory=list)
    unmatched: dict[int, str] = field(default_factory=dict)
    reasons: dict[int, str] = field(default_factory=dict)
    expected: set[int] = field(default_factory=set)

    @property
    def taken(self) -> set[int]:
        return ids_of(self.pairs)

    def take(self, stage: Record, blob: Record, how: str) -> None:
        """Pair the two records if their sizes fit."""
        size, blob_size = size_of(stage), size_of(blob)
        parts = () if size == blob_size else self._parts(stage, blob, size, blob_size)
        if size and blob_size and size != blob_size and not parts:
            self.reasons[id(blob)] = (
                f"{stage.name!r} of the {self.staged.side} would be its stage, but holds {size} values, not {blob_size}"
            )
            return
        how = COPY if how == STAGE and without_copy(stage.name) == blob.name != stage.name else how
        self.pairs.append(Pair(stage, blob, how, stage=stage.name, parts=parts))

    def _parts(self, stage: Record, blob: Record, size: int, blob_size: int) -> tuple[tuple[int, int], ...]:
        """Return aligned and original channels of each part of a Concat whose parts the converter aligned; else ()."""
        info = blob.tensor.info
        if stage.op_type != _CONCAT or info.shape is None or info.layout not in _CHANNELS or len(info.shape) != 4:
            return ()
        channels = info.shape[_CHANNELS[info.layout]]
        pixels = blob_size // channels if channels else 0
        aligned = [r for r in self.staged.operators[stage.op_index] if r.io == "in" and not r.constant]
        originals = [self.staged.records.get(without_copy(record.name), record) for record in aligned]
        sizes = [(size_of(record), size_of(of)) for record, of in zip(aligned, originals)]
        if not pixels or any(count % pixels for pair in sizes for count in pair):
            return ()
        parts = tuple((taken // pixels, count // pixels) for taken, count in sizes)
        fits = sum(taken for taken, _ in parts) * pixels == size and sum(count for _, count in parts) == channels
        return parts if fits and all(0 < count <= taken for taken, count in parts) else ()

    def by_table(self, table: Sequence[Stage]) -> None:
        staged, blobs = self.staged, self.blobs
        last, layers = last_of_table(table), of_layers(table)
        for name, record in blobs.records.items():
            stage = last[name] if name in last else layers.get(name)
            if stage is None:
                continue
            if not stage:
                self.unmatched[id(record)] = f"the {staged.side} {NO_STAGE}"
            elif stage in staged.with_copies and stage not in staged.products:
                if stage != name or stage not in staged.records:
                    self.take(staged.with_copies[stage], record, TABLE)
            elif name in staged.records:
                self.unmatched[id(record)] = f"its stage {stage!r} is not in the {staged.side}, only earlier ones"
        taken = self.taken
        for name in blobs.records.keys() & staged.records.keys():
            if not last.get(name, name) and id(staged.records[name]) not in taken:
                self.unmatched[id(staged.records[name])] = f"an earlier value of {name!r}"

    def copies(self) -> None:
        """Pair the copy in one of two SDK dumps with the original in the other."""
        for name, record in self.staged.with_copies.items():
            if name != record.name and name in self.blobs.records:
                self.take(record, self.blobs.records[name], STAGE)

    def by_names(self) -> None:
        staged, blobs = self.staged, self.blobs
        of_root: defaultdict[str, list[str]] = defaultdict(list)
        for name in blobs.records:
            of_root[root_of(name)].append(name)
        open_roots = set()
        claims: defaultdict[str, list[str]] = defaultdict(list)
        for root, names in of_root.items():
            if len(names) > 1 or any(s in blobs.records for s in staged.stages.of(names[0]) if s != names[0]):
                open_roots.add(root)
                self._by_operators(root, names)
                continue
            last = staged.stages.last(names[0])
            if last is not None and (last != names[0] or last not in staged.records):
                claims[last].append(names[0])
        for last, names in claims.items():
            # c#1 and c#1@relu would both be c: the shorter name is the blob
            name = min(names, key=len)
            if all(other.startswith(name) for other in names):
                self.take(staged.with_copies[last], blobs.records[name], STAGE)
        self._written_over(open_roots)

    def _by_operators(self, root: str, names: list[str]) -> None:
        """Match blobs if the name of one is also a stage name of another.

        Each blob begins with an operator that cannot work in place. If the number of such operators differs from the
        number of blobs, names pair.
        """
        groups: list[list[str]] = []
        for name in (name for name in self.staged.records if root_of(name) == root):
            if not groups or not self.staged.works_in_place(name):
                groups.append([])
            groups[-1].append(name)
        if len(groups) != len(names) or not all(group[0].startswith(name) for group, name in zip(groups, names)):
            return
        for group, name in zip(groups, names):
            if group[-1] != name:
                self.take(self.staged.records[group[-1]], self.blobs.records[name], STAGE)

    def _written_over(self, open_roots: Set[str]) -> None:
        """Pair the values that in-place layers overwrote, by the order of the records.

        For an overwritten network input, the last value also bears its layer's name.
        """
        staged, records = self.staged, self.blobs.records
        taken = self.taken
        unknown = [name for name, r in records.items() if id(r) not in taken and name not in staged.with_copies]
        of_input = staged.stages_of_inputs
        are_blobs_only = len(unknown) <= len(of_input)
        before = [name for name in takewhile(set(unknown).__contains__, records) if "@" not in name]
        if of_input and before and (are_blobs_only or len(before) < len(unknown)):
            self.take(staged.records[of_input[-1]], records[before[-1]], ORDER)
            unknown = [name for name in unknown if name not in before]
        if are_blobs_only:
            return
        owners = {name: owner for name in unknown if (owner := _owner(name, records)) is not None}
        if not (owners or any(staged.is_layer(name) for name in unknown)):
            return
        in_place = {*owners.values()}
        in_place |= {
            n for n in records if n not in unknown and (len(staged.stages.of(n)) > 1 or staged.stages.last(n) != n)
        }
        groups: dict[str, list[str]] = {}
        waiting: list[str] = []
        for name in records:
            if name in in_place and waiting:
                groups[name], waiting = waiting, []
            elif name in unknown:
                waiting.append(name)
        for blob, values in groups.items():
            if root_of(blob) not in open_roots:
                for stage, value in self._numbered(blob, values, owners):
                    self.take(staged.records[stage], records[value], ORDER)
        taken = self.taken
        for record in (records[value] for values in groups.values() for value in values):
            if id(record) not in taken:
                self.reasons.setdefault(id(record), f"an in-place layer overwrote it, and the {staged.side} {NO_STAGE}")

    def _numbered(self, blob: str, values: list[str], owners: dict[str, str]) -> Iterator[tuple[str, str]]:
        """Yield (stage, value): the k-th value of a blob is its stage k, not counting Dropout stages.

        The last stages may coincide. If the numbers are inconsistent otherwise, only the first value is certain, and
        only by its name.
        """
        staged = self.staged
        stages, last = staged.stages.of(blob), staged.stages.last(blob)
        if last is None or any(owners.get(value, blob) != blob for value in values):
            return
        reshapes = {name for name in stages if name in staged.records and staged.records[name].op_type in _RESHAPES}
        dropped = [number for stage, number in stages.items() if stage in reshapes and number]
        is_named = owners.get(values[0]) == blob
        count = stages[last] - sum(number < stages[last] for number in dropped)
        for stage, number in stages.items():
            index = number - sum(earlier < number for earlier in dropped)
            # without operators, a BatchNorm's product cannot be distinguished from a stage
            product = stage in staged.products or (not staged.words and number == 1 and count > 1)
            fits = index < len(values) and (len(values) == count or (is_named and len(values) > count))
            sure = fits or (number == 0 and is_named)
            if stage != last and stage in staged.records and number not in dropped and sure and not product:
                yield stage, values[index]

    def explain(self) -> None:
        """Record why stages and the converter's own tensors have no partner; none of them is missing."""
        blobs, taken = self.blobs, self.taken
        done = taken | self.unmatched.keys()
        by_stage = {stage for name in blobs.records for stage in self.staged.stages.of(name)}
        for record in self.staged.free:
            name = record.name
            if id(record) in taken or (name in blobs.all and id(blobs.records.get(name)) not in done):
                continue
            if reason := self._why(name, by_stage):
                self.unmatched[id(record)] = reason
                self.expected.add(id(record))

    def _why(self, name: str, by_stage: Set[str]) -> str:
        staged = self.staged
        is_named_so = is_product(name) and (not staged.words or name in staged.products)
        if is_named_so or (name in staged.products and name in by_stage):
            return OWN
        if name in by_stage:
            return (
                "this tensor is an earlier value of a blob that in-place layers overwrite; the "
                f"{self.blobs.side} contains only the last value"
            )
        if without_copy(name) != name:
            return "a copy of a tensor that the converter added"
        layer, _, step = name.rpartition("/")
        is_step = layer in self.blobs.all and _STEP.fullmatch(step) is not None
        return OWN if is_step or is_converters_own(name) else ""


def _owner(name: str, records: Mapping[str, Record]) -> str | None:
    """Return the blob of a ``blob@layer``."""
    ends = (index for index, letter in enumerate(name) if letter == "@")
    return next((name[:end] for end in ends if name[:end] in records), None)
