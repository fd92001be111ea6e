"""One round: a forward of the outermost module, with its modules and operators numbered and named in execution order.

``Facts`` holds what the schemas of torch's operators state; ``Dispatch`` sees the operators below autograd.

Top-level modules and operators of a round are numbered from 0 in the order of their start; operators inside operator 3
are ``3_0``, ``3_1`` …. A module is named by its path (``layer1.0.conv1``), an operator by the path of its module and
its own name (``layer1.0.conv1.convolution``). Repeated names in a round get the suffixes ``_1``, ``_2`` …
"""

import re
import sys
from typing import Any

import torch
from sgsdump_records import Operator, called_text, param_text
from sgsdump_torch_collective import brings
from sgsdump_torch_memories import TensorLookup
from sgsdump_torch_network import COMPILED, ROOT, Network, below
from sgsdump_torch_source import line_of_program
from sgsdump_torch_tensors import CONSTANTS, PLAIN, plain, tensors_in
from sgsdump_torch_unwritten import GIVING, RESIZING, SCRATCH
from torch.utils._python_dispatch import TorchDispatchMode

MOST_OPERATORS = 20000
MOST_TEXTS = 1000  # cached texts of one operator's arguments
_OPAQUE = (torch.jit.ScriptModule, torch.fx.GraphModule)
# Operators that compute nothing; torch inserts them.
SKIPPED = {
    *("aten.detach", "aten.alias", "aten.lift", "aten.lift_fresh", "aten.is_same_size", "aten.sym_size"),
    *GIVING,
}
SIMPLE = frozenset((bool, int, float, str, type(None)))
# Types that enter the key of arguments unchanged.
KEYED = SIMPLE | CONSTANTS
MOST_IN_LIST = 100
NON_BLOCKING = "non_blocking"
NUMBERS = {bool: torch.bool, int: torch.int64, float: torch.float64, complex: torch.complex128}
COMPOSITE = torch._C.DispatchKey.CompositeImplicitAutograd


class Frame:
    """A running module: its path below the outermost one ("" for that), and its ``Operator``, None for the outermost.

    asks      whether its program compares tensors for equality; None if unknown so far.
    children  number of operators that ran in it so far; opaque: calls do not show which of its modules an operator is
    in.
    """

    __slots__ = ("asks", "children", "module", "nodes", "opaque", "operator", "path")

    def __init__(self, module, path, operator=None):
        self.module = module
        self.path = path
        self.operator = operator
        self.opaque = not isinstance(module, torch.nn.Module) or isinstance(module, _OPAQUE)
        self.asks = None
        self.children = 0
        self.nodes = None


class Round:
    """A round in progress.

    ``step`` counts all rounds from 0, ``of_model`` those of this network; ``root`` is the outermost module (a compiled
    function has none, only a ``model`` name).

    network    names of its modules and weights.
    lookup     records of its tensors; lines: index lines that are not written yet, or functions that return them.
    away       reads of tensors on devices (``sgsdump_torch_away.py``); None before the first.
    ordinary   compiled kernel if it handles ordinary operators (``sgsdump_torch_ordinary.py``); else None.
    mark       identity of this round, for objects that outlive it.
    compiled   depth of calls of compiled code; graphs: number of compiled graphs that ran so far.
    are_names_alone  True while names are recorded without a dump.
    operators  operators of earlier rounds, by their place; layout: layout of the network in the previous round.
    """

    def __init__(self, steps, root, model, operators, layout=None):
        self.step, self.of_model = steps
        self.root = root
        self.model = model
        self.network = Network(root, layout)
        self.frames = [Frame(root, "")]
        self.names: dict = {}
        self.quiet = False
        self.compiled = self.graphs = 0
        self.are_names_alone = False
        self.lookup = TensorLookup()
        self.ordinary: Any = None
        self.mark = object()
        self.lines: list = []
        self.away: Any = None
        self.operators = operators

    def begin_module(self, module):
        """Return the ``Operator`` of a called module; inner ones follow until ``end_module``."""
        outer = self.frames[-1]
        path = self.network.paths.get(id(module))
        if path is None:
            path = below(outer.path, type(module).__name__)
            self.network.learn(module, path)
        operator = self._operator(outer, path, type(module).__name__, path)
        self.frames.append(Frame(module, path, operator))
        return operator

    def end_module(self):
        self.frames.pop()

    def begin_operator(self, kind, tensors):
        """Return the ``Operator`` of a torch operator; ``kind`` is its name with namespace, ``aten.addmm``."""
        frame = self.frames[-1]
        path = self._path_inside(frame, tensors) if frame.opaque else frame.path
        return self._operator(frame, below(path, kind.partition(".")[2]), kind, path)

    def begin_graph(self, name, kind):
        """Return the ``Operator`` of a compiled graph in the running module."""
        frame = self.frames[-1]
        return self._operator(frame, below(frame.path, name), kind, frame.path)

    def _operator(self, frame, name, kind, path):
        again = self.names.get(name, 0)
        self.names[name] = again + 1
        key = (frame.operator or self.model, frame.children, name, again, kind, path)
        frame.children += 1
        operator = self.operators.get(key)
        if operator is None:
            if len(self.operators) >= MOST_OPERATORS:
                self.operators.clear()
            operator = self.operators[key] = self._new_operator(frame, *key[1:])
        return operator

    def _new_operator(self, frame, number, name, again, kind, path):
        short = _short(path, frame.path) if name == path else name[len(path) + 1 :] if path else name
        suffix = f"_{again}" if again else ""
        folder = f"{number}_{short if short[:1].isalpha() else 'op' + short}{suffix}"
        outer = frame.operator.folders if frame.operator else ()
        return Operator((*outer, folder), kind, below(ROOT, path), self.model, name + suffix, line_of_program())

    def is_of_optimiser(self, kind):
        """Return whether TorchScript's optimiser runs an operator itself.

        It searches for equal constants, also in a program that never compares tensors.
        """
        frame = self.frames[-1]
        if kind != "aten.equal" or not isinstance(frame.module, torch.jit.ScriptModule):
            return False
        if frame.asks is None:
            graph = getattr(frame.module, "inlined_graph", None)
            frame.asks = graph is None or bool(graph.findAllNodes("aten::equal", recurse=True))
        return not frame.asks

    def _path_inside(self, frame, tensors):
        """Return an operator's path in a scripted, traced or FX graph: by its node, else by the weights it reads."""
        if isinstance(frame.module, torch.fx.GraphModule):
            path = _path_of_node(frame)
            if path is not None:
                return below(frame.path, path)
        for tensor in tensors:
            owner = self.network.owners.get(tensor.untyped_storage()._cdata)
            if owner is not None and (not frame.path or (owner[0] + ".").startswith(frame.path + ".")):
                return owner[0]
        return frame.path


def _short(path, outer):
    """Return a module's path within the ``outer`` module, for its folder; modules of a list keep the list's name."""
    if not outer or not path.startswith(outer + "."):
        return path
    short = path[len(outer) + 1 :]
    return outer.rpartition(".")[2] + "." + short if short.isdigit() else short


def clean(path):
    """Return a module's path without the parts that ``torch.compile`` inserts."""
    return ".".join(part for part in path.split(".") if part != COMPILED)


def _path_of_node(frame):
    """Return the module path, in the graph's own network, of the running node, or None.

    For its error messages, FX keeps a table from the lines of its generated code to the graph's nodes.
    """
    graph_module = frame.module
    code = getattr(getattr(type(graph_module), "forward", None), "__code__", None)
    lines = getattr(graph_module, "_lineno_map", None)
    if code is None or not lines:
        return None
    running: Any = sys._getframe(1)
    while running is not None and running.f_code is not code:
        running = running.f_back
    if running is None:
        return None
    if frame.nodes is None:
        frame.nodes = list(graph_module.graph.nodes)
    index = lines.get(running.f_lineno - getattr(graph_module, "_prologue_start", 0))
    if index is None or index >= len(frame.nodes):
        return None
    stack = frame.nodes[index].meta.get("nn_module_stack")
    if not stack:
        return None
    last = list(stack.values())[-1]
    name = last[0] if isinstance(last, tuple) else last
    return clean(name) if isinstance(name, str) and re.fullmatch(r"[\w.]*", name) else None


class Dispatch(TorchDispatchMode):
    """Dispatch mode that passes every operator to ``dispatched(round, func, types, args, kwargs)``."""

    supports_higher_order_operators = True

    @classmethod
    def _should_skip_dynamo(cls):
        return False  # torch's default imports Dynamo, which takes seconds

    def __init__(self, dispatched, round):
        super().__init__()
        self.dispatched = dispatched
        self.round = round

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        return self.dispatched(self.round, func, types, args, kwargs or {})


class Facts:
    """Facts of an operator's schema, read once.

    texts  index texts of its arguments, by the key of ``read``.
    late   position of the argument ``non_blocking``; None if the operator has none.
    """

    def __init__(self, func):
        schema = getattr(func, "_schema", None)
        self.func = func
        self.texts: dict = {}
        self._decomposed: dict = {}
        self.body = None
        if schema is None:  # torch.cond and similar
            self.kind, self.skipped = "higher_order.{}".format(getattr(func, "__name__", "operator")), False
            self.arguments, self.defaults, self.out, self.writes = [], {}, set(), []
            self.overload, self.late = "", None
            self.tensors: tuple[int, ...] = ()
            self.gives = self.resizes = self.brings = self.is_view = False
            self.scratch = ()
            self.body = _body_of(func)
            return
        namespace, _, name = schema.name.partition("::")
        self.kind = "{}.{}".format(namespace, name)
        self.overload = schema.overload_name
        self.skipped = self.kind in SKIPPED or namespace == "prim"
        self.gives, self.resizes = self.kind in GIVING, self.kind in RESIZING
        self.brings = brings(self.kind)
        self.scratch = SCRATCH.get(self.kind, ())
        self.arguments = [argument.name for argument in schema.arguments]
        self.defaults = {
            argument.name: argument.default_value for argument in schema.arguments if argument.has_default_value()
        }
        self.tensors = () if takes_numbers(name) else _tensors_of(schema)
        self.out = {argument.name for argument in schema.arguments if getattr(argument, "is_out", False)}
        self.late = self.arguments.index(NON_BLOCKING) if NON_BLOCKING in self.arguments else None
        self.is_view = any(returned.alias_info is not None for returned in schema.returns)
        self.writes = [
            (index, argument.name)
            for index, argument in enumerate(schema.arguments)
            if argument.alias_info is not None and argument.alias_info.is_write
        ]

    def is_late(self, args, kwargs):
        """Return whether the operator returns before the values of its result are on the host."""
        if self.late is None:
            return False
        return bool(args[self.late] if self.late < len(args) else kwargs.get(NON_BLOCKING))

    def is_made_of_others(self, inputs):
        """Return whether torch implements an operator only by other operators, on the device of its inputs.

        Autograd splits such an operator before the hook sees it; without autograd (``torch.inference_mode``) nothing
        does.
        """
        device = "cpu" if not inputs or inputs[0].is_cpu else inputs[0].device.type
        if device not in self._decomposed:
            self._decomposed[device] = _is_made_of_others(self.func, device)
        return self._decomposed[device]

    def by_others(self, args, kwargs):
        """Return the operator's result, computed by visible operators, with autocast as it was for the operator."""
        with torch._C._RestorePythonTLSSnapshot():  # type: ignore[attr-defined]
            return self.func._op_dk(COMPOSITE, *args, **kwargs)

    def with_tensors(self, args):
        """Return the arguments, with tensors restored from numbers.

        TorchScript's optimiser turns numbers into tensors, and a dispatch mode receives these as numbers. Some
        operators accept numbers instead of tensors, others do not.
        """
        count = len(args)
        for index in self.tensors:
            if index < count and type(args[index]) in NUMBERS:
                break
        else:
            return args
        numbers = [index for index in self.tensors if index < count and type(args[index]) in NUMBERS]
        return tuple(_tensor_of(value) if index in numbers else value for index, value in enumerate(args))

    def read(self, args, kwargs):
        """Return the tensors that it reads, and a key that is equal for equally described arguments; None if unusual.

        The compiled kernel computes the same key.
        """
        tensors: list = []
        key: list = []
        for value in args:
            kind = type(value)
            if kind in PLAIN:
                tensors.append(value)
                key.append(torch.Tensor)
            elif kind in KEYED:
                key.append((kind, value))
            elif kind is list and all(type(item) is int for item in value):
                key.append(tuple(value))
            elif kind is list and all(type(item) in PLAIN for item in value):
                tensors += value
                key.append((torch.Tensor, len(value)))
            else:
                return self.inputs(args, kwargs), None
        for name, value in kwargs.items():
            if type(value) not in KEYED:
                return self.inputs(args, kwargs), None
            key.append((name, type(value), value))
        return tensors, tuple(key)

    def ordinary(self):
        """Return the facts that the compiled kernel needs, or None if it cannot handle the operator.

        They are type, name below a module, texts, bit mask of the tensor arguments, whether results are views, and the
        name.
        """
        name = self.kind.partition(".")[2]
        unusual = self.skipped or self.body or self.writes or self.out or self.resizes or self.scratch or self.brings
        if unusual or not name or self.kind == "aten.equal" or self.is_made_of_others(()):
            return None
        tensors = sum(1 << index for index in self.tensors if index < 64)
        return self.kind, "." + name, self.texts, tensors, self.is_view, name

    def inputs(self, args, kwargs):
        """Return the tensors that it reads."""
        if self.out:
            kwargs = {name: value for name, value in kwargs.items() if name not in self.out}
        return tensors_in((args, kwargs) if kwargs else args)

    def written(self, args, kwargs):
        if not self.writes:
            return ()
        values = [args[index] if index < len(args) else kwargs.get(name) for index, name in self.writes]
        return [tensor for tensor in tensors_in(values) if plain(tensor)]

    def called(self, key, args, kwargs):
        """Return the index text of the simple arguments, and of the names of tensor arguments."""
        text = self.texts.get(key) if key is not None else None
        if text is None:
            text = called_text(param_text(self.param(args, kwargs)), self.call(args, kwargs))
            if key is not None:
                if len(self.texts) >= MOST_TEXTS:
                    self.texts.clear()
                self.texts[key] = text
        return text

    def param(self, args, kwargs):
        """Return the arguments that are not tensors, without those equal to the schema's default.

        Whether torch passes a default depends on the arguments after it.
        """
        param = {name: value for name, value in zip(self.arguments, args) if type(value) in SIMPLE or is_simple(value)}
        if kwargs:
            param.update((name, value) for name, value in kwargs.items() if is_simple(value))
        defaults = self.defaults
        return {name: value for name, value in param.items() if name not in defaults or not same(value, defaults[name])}

    def call(self, args, kwargs):
        """Return the overload, and the argument name of each tensor, ``tensors.1`` within a list."""
        names: list = []
        for name, value in zip(self.arguments, args):
            _name_tensors(name, value, names)
        for name, value in kwargs.items():
            if name not in self.out:
                _name_tensors(name, value, names)
        return {"overload": self.overload, "tensors": names}


def same(value, default):
    return type(value) is type(default) and value == default


def _name_tensors(name, value, names):
    if isinstance(value, torch.Tensor):
        if plain(value):
            names.append(name)
    elif type(value) in (list, tuple):
        for index, inner in enumerate(value):
            _name_tensors("{}.{}".format(name, index), inner, names)


def takes_numbers(name):
    """Return whether torch itself accepts a Python number as a tensor of this operator."""
    return getattr(torch._C, "_should_allow_numbers_as_tensors", lambda _: False)(name)


def _tensors_of(schema):
    """Return the indices of the arguments that are one tensor each."""
    return tuple(index for index, argument in enumerate(schema.arguments) if str(argument.type) == "Tensor")


def _tensor_of(number):
    """Return a tensor of a number as the dispatcher makes it: 64 bits, on the CPU."""
    return torch.scalar_tensor(number, dtype=NUMBERS[type(number)])


def _is_made_of_others(func, device):
    schema, has_kernel = getattr(func, "_schema", None), torch._C._dispatch_has_kernel_for_dispatch_key
    if schema is None or not hasattr(func, "_op_dk") or not hasattr(torch._C, "_RestorePythonTLSSnapshot"):
        return False
    try:
        key = torch._C._dispatch_key_for_device(device)
        return has_kernel(func.name(), COMPOSITE) and not has_kernel(func.name(), key)
    except (AttributeError, RuntimeError):
        return False


def _body_of(func):
    """Return a function that runs an operator that calls the program's functions, so that their operators are seen."""
    name = getattr(func, "__name__", "")
    if name == "cond":
        return lambda pred, yes, no, operands: (yes if pred else no)(*operands)
    kernels = getattr(func, "py_kernels", {}) if name == "while_loop" else {}
    return kernels.get(torch._C.DispatchKey.CompositeExplicitAutograd)


def is_simple(value):
    if value is None or isinstance(value, (bool, int, float, str)):
        return True
    return isinstance(value, (list, tuple)) and len(value) <= MOST_IN_LIST and all(map(is_simple, value))


def is_no_step():
    """Return whether torch itself runs: a trace, or a backward pass that recomputes activations."""
    return torch._C._get_tracing_state() is not None or torch._C._current_graph_task_id() != -1


def transparent(module):
    """Return the module that ``torch.compile`` wrapped into this one, or None."""
    return module._modules.get("_orig_mod") if type(module).__name__ == "OptimizedModule" else None
