"""Torch's own operators: the mode that sees them below autograd, and what their schemas say."""

import torch
from sgsdump_torch_tensors import plain, tensors_in
from sgsdump_torch_unwritten import GIVING, RESIZING, SCRATCH
from torch.utils._python_dispatch import TorchDispatchMode

# They compute nothing: torch makes them in passing.
SKIPPED = {
    *("aten.detach", "aten.alias", "aten.lift", "aten.lift_fresh", "aten.is_same_size", "aten.sym_size"),
    *GIVING,
}
SIMPLE = frozenset((bool, int, float, str, type(None)))
MOST_IN_LIST = 100
COMPOSITE = torch._C.DispatchKey.CompositeImplicitAutograd


class Dispatch(TorchDispatchMode):
    """Hands every operator to ``dispatched(round, func, types, args, kwargs)``."""

    supports_higher_order_operators = True

    @classmethod
    def _should_skip_dynamo(cls):
        return False  # it would import Dynamo, which takes seconds

    def __init__(self, dispatched, round):
        super().__init__()
        self.dispatched = dispatched
        self.round = round

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        return self.dispatched(self.round, func, types, args, kwargs or {})


class Facts:
    """What an operator's schema says, looked up once."""

    def __init__(self, func):
        schema = getattr(func, "_schema", None)
        self._func = func
        self._decomposed: dict = {}
        self.body = None
        if schema is None:  # torch.cond and its like
            self.kind, self.skipped = "higher_order.{}".format(getattr(func, "__name__", "operator")), False
            self.arguments, self.out, self.writes = [], set(), []
            self.gives = self.resizes = False
            self.scratch = ()
            self.body = _body_of(func)
            return
        namespace, _, name = schema.name.partition("::")
        self.kind = "{}.{}".format(namespace, name)
        self.skipped = self.kind in SKIPPED or namespace == "prim"
        self.gives, self.resizes = self.kind in GIVING, self.kind in RESIZING
        self.scratch = SCRATCH.get(self.kind, ())
        self.arguments = [argument.name for argument in schema.arguments]
        self.out = {argument.name for argument in schema.arguments if getattr(argument, "is_out", False)}
        self.writes = [
            (place, argument.name)
            for place, argument in enumerate(schema.arguments)
            if argument.alias_info is not None and argument.alias_info.is_write
        ]

    def is_made_of_others(self, inputs):
        """Whether torch has nothing but other operators for it, on the device of its inputs. Autograd makes these of it
        before the hook sees it; where there is none (``torch.inference_mode``) nobody has."""
        device = inputs[0].device.type if inputs else "cpu"
        known = self._decomposed.get(device)
        if known is None:
            known = self._decomposed[device] = _is_made_of_others(self._func, device)
        return known

    def by_others(self, args, kwargs):
        """What the operator gives, of which the others are seen; autocast is for them what it was for the operator."""
        with torch._C._RestorePythonTLSSnapshot():
            return self._func._op_dk(COMPOSITE, *args, **kwargs)

    def inputs(self, args, kwargs):
        """The tensors that it reads."""
        if self.out:
            kwargs = {name: value for name, value in kwargs.items() if name not in self.out}
        return tensors_in((args, kwargs) if kwargs else args)

    def written(self, args, kwargs):
        if not self.writes:
            return ()
        values = [args[place] if place < len(args) else kwargs.get(name) for place, name in self.writes]
        return [tensor for tensor in tensors_in(values) if plain(tensor)]

    def param(self, args, kwargs):
        """The arguments that are no tensors."""
        given = {name: value for name, value in zip(self.arguments, args) if type(value) in SIMPLE or is_simple(value)}
        if kwargs:
            given.update((name, value) for name, value in kwargs.items() if is_simple(value))
        return given


def _is_made_of_others(func, device):
    schema, has_kernel = getattr(func, "_schema", None), torch._C._dispatch_has_kernel_for_dispatch_key
    if schema is None or not hasattr(func, "_op_dk") or not hasattr(torch._C, "_RestorePythonTLSSnapshot"):
        return False
    try:
        own = torch._C._dispatch_key_for_device(device)
        return has_kernel(func.name(), COMPOSITE) and not has_kernel(func.name(), own)
    except (AttributeError, RuntimeError):
        return False


def _body_of(func):
    """What an operator that calls the program's own functions does, so that their operators are seen too."""
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
    """Whether what runs now is torch's own: a trace, or a backward pass that computes activations again."""
    return torch._C._get_tracing_state() is not None or torch._C._current_graph_task_id() != -1


def transparent(module):
    """The module that ``torch.compile`` made another one of; None for any other."""
    return module._modules.get("_orig_mod") if type(module).__name__ == "OptimizedModule" else None
