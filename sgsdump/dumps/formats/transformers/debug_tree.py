"""Reader of the folders of ``model_addition_debugger_context`` (``transformers.model_debugging_utils``).

::

    FOLDER/Net_debug_tree_FULL_TENSORS.json        the tree of module calls
    FOLDER/Net_debug_tree_SUMMARY.json             the same without values
    FOLDER/Net.layers.0_inputs_args_0.safetensors  with use_repr=False, a file per tensor (key "data")

    {"module_path": "Net",
     "inputs": {"args": [{"shape": "torch.Size([2, 8])", "dtype": "torch.float32",
                          "value": "./Net_inputs_args_0.safetensors", "mean": "tensor(7.1159e-02)",
                          "std": "tensor(1.0865e+00)", "min": "tensor(-2.9021e+00)", "max": "tensor(2.4821e+00)"}],
                "kwargs": {"use_cache": "False"}},
     "children": [{"module_path": "Net.layers.0", "inputs": …, "children": […]}, …], "outputs": …}

Children are in the order of their calls. Only modules without inner modules have outputs. With use_repr=True, ``value``
is the printed text, and the numbers of the tensor are mean, std, min and max with five digits. Tensors of other types
than float32, float16 and bfloat16 have no statistics; if their text is complete, it becomes a checksum.

The tensors are ``layers.0.norm/input.0``, ``layers.0.attn/input.hidden_states``, ``layers.0.norm/output.0``, without
the class of the model; its own tensors are ``input.0`` and ``output.logits``. Further calls of a module are
``layers.0.norm/call1/input.0``. transformers overwrites the files of a module that is called again, so earlier calls
have statistics only.

Each tree in a folder is a run; its graph is the class of the model. ``Dump.network`` has the modules and their
arguments that are not tensors.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from sgsdump.dumps.dump import Damage, Dump, Operator, Record
from sgsdump.dumps.format import HEAD_BYTES, Format, checked_shape
from sgsdump.dumps.formats.shared import safetensors_file
from sgsdump.dumps.runs import Run
from sgsdump.errors import FormatError, ValuesError
from sgsdump.files.bounded_read import open_file, read_text
from sgsdump.files.folder import inside, leads_out
from sgsdump.files.json_yaml import json_of
from sgsdump.files.mapped import map_file
from sgsdump.tensors.dtypes import KNOWN, name_of
from sgsdump.tensors.statistics import Statistics
from sgsdump.tensors.tensor import Tensor, TensorInfo

ENDINGS = ("_debug_tree_FULL_TENSORS.json", "_debug_tree_SUMMARY.json")  # the first one is preferred
MOST_BYTES, MOST_FILES, DEEPEST, SHOWN = 256 << 20, 1000, 100, 3
DIGITS = 5
UNKNOWN = np.dtype("V1")
OVERWRITTEN = "transformers overwrote the file in a later call of the module"
NO_NUMBERS = "transformers writes no numbers of this type"
_KEY, _CUT = "data", "..."
_BEGIN = re.compile(rb'\s*\{\s*"module_path"\s*:')
_SIZE = re.compile(r"torch\.Size\(\[([\d, ]{0,400})\]\)")
_NUMBER = re.compile(r"tensor\(\s*([-+\w.]{1,40})")
_PLAIN = re.compile(r"None|True|False|-?\d{1,30}(?:\.\d{0,30})?(?:e[-+]?\d{1,4})?|'[^'\\]{0,60}'")
_JSON = {"None": "null", "True": "true", "False": "false"}


class Leaf(NamedTuple):
    """An argument or result of a call, tensor or not; ``call`` is the number of the call in the tree."""

    call: int
    io: str
    slot: int
    name: str
    word: str
    facts: Any


def recognises(path: Path, head: bytes) -> bool:
    return bool(_trees(path)) if path.is_dir() else _BEGIN.match(head) is not None


def runs(path: Path, notes: list[str]) -> list[Run]:
    """Return the trees in a folder."""
    return [Run(file.name, graph=model) for model, file in _trees(path).items()]


def read(path: Path) -> Dump:
    """Read a tree; values are loaded on request. Raises FormatError if it has no tensor."""
    if path.is_dir():
        trees = list(_trees(path).values())
        if len(trees) != 1:
            raise FormatError(f"{path} holds the trees of {len(trees)} models. Name the tree of one model")
        path = trees[0]
    text = read_text(path, MOST_BYTES, "a tree of transformers")
    tree = _Tree(path)
    tree.add(json_of(text, path))
    records = tree.records()
    if not records:
        raise FormatError(f"{path} has no tensor")
    return Dump(records, FORMAT.name, None, path, [*_unread(path), *tree.notes()], tree.network)


class _Tree:
    """Calls of a tree, collected in the order in which transformers wrote their tensors."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.modules: list[str] = []
        self.leaves: list[Leaf] = []
        self._root = ""
        self._calls: Counter[str] = Counter()
        self._said: dict[str, list[str]] = {}

    def add(self, node: Any, depth: int = 0) -> None:
        """Add a call with its inner calls. Raises FormatError if it is not a call."""
        if not isinstance(node, dict) or not isinstance(node.get("module_path"), str):
            raise FormatError(f"{self.path} is damaged: an entry has no module_path")
        if depth > DEEPEST:
            raise FormatError(f"{self.path} has more than {DEEPEST} levels of modules")
        path = node["module_path"]
        if not depth:
            self._root = path
        module = "" if path == self._root else path.removeprefix(f"{self._root}.")
        call = self._calls[module]
        self._calls[module] += 1
        place = "/".join(filter(None, (module, f"call{call}" if call else "")))
        index = len(self.modules)
        self.modules.append(module)
        self._add_leaves(index, "in", place, node.get("inputs"))
        children = node.get("children") or []
        if not isinstance(children, list):
            raise FormatError(f"{self.path} is damaged: the children of {path[:80]!r} are not a list")
        for child in children:
            self.add(child, depth + 1)
        self._add_leaves(index, "out", place, node.get("outputs"))

    def _add_leaves(self, index: int, io: str, place: str, value: Any) -> None:
        if value is None:
            return
        side = "input" if io == "in" else "output"
        parts = [("", value)]
        if io == "in" and isinstance(value, dict):
            parts = [("", value[key]) for key in ("args", "kwargs") if key in value]
        found = [leaf for start, part in parts for leaf in _flat(part, start)]
        for slot, (word, facts) in enumerate(found):
            name = f"{place}/{side}.{word or 0}" if place else f"{side}.{word or 0}"
            self.leaves.append(Leaf(index, io, slot, name, word or "0", facts))

    def records(self) -> list[Record]:
        """Return the tensors. A file that several calls name holds the values of the last one."""
        last = {file: i for i, leaf in enumerate(self.leaves) if (file := _file(leaf.facts)) is not None}
        records = []
        for i, leaf in enumerate(self.leaves):
            if not _is_tensor(leaf.facts):
                continue
            file = _file(leaf.facts)
            tensor = self._tensor(leaf, file, file is not None and last[file] != i)
            records.append(Record(leaf.io, leaf.slot, leaf.call, "", tensor))  # type: ignore[arg-type]
        return records

    def _tensor(self, leaf: Leaf, file: str | None, is_overwritten: bool) -> Tensor:
        facts = leaf.facts
        word = facts["dtype"].removeprefix("torch.")
        dtype = KNOWN.get(word, UNKNOWN)
        if dtype == UNKNOWN:
            self._say(f"have the unknown type {word[:40]!r}", leaf.name)
        info = TensorInfo(leaf.name, self._shape(leaf), dtype)
        statistics = _statistics(facts, info.shape)
        if is_overwritten:
            self._say(f"have no values, because {OVERWRITTEN}", leaf.name)
            return _without_values(info, statistics, OVERWRITTEN)
        if file is None:
            return _without_values(info, statistics, "only statistics were dumped" if statistics else NO_NUMBERS)
        try:
            path = inside(self.path.parent, file.removeprefix("./"))
        except FormatError as error:
            self._say(_UNREADABLE, leaf.name)
            return _without_values(info, statistics, str(error))
        return Tensor(info, partial(_load, path, info))

    def _shape(self, leaf: Leaf) -> tuple[int, ...] | None:
        match = _SIZE.fullmatch(leaf.facts["shape"])
        sizes = [size for part in match[1].split(",") if (size := part.strip())] if match else [""]
        where = f"{self.path}: tensor {leaf.name[:80]!r}"
        if not all(size.isdecimal() and len(size) < 16 for size in sizes):
            raise FormatError(f"{where} has an impossible shape")
        try:
            return checked_shape(map(int, sizes))
        except FormatError as error:
            raise FormatError(f"{where}: {error}") from None

    def _say(self, event: str, name: str) -> None:
        self._said.setdefault(event, []).append(name)

    def notes(self) -> Iterator[str]:
        """Yield a line for each kind of irregularity."""
        for event, names in self._said.items():
            more = " …" if len(names) > SHOWN else ""
            line = f"tensors {event} ({len(names)}): {', '.join(map(repr, names[:SHOWN]))}{more}"
            yield Damage(line) if event == _UNREADABLE else line

    def network(self) -> dict[int, Operator]:
        """Return the modules with their plain arguments."""
        arguments: dict[int, dict[str, str]] = {}
        for leaf in self.leaves:
            if leaf.io == "in" and isinstance(leaf.facts, str) and _PLAIN.fullmatch(leaf.facts):
                text = leaf.facts
                value = json.dumps(text[1:-1]) if text.startswith("'") else _JSON.get(text, text)
                arguments.setdefault(leaf.call, {})[leaf.word] = value
        return {
            index: Operator(module, "", is_module=True, arguments=arguments.get(index, {}))
            for index, module in enumerate(self.modules)
        }


_UNREADABLE = "have no values: their files are missing or damaged"


def _flat(value: Any, name: str, depth: int = 0) -> Iterator[tuple[str, Any]]:
    """Yield the leaves of nested lists and objects with their position or key."""
    if depth > DEEPEST or _is_tensor(value) or not isinstance(value, (dict, list)):
        yield name, value
        return
    for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
        yield from _flat(inner, f"{name}.{key}" if name else str(key), depth + 1)


def _is_tensor(value: Any) -> bool:
    return isinstance(value, dict) and isinstance(value.get("shape"), str) and isinstance(value.get("dtype"), str)


def _file(value: Any) -> str | None:
    return value["value"] if _is_tensor(value) and isinstance(value.get("value"), str) else None


def _statistics(facts: Mapping[str, Any], shape: tuple[int, ...] | None) -> Statistics | None:
    """Return the statistics; None if the type has none and no complete text.

    torch's standard deviation of a single value is NaN, which says nothing about the value.
    """

    def figure(name: str) -> float | None:
        match = _NUMBER.match(facts[name]) if isinstance(facts.get(name), str) else None
        try:
            return float(match[1]) if match else None
        except ValueError:
            return None

    count = None if shape is None else math.prod(shape)
    if any(name in facts for name in ("min", "max", "mean")):
        std = figure("std") if count is None or count > 1 else None
        return Statistics(figure("min"), figure("max"), figure("mean"), count=count, std=std, digits=DIGITS)
    lines = facts.get("value")
    if not isinstance(lines, list) or not all(isinstance(line, str) for line in lines) or _CUT in "".join(lines):
        return None
    import hashlib

    digest = hashlib.blake2b("\n".join(lines).encode("utf-8", "replace"), digest_size=8).hexdigest()
    return Statistics(count=count, checksum=f"text:{digest}")


def _without_values(info: TensorInfo, statistics: Statistics | None, why: str) -> Tensor:
    def load() -> np.ndarray:
        raise ValuesError(f"has no values: {why}", tensor=info.name)

    return Tensor(info, load, statistics or Statistics())


def _load(path: Path, info: TensorInfo) -> np.ndarray:
    """Return the values of a file. Raises FormatError if the file is damaged or holds another tensor."""
    data = map_file(path)
    stored = safetensors_file.stored_tensors(data, path)[0].get(_KEY)
    if stored is None or stored.dtype is None:
        raise FormatError(f"{path} has no readable tensor {_KEY!r}")
    if stored.shape != info.shape or stored.dtype.newbyteorder("=") != info.dtype:
        raise FormatError(
            f"{path} holds {name_of(stored.dtype)} {list(stored.shape)}, but the debug tree declares "
            f"{name_of(info.dtype)} {list(info.shape or ())}"
        )
    return safetensors_file.load(data.source, stored)


def _trees(folder: Path) -> dict[str, Path]:
    """Return the tree of each model directly in a folder; links out of the folder are skipped."""
    trees: dict[str, Path] = {}
    for ending in ENDINGS:
        for file in sorted(islice(folder.glob(f"*{ending}"), MOST_FILES)):
            if file.is_file() and not leads_out(file, folder) and _begins(file):
                trees.setdefault(file.name.removesuffix(ending), file)
    return trees


def _unread(path: Path) -> list[str]:
    """Return a note if only the summary could be read, although the tree with values exists."""
    whole, summary = ENDINGS
    values = path.with_name(path.name.removesuffix(summary) + whole)
    if not path.name.endswith(summary) or not values.is_file():
        return []
    return [Damage(f"{values} is empty or damaged; the statistics are those of {path.name}")]


def _begins(file: Path) -> bool:
    try:
        with open_file(file) as opened:
            return _BEGIN.match(opened.read(HEAD_BYTES)) is not None
    except OSError:
        return False


FORMAT = Format(
    "transformers_debug",
    recognises,
    read,
    looks_for="a …_debug_tree_FULL_TENSORS.json of transformers",
    runs=runs,
    own_inputs=True,
)
