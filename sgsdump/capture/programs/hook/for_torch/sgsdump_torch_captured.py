"""Captured graphs, such as CUDA graphs (``CapturedGraphs``): their inputs and outputs are dumped around each replay.

While a stream is captured, nothing runs: values do not exist, and a wait would break the capture. The hook then only
notes which tensors the outermost modules get and return. A replay runs the captured kernels without torch, so its
operators cannot be dumped. A replay outside a round is a round; inside a round it is an operator. The operator is
``graph`` of type ``captured.graph``.
"""

import functools
import weakref

from sgsdump_torch_replaced import Hook
from sgsdump_torch_tensors import plain, tensors_in

KIND = "captured.graph"
CLASSES = ("CUDAGraph", "NPUGraph", "XPUGraph")
REPLAYS = (
    "the program replays a captured graph (CUDA graph): the inputs and outputs of its modules are dumped around each "
    "replay, not the operators inside. Run the program without graph capture to dump them"
)
NO_MODULE = "the program replays a captured graph that contains no call of an outermost module: nothing of it is dumped"


class Captured:
    """The tensors that modules got and returned while a graph was captured, and the name of the first module."""

    def __init__(self):
        self.name = ""
        self._inputs: list = []
        self._outputs: list = []

    def note(self, name, inputs, outputs):
        self.name = self.name or name
        made = {id(tensor) for tensor in self.tensors(self._outputs)}
        self._inputs += [weakref.ref(one) for one in tensors_in(inputs) if plain(one) and id(one) not in made]
        self._outputs += [weakref.ref(one) for one in tensors_in(outputs) if plain(one)]

    def inputs(self):
        return self.tensors(self._inputs)

    def outputs(self):
        return self.tensors(self._outputs)

    def tensors(self, references):
        """Return the tensors that still exist, each once."""
        found = (reference() for reference in references)
        return list({id(tensor): tensor for tensor in found if tensor is not None}.values())


class CapturedGraphs:
    """The graphs that the program captured; ``steps`` belongs to the hook (``sgsdump_hook_torch``)."""

    def __init__(self, steps):
        self._steps = steps
        self._graphs: weakref.WeakKeyDictionary = weakref.WeakKeyDictionary()
        self._current = None
        self._hooks: dict = {}

    def watch(self):
        """Wrap the classes of captured graphs of all device modules, each once."""
        for module in self._steps.taking.devices.modules():
            for name in CLASSES:
                owner = getattr(module, name, None)
                if owner in self._hooks or not hasattr(owner, "replay"):
                    continue
                around = {"capture_begin": self._begin, "capture_end": self._end, "replay": self._replay}
                self._hooks[owner] = [Hook(owner, method, wrap) for method, wrap in around.items()]

    def take_off(self):
        for hooks in self._hooks.values():
            for hook in hooks:
                hook.take_off()

    def note(self, name, inputs, outputs):
        if self._current is not None:
            self._current.note(name, inputs, outputs)

    def _begin(self, original):
        @functools.wraps(original)
        def capture_begin(graph, *args, **kwargs):
            self._steps.taking.devices.look()
            self._current = Captured()
            return original(graph, *args, **kwargs)

        return capture_begin

    def _end(self, original):
        @functools.wraps(original)
        def capture_end(graph, *args, **kwargs):
            current, self._current = self._current, None
            if current is not None:
                self._graphs[graph] = current
            return original(graph, *args, **kwargs)

        return capture_end

    def _replay(self, original):
        steps = self._steps

        @functools.wraps(original)
        def replay(graph, *args, **kwargs):
            captured, round = self._graphs.get(graph), steps.thread.round
            is_hidden = steps.thread.inside or (round is not None and (round.compiled or round.quiet))
            if captured is None or is_hidden:
                return original(graph, *args, **kwargs)
            if not captured.name:
                steps.session.trouble(NO_MODULE)
                return original(graph, *args, **kwargs)
            steps.session.trouble(REPLAYS)
            run = functools.partial(original, graph, *args, **kwargs)
            if round is not None:
                self._dumped(round, captured, run)
                return None
            steps.outermost(
                functools.partial(self._of_round, captured, run), None, captured.name, captured.inputs(), {}
            )
            return None

        return replay

    def _of_round(self, captured, run, *given):
        """Replay a graph as a round, on the inputs ``given``: the captured ones, or those of a reference."""
        for own, other in zip(captured.inputs(), given):
            if own is not other:
                own.copy_(other)
        round = self._steps.thread.round
        if round is None:  # a round that is not dumped
            run()
            return None
        return self._dumped(round, captured, run)

    def _dumped(self, round, captured, run):
        taking = self._steps.taking
        running = taking.guard(round, self._before, captured)
        run()
        outputs = captured.outputs()
        if running is not None:
            taking.guard(round, taking.after, running, outputs, (None, None), None, outputs)
        return outputs

    def _before(self, round, captured):
        return self._steps.taking.before(round, round.begin_graph("graph", KIND), captured.inputs())
