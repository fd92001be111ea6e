"""Branches that a model takes on the given data: in place of the Ifs, with a guard that checks other data.

The first feed decides every If, at any depth. Its branches replace the Ifs. The conditions, now tensors of the main
graph, are then computed on all feeds. An If whose condition differs between feeds stays, with its bodies, and the
others are checked again. The data are therefore read once, and once more for each If that differs.

The guard is the part of the model that computes the conditions, after constant folding, stored as ONNX in the model's
metadata. If conditions depend on shapes, shapes that are equal in all feeds are fixed, so that most of the guard folds
away.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

import numpy as np
import onnx
from google.protobuf.message import DecodeError

from sgsdump.errors import InputError, ModelError, SgsdumpError
from sgsdump.executors.onnx_runtime.segment_runner import SegmentRunner
from sgsdump.models.external_data import external_files
from sgsdump.models.graph import Graph, all_graphs, drop_unused_constants, has_weights_outside, values_of
from sgsdump.models.model import Model
from sgsdump.models.passes.branches import (
    DIFFERS,
    SEVERAL_TIMES,
    UNKNOWN,
    Branches,
    Choice,
    choices,
    put_in_place,
    without_unread,
)
from sgsdump.models.passes.extract import extract
from sgsdump.models.passes.rewrites import fix_shapes, fold_constants

Feed = Mapping[str, np.ndarray]
Runs = Callable[[], Iterable[tuple[str, Feed]]]
"""Function that returns label and feed of each run, each time from the first run."""

KEY = "sgsdump.branches"
# A larger guard is omitted: the branch then depends on the network itself, not on its inputs.
GUARD_BYTES = 1 << 20


def with_branches(model: Model, feeds: Runs) -> Model:
    """Return the model with the branches that it takes on all feeds, and the findings in ``Model.branches``.

    A model without an If in its main graph is returned unchanged. An If whose condition cannot be computed stays.
    Raises
    the errors of reading the feeds.
    """
    if model.native is not None or not choices(model.proto):
        return model
    staying: dict[Choice, str] = {}
    most = sum(len(part.node) for part in all_graphs(model.proto.graph))
    for _ in range(1 + most):
        first = next(iter(feeds()), None)
        placed, taken = _placed_by(model, first[1] if first else {}, staying)
        count, differing = _differing(placed, taken, feeds)
        if differing is None:
            break
        staying[differing] = DIFFERS
    return replace(placed, branches=Branches(taken, staying, count))


def _placed_by(model: Model, feed: Feed, staying: dict[Choice, str]) -> tuple[Model, dict[Choice, str]]:
    """Return the model with the branches of one feed in place; add choices that cannot be placed to ``staying``."""
    taken: dict[Choice, str] = {}
    while True:
        fresh = [choice for choice in choices(model.proto) if choice not in staying]
        values = _values(_Conditions(model, fresh), fresh, feed)
        found = {choice: _taken(choice, values) for choice in fresh}
        staying |= {choice: branch for choice, branch in found.items() if branch in (SEVERAL_TIMES, UNKNOWN)}
        now = {choice: branch for choice, branch in found.items() if choice not in staying}
        if not now:
            return model, taken
        taken |= now
        model = replace(model, proto=put_in_place(model.proto, now))


def _differing(placed: Model, taken: Mapping[Choice, str], feeds: Runs) -> tuple[int, Choice | None]:
    """Return the number of feeds, and the first node in graph order for which a feed takes another branch."""
    position = {name: index for index, node in enumerate(placed.proto.graph.node) for name in node.output}
    ordered = sorted(taken, key=lambda choice: max(position.get(name, -1) for name in choice.reads))
    conditions, count = _Conditions(placed, ordered), 0
    for count, (_, feed) in enumerate(feeds(), 1):
        if count == 1:
            continue
        values = _values(conditions, ordered, feed)
        for choice in ordered:
            if _taken(choice, values) != taken[choice]:
                return count, choice
    return count, None


def _taken(choice: Choice, values: Mapping[str, np.ndarray]) -> str:
    if any(name and name not in values for name in choice.reads):
        return UNKNOWN
    return choice.taken(values) or SEVERAL_TIMES


def _values(conditions: _Conditions, each: Sequence[Choice], feed: Feed) -> dict[str, np.ndarray]:
    """Return the values that can be computed; if computing all at once fails, compute them one choice at a time."""
    try:
        return conditions.of(feed)
    except SgsdumpError:
        pass
    values: dict[str, np.ndarray] = {}
    for choice in each:
        with suppress(SgsdumpError):
            values |= _Conditions(conditions.model, [choice]).of(feed)
    return values


class _Conditions:
    """The tensors that decide, computed for one feed after another. Raises the errors of ``extract`` and the runner."""

    def __init__(self, model: Model, each: Iterable[Choice]):
        self.model = model
        graph = Graph(model.proto)
        names = {name for choice in each for name in choice.reads if name}
        self._fed = names & set(graph.inputs)
        self._known = {name: values_of(graph.constants[name]) for name in names & graph.constants.keys()}
        self._computed = frozenset(names - self._fed - self._known.keys())
        self._runner: SegmentRunner | None = None

    def of(self, feed: Feed) -> dict[str, np.ndarray]:
        values = self._known | {name: np.asarray(feed[name]) for name in self._fed if name in feed}
        if not self._computed:
            return values
        if self._runner is None:
            part = extract(self.model.proto, None, sorted(self._computed))
            self._runner = SegmentRunner(Model(part, self.model.path, self.model.folder), keep_sessions=True)
        reads = {spec.name: feed[spec.name] for spec in self._runner.inputs if spec.name in feed}
        layers = self._runner.run(reads, self._computed)
        return values | {layer.name: layer.array for layer in layers}


def settled(model: Model, feeds: Runs) -> Model:
    """Return a model of ``with_branches`` ready for quantisation: without deciding nodes, with a guard in its metadata.

    The model must contain its weights. ``feeds`` are the feeds of ``with_branches``.
    """
    branches = model.branches
    if branches is None or not branches.taken:
        return model
    names = sorted({name for choice in branches.taken for name in choice.reads if name})
    proto = _with_fixed_shapes(model.proto, names, feeds)
    guard = _guard(proto, names)
    proto = without_unread(proto, names)
    drop_unused_constants(proto)
    facts = [[choice.node, choice.kind, list(choice.reads), branch] for choice, branch in branches.taken.items()]
    is_small = guard is not None and len(guard) <= GUARD_BYTES
    text = {"taken": facts, "guard": base64.b64encode(guard).decode() if guard is not None and is_small else ""}
    proto.metadata_props.add(key=KEY, value=json.dumps(text))
    return replace(model, proto=proto, branches=replace(branches, checked=is_small))


def _with_fixed_shapes(proto: onnx.ModelProto, names: Sequence[str], feeds: Runs) -> onnx.ModelProto:
    """Fix the input shapes if they are equal in all feeds and the named tensors depend on shapes."""
    part = extract(proto, None, names)
    if not any(node.op_type in ("Shape", "Size") for node in part.graph.node):
        return proto
    shapes = [{name: array.shape for name, array in feed.items()} for _, feed in feeds()]
    if any(shape != shapes[0] for shape in shapes):
        return proto
    inputs = set(Graph(proto).inputs)
    return fix_shapes(proto, {name: shape for name, shape in shapes[0].items() if name in inputs})


def _guard(proto: onnx.ModelProto, names: Sequence[str]) -> bytes | None:
    """Return the model that computes the named tensors that do not fold away, serialised.

    b"" if all fold away; None if the guard has weights outside the model.
    """
    part = extract(proto, None, names)
    # Folding keeps graph outputs, so an Identity behind each tensor lets the tensor itself fold away.
    for name in names:
        part.graph.node.add(op_type="Identity", input=[name], output=[f"{name}/kept"])
    del part.graph.output[:]
    part.graph.output.extend(onnx.ValueInfoProto(name=f"{name}/kept") for name in names)
    folded = fold_constants(part)
    graph = Graph(folded)
    left = [name for name in names if name not in graph.constants]
    guard = extract(folded, None, left) if left else None
    if guard is None or not has_weights_outside(guard):
        return b"" if guard is None else guard.SerializeToString()
    return None


class BranchGuard:
    """Check of feeds against the branches that a model was made for.

    Raises ModelError for damaged metadata.
    """

    def __init__(self, model: Model):
        text = next((entry.value for entry in model.proto.metadata_props if entry.key == KEY), None)
        self.taken: dict[Choice, str] = {}
        self._conditions: _Conditions | None = None
        if text is None:
            return
        try:
            document = json.loads(text)
            self.taken = {
                Choice(str(node), str(kind), tuple(map(str, reads))): str(branch)
                for node, kind, reads, branch in document["taken"]
            }
            guard = onnx.ModelProto.FromString(base64.b64decode(document["guard"], validate=True))
        except (ValueError, TypeError, KeyError, binascii.Error, DecodeError):
            raise ModelError(f"{model.path}: metadata {KEY} is damaged. Create the model again.") from None
        if external_files(guard):
            raise ModelError(f"{model.path}: metadata {KEY} refers to external data files. Create the model again.")
        made = {info.name for info in guard.graph.output}
        left = [choice for choice in self.taken if made & set(choice.reads)]
        self._conditions = _Conditions(Model(guard, model.path), left) if left else None

    def check(self, feed: Feed, label: str = "") -> None:
        """Raise InputError if a feed takes another branch."""
        if self._conditions is None:
            return
        values = self._conditions.of(feed)
        for choice, branch in self.taken.items():
            if all(not name or name in values for name in choice.reads) and choice.taken(values) != branch:
                of = f"{label}: " if label else ""
                raise InputError(
                    f"{of}with these inputs, {choice.kind} {choice.node!r} takes a different branch "
                    f"than {branch!r}, for which the model was created. Use other inputs, or create "
                    "the model again with inputs such as these."
                )
