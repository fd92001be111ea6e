"""Hook of torch: marks where steps, modules and torch's own operators begin and end.

``Module.__call__`` is replaced by a function that marks the begin and end of a module. The outermost call of a thread
is a round, which is a step of the dump. In a dumped step, a dispatch mode surrounds the call and sees every operator
below autograd. Otherwise the program runs as without the hook: the replacement only calls the original, also while
torch compiles or exports.

A compiled program keeps its compiled code (``sgsdump_torch_compiled``). With ``--inside eager`` its operators run one
by one in dumped steps, and compiled in all others. Runs that torch starts itself (tracing, checking a trace,
recomputing activations in a backward pass) are not steps.
"""

import atexit
import contextlib
import functools
import itertools
import os
import random
import sys
import threading
import time
import weakref
from typing import Any

import torch
from sgsdump_torch_between import Between
from sgsdump_torch_captured import CapturedGraphs
from sgsdump_torch_collective import finish
from sgsdump_torch_compiled import Graphs, unseen
from sgsdump_torch_devices import wait_for_copy
from sgsdump_torch_environment import Environment
from sgsdump_torch_feed import Unfit, feed_of
from sgsdump_torch_network import have_gradient
from sgsdump_torch_ordinary import ordinary_of
from sgsdump_torch_replaced import Hook
from sgsdump_torch_round import Dispatch, Facts, Round, is_no_step, transparent
from sgsdump_torch_source import keep_code
from sgsdump_torch_taking import Running, Taking
from sgsdump_torch_tensors import plain, tensors_in

COMPILED = (
    "in dumped steps, a program with torch.compile runs operator by operator, without compilation; "
    "results may differ from those of the compiled program in the last digits"
)
NO_GRAPH = (
    "torch.compile produced no graph of {}: nothing inside it is dumped. Use --inside eager to dump its operators "
    "without compilation"
)
TRAINS = (
    "the program trains: backward passes and optimiser steps are not dumped, only the computations of its modules; "
    "each step shows the weights of that moment"
)
# Modules that torch runs once, to quantise a network.
OBSERVERS = ("torch.ao.quantization.observer", "torch.ao.quantization.fake_quantize")
# torch.jit's functions that run modules; torch.onnx.export uses the last one.
TRACING = ("trace", "trace_module", "_get_trace_graph")
REGISTER = "_register_device_module"
LOSS = torch.nn.modules.loss._Loss
# Maximum number of waiting lines of operators that are not dumped.
MOST_WAITING = 200
# Marks an operator that consists of others, which are dumped instead.
OF_OTHERS = object()


def install(torch_module, session):
    """Install the hooks in a process, once, right after the program's own import of torch.

    Return a function that removes the hooks.
    """
    steps = Steps(session)
    if session.control.get("seed") is not None:
        start_from(session.control["seed"])
    hooks = [
        Hook(torch.nn.Module, "__call__", steps.calling),
        Hook(torch, "compile", steps.compiling),
        *(Hook(torch.jit, name, steps.aside) for name in TRACING if hasattr(torch.jit, name)),
        Hook(torch.autograd, "backward", steps.training),
        Hook(torch.UntypedStorage, "resize_", steps.resizing),
        *([Hook(torch, REGISTER, steps.registering)] if hasattr(torch, REGISTER) else []),
    ]
    steps.captured.watch()
    keep_code(session if session.control.get("with_source") else None)
    atexit.register(steps.between.end)
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=steps.after_fork)

    def take_off():
        for hook in hooks:
            hook.take_off()
        steps.graphs.take_off()
        steps.captured.take_off()
        keep_code(None)
        steps.between.end()
        atexit.unregister(steps.between.end)

    return take_off


def start_from(seed):
    """Seed every random generator, and enable torch's deterministic algorithms."""
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
    """State of a thread.

    ``round`` is the round that runs; ``inside`` is the depth of calls that must not be seen; ``number`` counts threads
    with a dumped round.
    """

    round = None
    inside = 0
    number: Any = None


class Steps:
    """State of the hook: wrappers of the program's calls, and the rounds that they begin."""

    def __init__(self, session):
        self.session = session
        self.taking = Taking(session)
        self.thread = Thread()
        self.numbers = itertools.count()
        self.of_models: dict = {}
        self.layout = None  # layout of the network in the last dumped step
        available = hasattr(torch, "distributed") and torch.distributed.is_available()
        self.distributed = torch.distributed if available else None
        self.facts = {}
        self.ordinary: dict = {}  # facts of operators for the compiled kernel, by the id of each
        self.known_operators: list = []  # tables of known operators; each running round owns one
        self.threads = itertools.count()
        self.environment = Environment()
        self.feed = feed_of(session)
        self.graphs = Graphs(self)
        self.between = Between(self)
        self.captured = CapturedGraphs(self)
        self.compiles = False
        self.last_root = None  # weak reference to the network of the last dumped step
        self.first = None  # first dumped step in which only layers are dumped

    def after_fork(self):
        if self.thread.round is not None:
            self.thread.round.ordinary = None  # it writes to the files of the parent process
        self.taking.memories.after_fork()
        self.numbers = itertools.count()

    # Wrappers of the program's calls

    def calling(self, original):
        """Wrap ``Module.__call__``."""
        steps, thread, compiling = self, self.thread, torch.compiler.is_compiling

        @functools.wraps(original)
        def __call__(self, *args, **kwargs):
            if compiling():
                return original(self, *args, **kwargs)
            round = thread.round
            if round is not None:
                if round.compiled or round.quiet:
                    return original(self, *args, **kwargs)
                return steps.inner(round, original, self, args, kwargs)
            if thread.inside or is_no_step() or type(self).__module__ in OBSERVERS or isinstance(self, LOSS):
                return original(self, *args, **kwargs)
            return steps.outermost(original, self, type(self).__name__, (self, *args), kwargs)

        return __call__

    def compiling(self, original):
        """Wrap ``torch.compile``: a function that it compiled is called like a module."""
        steps, thread, compiling = self, self.thread, torch.compiler.is_compiling

        @functools.wraps(original)
        def compile(*args, **kwargs):
            # torch.cond and similar functions call torch.compile themselves.
            own = str(getattr(args[0] if args else None, "__module__", "")).startswith("torch._higher_order_ops")
            if not own:
                steps.compiles = True
            compiled = original(*args, **kwargs)
            if not (args and args[0] is not None) and kwargs.get("model") is None:
                return compiled  # used as a decorator, which calls torch.compile again
            if isinstance(compiled, (torch.nn.Module, type)) or not callable(compiled):
                return compiled

            @functools.wraps(compiled)
            def called(*args, **kwargs):
                if compiling() or thread.inside or is_no_step():
                    return compiled(*args, **kwargs)
                name = getattr(compiled, "__name__", "function")
                if thread.round is None:
                    return steps.outermost(compiled, None, name, args, kwargs)
                if not own and steps.keeps_compiled():
                    return steps.compiled(thread.round, name, compiled, args, kwargs)
                with steps.operator_by_operator(True):
                    return compiled(*args, **kwargs)

            return called

        return compile

    def aside(self, original):
        """Wrap a call in which torch runs modules for its own purposes."""
        thread = self.thread

        @functools.wraps(original)
        def called(*args, **kwargs):
            self.between.end()
            thread.inside += 1
            try:
                return original(*args, **kwargs)
            finally:
                thread.inside -= 1

        return called

    def training(self, original):
        """Wrap ``torch.autograd.backward``, which ``Tensor.backward`` calls."""

        @functools.wraps(original)
        def backward(*args, **kwargs):
            result = original(*args, **kwargs)
            self.tell_training()
            return result

        return backward

    def resizing(self, original):
        """Wrap ``UntypedStorage.resize_``, by which a program frees and restores the memory of weights."""
        thread, taking = self.thread, self.taking

        @functools.wraps(original)
        def resize_(storage, *args, **kwargs):
            round = thread.round
            if round is None or round.quiet or round.compiled:
                return original(storage, *args, **kwargs)
            before = storage.nbytes()
            result = original(storage, *args, **kwargs)
            taking.guard(round, taking.storage_grown, storage, before)
            return result

        return resize_

    def registering(self, original):
        """Wrap the function by which a device that torch does not know, such as an NPU, gets its module."""

        @functools.wraps(original)
        def register(*args, **kwargs):
            original(*args, **kwargs)
            self.captured.watch()

        return register

    def outermost(self, original, module, name, args, kwargs):
        """Run a step, dumped or not."""
        self.between.end()
        thread = self.thread
        self.taking.devices.look()
        if self.taking.devices.are_capturing():
            result = self.aside(original)(*args, **kwargs)
            self.captured.note(name, (args if module is None else args[1:], kwargs), result)
            return result
        step = next(self.numbers)
        root = transparent(module) or module
        model = name if module is None else type(root).__name__
        of_model = next(self.of_models.setdefault(model, itertools.count()))
        self.session.begins(step)
        if self.distributed is not None and self.distributed.is_initialized():
            self.session.of_rank(self.distributed.get_rank())
        if self.feed is not None and not self.feed.module:
            args, kwargs = self.fed_round(step, module, args, kwargs)
        if not self.session.wants_step(step) or not self.is_asked_for(root, model):
            return self.aside(original)(*args, **kwargs)
        try:
            with torch._C.DisableTorchFunction():
                round = Round((step, of_model), root, model, self.operators_for_a_round(), self.layout)
                self.layout = round.network.layout
        except Exception as error:
            self.session.trouble(f"step {step} is not dumped: {type(error).__name__}: {error}")
            return self.aside(original)(*args, **kwargs)
        thread.round = round
        taking = self.taking
        inputs = args if module is None else args[1:]
        if thread.number is None:
            thread.number = next(self.threads)
        taking.guard(round, taking.step_begins, (inputs, kwargs), thread.number)
        taking.guard(round, self.say_between)
        taking.guard(round, self.say_environment)
        round.ordinary = taking.guard(round, ordinary_of, taking, self.ordinary)
        taking.guard(round, self.look_for_training)
        keeps = self.keeps_compiled()
        result, ended = None, False
        try:
            with self.operator_by_operator(self.compiles and not keeps), Dispatch(self.dispatched, round):
                if keeps and (module is None or is_compiled(module)):
                    result = self.compiled(round, round.model, original, args, kwargs)
                else:
                    result = original(*args, **kwargs)
                ended = True
                return result
        finally:
            thread.round = None
            taking.guard(round, taking.step_ends, result, ended)
            taking.memories.tidy()
            self.known_operators.append(round.operators)
            self.between.begin(step)

    def operators_for_a_round(self):
        """Return a table of operators that no other thread's round uses: operators get numbers per round."""
        try:
            return self.known_operators.pop()
        except IndexError:
            return {}

    def is_asked_for(self, root, model):
        """Return whether a network is the selected one or contains the selected module."""
        module = self.session.control["module"]
        if not module or module == model or not isinstance(root, torch.nn.Module):
            return not module or module == model
        try:
            root.get_submodule(module)
        except AttributeError:
            return False
        return True

    def fed_round(self, step, module, args, kwargs):
        """Return the arguments of an outermost call, the module first, with the reference's tensors."""
        before = () if module is None else args[:1]
        if self.session.wants_step(step) or self.feed.knows(step):
            args, kwargs = self.fed(step, "", args[len(before) :], kwargs)
            return (*before, *args), kwargs
        return args, kwargs

    def fed_module(self, round, module, args, kwargs):
        """Return the arguments of an inner module, with the reference's tensors if it is the fed one."""
        path = round.network.paths.get(id(module))
        if path != self.feed.module:
            return args, kwargs
        again = round.names.get(path, 0)
        return self.fed(round.step, f"{path}_{again}" if again else path, args, kwargs)

    def fed(self, step, name, args, kwargs):
        """Return the arguments with the reference's tensors. If they do not match, stop the dump."""
        if self.session.stopped:
            return args, kwargs
        try:
            with torch._C.DisableTorchFunction(), torch._C._DisableTorchDispatch():
                return self.feed.calls(step, name, args, kwargs)
        except (Unfit, OSError, RuntimeError) as error:
            self.session.line(event="unfit", text=str(error))
            self.session.stop(f"the reference does not match the program: {error}")
            return args, kwargs

    def keeps_compiled(self):
        """Return whether dumped steps run the compiled code."""
        return self.graphs.installed and self.session.control.get("inside") != "eager"

    def compiled(self, round, name, original, args, kwargs):
        """Run a compiled function or module in a dumped step."""
        before = round.graphs
        with unseen(round):
            result = original(*args, **kwargs)
        if round.graphs == before:
            self.session.trouble(NO_GRAPH.format(name))
        return result

    def say_between(self, round):
        line = self.between.line(round.step)
        if line:
            self.session.say([line], round.step)

    def say_environment(self, round):
        fed, choice = self.feed, self.session.control["module"]
        selection = {"module": choice} if choice in round.network.paths.values() and choice else {}
        if fed is not None:
            selection["fed inputs"] = "of {}".format(fed.module or "each round")
        self.session.say([self.environment.line(round, selection)], round.step)

    def look_for_training(self, round):
        """Report training if the network's weights have gradients, which come from a backward pass."""
        if round.network.is_graded():
            self.session.trouble(TRAINS)
        self.last_root = weakref.ref(round.root) if isinstance(round.root, torch.nn.Module) else None

    def tell_training(self):
        """Report training if a backward pass reached the network of the last dumped step."""
        root = self.last_root and self.last_root()
        if root is None:
            return
        with torch._C.DisableTorchFunction(), torch._C._DisableTorchDispatch():
            if have_gradient(root.parameters()):
                self.session.trouble(TRAINS)

    @contextlib.contextmanager
    def operator_by_operator(self, compiles):
        """Let Dynamo run code as written.

        Otherwise Dynamo would never recompile functions that it saw under a dispatch mode, or would compile the hook.
        """
        if not compiles or not hasattr(torch.compiler, "set_stance"):
            yield
            return
        if self.compiles:
            self.session.trouble(COMPILED)
        with torch.compiler.set_stance("force_eager"):
            yield

    def inner(self, round, original, module, args, kwargs):
        """Run a module that is called within a dumped step."""
        if type(module).__name__ == "GuardsFn":
            return original(module, *args, **kwargs)
        called, keeps = module, is_compiled(module) and self.keeps_compiled()
        if transparent(module) and keeps:
            module = transparent(module)
            if module is round.root:
                return self.compiled(round, type(module).__name__, original, (called, *args), kwargs)
        if transparent(module) or module is round.root or self.taking.devices.are_capturing():
            return original(called, *args, **kwargs)
        taking, ordinary = self.taking, round.ordinary
        if self.feed is not None and self.feed.module:
            args, kwargs = self.fed_module(round, module, args, kwargs)
        operator = None if ordinary is None else ordinary.enter(module, args, kwargs)
        running = operator or taking.guard(round, self.begin_module, module, args, kwargs)
        if running is None:
            return original(called, *args, **kwargs)
        result, ended, begun = None, False, time.perf_counter_ns()
        try:
            if keeps:
                result = self.compiled(round, type(module).__name__, original, (called, *args), kwargs)
            elif self.is_dumped_inside():
                result = original(module, *args, **kwargs)
            elif self.is_seen_inside(round):
                with self.names_alone(round):
                    result = original(module, *args, **kwargs)
            else:
                with unseen(round):
                    result = original(module, *args, **kwargs)
            ended = True
            return result
        finally:
            taken = time.perf_counter_ns() - begun
            round.end_module()
            if ended and not (operator and round.ordinary is ordinary and ordinary.leave(operator, result)):
                running = running if operator is None else Running(operator, (), True)
                taking.guard(round, taking.after, running, result, (None, None), taken, ())

    def is_dumped_inside(self):
        """Return whether operations inside modules may be dumped."""
        control = self.session.control
        return bool(control["children"] or control["ids"])

    def is_seen_inside(self, round):
        """Return whether operators inside modules are recorded if only layers are dumped.

        The first dumped step records which operators exist; later steps skip them.
        """
        if self.first is None:
            self.first = round.step
        return self.first == round.step

    @contextlib.contextmanager
    def names_alone(self, round):
        """Record names inside without a dump: lines may wait, and the compiled kernel is off."""
        if round.are_names_alone:
            yield
            return
        self.taking.guard(round, self.taking.say)
        ordinary, round.ordinary, round.are_names_alone = round.ordinary, None, True
        try:
            yield
        finally:
            round.ordinary, round.are_names_alone = ordinary, False

    def begin_module(self, round, module, args, kwargs):
        inputs = tensors_in((args, kwargs) if kwargs else args)
        operator = round.begin_module(module)
        try:
            return self.taking.before(round, operator, inputs)
        except Exception:
            round.end_module()
            raise

    def dispatched(self, round, func, types, args, kwargs):
        """Run one of torch's operators."""
        ordinary = round.ordinary
        if ordinary is not None and ordinary.begin(func, types, args, kwargs):
            result = func(*args, **kwargs)
            if round.ordinary is not ordinary or not ordinary.end(result):
                self.taking.guard(round, self.end_ordinary, ordinary, func, args, kwargs, result)
            return result
        facts = self.facts.get(func) or self.known(func)
        args = facts.with_tensors(args)
        taking = self.taking
        if round.quiet or taking.devices.are_capturing():
            return func(*args, **kwargs)
        if types and not taking.guard(round, _are_plain, types, args, kwargs):
            if any(kind.__name__ == "FakeTensor" for kind in types):
                return func(*args, **kwargs)  # no values; FakeTensor's own mode below this one runs it
            return NotImplemented  # a subclass that wraps tensors runs operators on them itself
        if facts.skipped:
            result = func(*args, **kwargs)
            if facts.gives:
                taking.guard(round, taking.allocated, result)
            return result
        running = taking.guard(round, self.begin_operator, facts, args, kwargs)
        if running is None:
            return func(*args, **kwargs)
        if running is OF_OTHERS:
            with Dispatch(self.dispatched, round):
                return facts.by_others(args, kwargs)
        begun = time.perf_counter_ns()
        if facts.body is None:
            result = func(*args, **kwargs)
        else:
            with Dispatch(self.dispatched, round):
                result = facts.body(*args, **kwargs)
        taken = time.perf_counter_ns() - begun
        taking.guard(round, self.end_operator, running, args, kwargs, result, taken)
        return result

    def known(self, func):
        """Return the facts of an operator at its first use."""
        facts = self.facts.setdefault(func, Facts(func))
        self.ordinary[id(func)] = facts.ordinary()
        return facts

    def begin_operator(self, round, facts, args, kwargs):
        """Return ``Running``; ``OF_OTHERS`` if other operators run instead; None if it is not the program's."""
        tensors, key = facts.read(args, kwargs)
        met = round.lookup.met
        inputs = []
        for tensor in tensors:
            entry = met.get(id(tensor))
            if (entry is not None and entry[0]() is tensor) or plain(tensor):
                inputs.append(tensor)
        if len(inputs) == len(tensors):
            if facts.is_made_of_others(inputs):
                return OF_OTHERS
        else:
            key = None
        if round.is_of_optimiser(facts.kind):
            return None
        running = self.taking.before(round, round.begin_operator(facts.kind, inputs), inputs)
        running.facts, running.key = facts, key
        running.marked = self.taking.memories.unwritten.marked(facts.kind, args, kwargs)
        if facts.resizes:
            running.size = args[0].untyped_storage().nbytes()
        if not round.are_names_alone or len(round.lines) >= MOST_WAITING:
            self.taking.say(round)
        return running

    def end_operator(self, round, running, args, kwargs, result, taken):
        taking, facts = self.taking, running.facts
        written = facts.written(args, kwargs)
        brought, is_late = finish(facts.kind, args, result) if facts.brings else ((), False)
        if brought:
            written = brought
        output = written if result is None or brought else result
        if facts.is_late(args, kwargs):
            wait_for_copy(tensors_in((args, kwargs)), tensors_in(output))
        unwritten = taking.memories.unwritten
        if running.marked:
            unwritten.unmark(running.marked)
        elif is_late:
            taking.allocated(round, brought)
        elif facts.resizes:
            taking.grown(round, args[0], running.size)
        elif unwritten:
            unwritten.ran(facts.kind, facts.func, args, kwargs, result, written)
        for slot in facts.scratch:
            taking.allocated(round, result[slot])
        taking.after(round, running, output, (facts.called(running.key, args, kwargs), None), taken, written)

    def end_ordinary(self, round, ordinary, func, args, kwargs, result):
        """Dump the unusual outputs of an operator whose inputs the compiled kernel has written."""
        operator, key = ordinary.running()
        running = Running(operator, (), True)
        running.facts, running.key = self.facts[func], key
        self.end_operator(round, running, args, kwargs, result, None)


def is_compiled(module):
    """Return whether ``torch.compile`` made a module from another one, or compiled it in place."""
    return transparent(module) is not None or getattr(module, "_compiled_call_impl", None) is not None


def _are_plain(round, types, args, kwargs):
    """Return whether tensors of subclasses with own operator handling still have memory of their own."""
    subclasses = {kind for kind in types if kind.__torch_dispatch__ is not torch.Tensor.__torch_dispatch__}
    return not subclasses or all(plain(tensor) for tensor in tensors_in((args, kwargs)) if type(tensor) in subclasses)
