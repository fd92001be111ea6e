"""The hook of torch: what modules and torch's own operators read and give in a forward of the outermost module.

``Module.__call__`` is replaced by one that tells where a module begins and ends. The outermost call of a thread is a
round, a step of the dump; in a step that is dumped a ``TorchDispatchMode`` stands around it, which sees every operator
below autograd. Everywhere else the program runs as it would without the hook: the replacement hands on to what it
replaced, and while torch compiles or exports it is nothing but that.

A compiled program runs its operators one by one in a step that is dumped, and compiled in all others. Runs that torch
makes by itself (tracing, checking a trace, recomputing activations in a backward pass) are no steps.
"""

import contextlib
import functools
import itertools
import os
import random
import sys
import threading
import time

import torch
from sgsdump_torch_round import Round
from sgsdump_torch_values import (
    Values,
    checksum,
    dtype_word,
    payload,
    plain,
    same_bytes,
    statistics,
    synchronise,
    tensors_in,
    version,
)
from torch.utils._python_dispatch import TorchDispatchMode

# They compute nothing: torch makes them in passing.
SKIPPED = {
    *("aten.detach", "aten.alias", "aten.lift", "aten.lift_fresh", "aten.is_same_size", "aten.sym_size"),
    *("aten.empty", "aten.empty_like", "aten.empty_strided", "aten.new_empty", "aten.new_empty_strided"),
}
COMPILED = (
    "a program compiled by torch.compile runs operator by operator, as if not compiled, in the steps that are dumped; "
    "results may differ from those of the compiled program in their last digits"
)


def install(torch_module, session):
    """Hook torch for a process; called once, right after the program's own import of it."""
    session.headers_later = True
    hook = Hook(session)
    if session.control.get("seed") is not None:
        start_from(session.control["seed"])
    torch.nn.Module.__call__ = hook.calling(torch.nn.Module.__call__)
    torch.compile = hook.compiling(torch.compile)
    for name in ("trace", "trace_module", "_get_trace_graph"):  # the last is torch.onnx.export's
        if hasattr(torch.jit, name):
            setattr(torch.jit, name, hook.aside(getattr(torch.jit, name)))
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=hook.after_fork)


def start_from(seed):
    """Every random generator from one number, and deterministic algorithms wherever torch has them."""
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    random.seed(seed)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(seed % 2**32)
    torch.manual_seed(seed)
    torch.use_deterministic_algorithms(True, warn_only=True)
    if hasattr(torch.backends, "cudnn"):
        torch.backends.cudnn.deterministic = True
        torch.backends.cudnn.benchmark = False


class Thread(threading.local):
    """``round`` is the one that runs on this thread; ``inside``: how deep it is in calls that are none to be seen."""

    round = None
    inside = 0


class Hook:
    def __init__(self, session):
        self.session = session
        self.values = Values()
        self.thread = Thread()
        self.steps = itertools.count()
        self.facts = {}
        self.compiles = False

    def after_fork(self):
        self.values.after_fork()
        self.steps = itertools.count()

    # what stands around the program's calls

    def calling(self, original):
        """``Module.__call__``."""
        hook, thread, compiling = self, self.thread, torch.compiler.is_compiling

        @functools.wraps(original)
        def __call__(self, *args, **kwargs):
            if compiling():
                return original(self, *args, **kwargs)
            round = thread.round
            if round is not None:
                return hook.inner(round, original, self, args, kwargs)
            if thread.inside or is_no_step():
                return original(self, *args, **kwargs)
            return hook.outermost(original, self, type(self).__name__, (self, *args), kwargs)

        return __call__

    def compiling(self, original):
        """``torch.compile``: a function that it compiled is called like a module."""
        hook, thread, compiling = self, self.thread, torch.compiler.is_compiling

        @functools.wraps(original)
        def compile(*args, **kwargs):
            hook.compiles = True
            compiled = original(*args, **kwargs)
            if not (args and args[0] is not None) and kwargs.get("model") is None:
                return compiled  # a decorator, which calls torch.compile again
            if isinstance(compiled, (torch.nn.Module, type)) or not callable(compiled):
                return compiled

            @functools.wraps(compiled)
            def called(*args, **kwargs):
                if compiling() or thread.round is not None or thread.inside or is_no_step():
                    return compiled(*args, **kwargs)
                return hook.outermost(compiled, None, getattr(compiled, "__name__", "function"), args, kwargs)

            return called

        return compile

    def aside(self, original):
        """A call in which torch runs modules for purposes of its own."""
        thread = self.thread

        @functools.wraps(original)
        def called(*args, **kwargs):
            thread.inside += 1
            try:
                return original(*args, **kwargs)
            finally:
                thread.inside -= 1

        return called

    def outermost(self, original, module, name, args, kwargs):
        """A step, dumped or not."""
        thread = self.thread
        step = next(self.steps)
        if not self.session.wants_step(step):
            thread.inside += 1
            try:
                return original(*args, **kwargs)
            finally:
                thread.inside -= 1
        root = transparent(module) or module
        round = Round(step, root, type(root).__name__ if module is not None else name)
        thread.round = round
        given = args if module is None else args[1:]
        self.guard(round, self.event, round, inputs=(given, kwargs))
        result, ended = None, False
        try:
            with self.operator_by_operator(), Dispatch(self, round):
                result = original(*args, **kwargs)
                ended = True
                return result
        finally:
            thread.round = None
            self.guard(round, self.event, round, outputs=result, ended=ended)
            self.values.tidy()

    @contextlib.contextmanager
    def operator_by_operator(self):
        """Let Dynamo, where the program uses it, leave everything as it was written; else it would never compile again
        what it saw under a dispatch mode."""
        if not self.compiles or not hasattr(torch.compiler, "set_stance"):
            yield
            return
        self.session.trouble(COMPILED)
        with torch.compiler.set_stance("force_eager"):
            yield

    def inner(self, round, original, module, args, kwargs):
        """A module that is called inside a step that is dumped."""
        if round.quiet or module is round.root or transparent(module) or type(module).__name__ == "GuardsFn":
            return original(module, *args, **kwargs)
        operator = round.begin_module(module)
        given = list(tensors_in((args, kwargs)))
        wanted = self.guard(round, self.before, round, operator, given)
        result, ended, begun = None, False, time.perf_counter_ns()
        try:
            result = original(module, *args, **kwargs)
            ended = True
            return result
        finally:
            taken = time.perf_counter_ns() - begun
            round.end_module()
            if ended:
                self.guard(round, self.after, round, wanted, operator, given, result, None, taken)

    def dispatched(self, round, func, args, kwargs):
        """One of torch's operators."""
        facts = self.facts.get(func) or self.facts.setdefault(func, Facts(func))
        if round.quiet or facts.skipped:
            return func(*args, **kwargs)
        inputs = [tensor for tensor in tensors_in((args, facts.without_out(kwargs))) if plain(tensor)]
        operator = round.begin_operator(facts.kind, inputs)
        wanted = self.guard(round, self.before, round, operator, inputs)
        begun = time.perf_counter_ns()
        result = func(*args, **kwargs)
        taken = time.perf_counter_ns() - begun
        written = facts.written(args, kwargs)
        param = facts.param(args, kwargs)
        output = written if result is None else result
        self.guard(round, self.after, round, wanted, operator, inputs, output, param, taken, written)
        return result

    # what is told to the session

    def guard(self, round, function, *args, **kwargs):
        """Call something of the hook: what it does is not seen by itself, and no mistake of it reaches the program."""
        round.quiet = True
        try:
            with torch._C.DisableTorchFunction(), torch._C._DisableTorchDispatch(), self.session.together():
                return function(*args, **kwargs)
        except Exception as error:
            self.session.trouble("torch, step {}: {}: {}".format(round.step, type(error).__name__, error))
            return None
        finally:
            round.quiet = False

    def before(self, round, operator, inputs):
        """Before an operator runs; returns whether it is dumped."""
        wanted = self.session.wants(operator.step, operator.name, operator.op_type, operator.ids, operator.model)
        if wanted:
            self.take(round, operator, "in", "before", inputs)
        return wanted

    def after(self, round, wanted, operator, inputs, outputs, param, nanoseconds, written=()):
        for tensor in written:
            self.values.written(tensor)
        if wanted:
            self.take(round, operator, "in", "after", inputs)
            self.take(round, operator, "out", "after", tensors_in(outputs))
        timing = self.session.control.get("timing")
        self.session.operator(operator, param=param, nanoseconds=nanoseconds if timing else None)

    def take(self, round, operator, side, moment, tensors):
        if moment in self.session.moments(side):
            content = self.session.content
            for slot, tensor in enumerate(tensors):
                self.tensor(round, content, operator, side, slot, moment, tensor)

    def tensor(self, round, content, operator, side, slot, moment, tensor):
        shape, dtype = tuple(tensor.shape), dtype_word(tensor)
        if not plain(tensor):
            self.session.tensor(operator, side, slot, moment, lambda: None, dtype, shape)
            return
        entry = self.values.entry(tensor)
        data = alive = figures = None
        if content == "stats":
            figures = self.statistics(round, entry, tensor)
        elif content == "tensor":
            synchronise(tensor)
            data, alive = payload(tensor)
            if entry.path is not None and not same_bytes(os.path.join(self.session.root, entry.path), data):
                self.values.renew(entry)
        path = self.session.tensor(
            *(operator, side, slot, moment, data, dtype, shape),
            stats=figures,
            device=None if tensor.device.type == "cpu" else tensor.device.index,
            key=entry.number,
            value=entry.number,
            weight=round.weight(tensor),
        )
        if entry.path is None and data is not None:
            entry.path = path
        del alive

    def statistics(self, round, entry, tensor):
        known, when = entry.statistics, (round, version(tensor))
        if known is not None and known[0] == when:
            return known[2]
        synchronise(tensor)
        check = checksum(tensor)
        if known is not None and known[1] is not None and known[1] == check:
            figures = known[2]
        else:
            figures = statistics(tensor)
            if known is not None:
                self.values.renew(entry)
        entry.statistics = (when, check, figures)
        return figures

    def event(self, round, inputs=None, outputs=None, ended=None):
        """The line of a step: which numbers go in when it begins, and which come out when it ends."""
        values = inputs if ended is None else outputs
        numbers = [self.values.entry(tensor).number for tensor in tensors_in(values) if plain(tensor)]
        what = {"inputs": numbers} if ended is None else {"outputs": numbers, "ended": ended}
        self.session.line(event="step", step=round.step, model=round.model, **what)


class Facts:
    """What an operator's schema says, looked up once."""

    def __init__(self, func):
        schema = getattr(func, "_schema", None)
        if schema is None:  # torch.cond and its like
            self.kind, self.skipped = "higher_order.{}".format(getattr(func, "__name__", "operator")), False
            self.arguments, self.out, self.writes = [], set(), []
            return
        namespace, _, name = schema.name.partition("::")
        self.kind = "{}.{}".format(namespace, name)
        self.skipped = self.kind in SKIPPED or namespace == "prim"
        self.arguments = [argument.name for argument in schema.arguments]
        self.out = {argument.name for argument in schema.arguments if getattr(argument, "is_out", False)}
        self.writes = [
            (place, argument.name)
            for place, argument in enumerate(schema.arguments)
            if argument.alias_info is not None and argument.alias_info.is_write
        ]

    def without_out(self, kwargs):
        return {name: value for name, value in kwargs.items() if name not in self.out} if self.out else kwargs

    def written(self, args, kwargs):
        values = [args[place] if place < len(args) else kwargs.get(name) for place, name in self.writes]
        return [tensor for tensor in tensors_in(values) if plain(tensor)]

    def param(self, args, kwargs):
        """The arguments that are no tensors."""
        given = {**dict(zip(self.arguments, args)), **kwargs}
        return {name: value for name, value in given.items() if is_simple(value)}


def is_simple(value):
    if isinstance(value, (list, tuple)):
        return len(value) <= 100 and all(is_simple(one) for one in value)
    return value is None or isinstance(value, (bool, int, float, str))


class Dispatch(TorchDispatchMode):
    supports_higher_order_operators = True

    @classmethod
    def _should_skip_dynamo(cls):
        return False  # it would import Dynamo, which takes seconds

    def __init__(self, hook, round):
        super().__init__()
        self.hook = hook
        self.round = round

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        return self.hook.dispatched(self.round, func, args, kwargs or {})


def is_no_step():
    """Whether what runs now is torch's own: a trace, or a backward pass that computes activations again."""
    return torch._C._get_tracing_state() is not None or torch._C._current_graph_task_id() != -1


def transparent(module):
    """The module that ``torch.compile`` made another one of; None for any other."""
    return module._modules.get("_orig_mod") if type(module).__name__ == "OptimizedModule" else None
