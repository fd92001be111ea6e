"""The function ``register_hook``: dump a torch model's modules token by token.

A token is one run of the model. Inputs are saved before a module runs, so that in-place writes do not change the dump.
Keyword arguments are dumped under their names. A module that runs several times in a token has the names ``root.a``,
``root.a@1`` …; a function ``root.a.relu``, ``root.a.relu.1`` …. Values other than tensors are ignored. Tensors without
values of their own (sparse, nested, meta, in torch.func) are skipped, with a note in the run's index. The hook does not
change the model's results.
"""

from __future__ import annotations

import math
import os
import sys
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from operator import itemgetter
from pathlib import Path
from typing import Any

from sgsdump.capture.msit.bin_data import torch_for
from sgsdump.capture.msit.dump_config import DumpConfig
from sgsdump.capture.msit.run_writer import ENDING, RunWriter, Taken, part_of
from sgsdump.capture.programs.one_pass import sums_of
from sgsdump.errors import ConfigError, hint
from sgsdump.files.atomic_write import make_folder

ROOT = "root"
_DEEPEST = 20
_MOST_IN_LIST = 64
_HOOK_TYPE = "dump_data"
_PROPERTIES = ("__get__", "__set__", "__delete__")


def register_hook(model: Any, config: DumpConfig, hook_type: str = _HOOK_TYPE) -> ModuleHook:
    """Dump the tensors that ``model`` computes from now on.

    Parameters
    ----------
    model : torch.nn.Module
        The outermost module.
    config : DumpConfig
        Selection and destination of the dump.
    hook_type : str, default "dump_data"
        msit's argument; only "dump_data" is supported.

    Returns
    -------
    ModuleHook
        The hook; its ``remove()`` ends the dump.

    Raises
    ------
    ConfigError
        If ``model`` is not a module or is scripted, ``config`` is not a DumpConfig, the hook type is unknown, or no
        module matches the layer name or the classes.
    OutputError
        If the folder cannot be created.
    MissingExtra
        If torch is not installed.

    Notes
    -----
    Files are written below ``{dump_path}/msit_dump_{time}/torch_tensors/{device}_{pid}/``. A write that fails ends the
    dump with a warning; the program runs on.

    Examples
    --------
    ::

        hook = register_hook(model, DumpConfig(dump_path="dumps"))
        model(x)
        hook.remove()
    """
    torch = torch_for("dump a torch model")
    if not isinstance(model, torch.nn.Module):
        raise ConfigError(f"register_hook takes a torch.nn.Module, not a {type(model).__name__}")
    if isinstance(model, torch.jit.ScriptModule):
        raise ConfigError(
            "hooks inside a scripted or traced module do not run; pass the original module, or dump "
            "the unmodified program with sgsdump exec"
        )
    if not isinstance(config, DumpConfig):
        raise ConfigError(f"register_hook takes a DumpConfig, not a {type(config).__name__}")
    if hook_type != _HOOK_TYPE:
        raise ConfigError(f"unknown hook type {str(hook_type)[:40]!r}; omit it, or use {_HOOK_TYPE!r}")
    return ModuleHook(torch, model, config)


class ModuleHook:
    """Hooks on a model; ``folder`` is this process's output folder, None if the model's device is not dumped."""

    def __init__(self, torch: Any, model: Any, config: DumpConfig):
        self._torch, self._model, self._config, self._control = torch, model, config, config.control
        self._names = dict(named_modules(torch, model))
        check_names(self._names, config)
        self._device = device_of(model)
        time = datetime.now().strftime("%Y%m%d_%H%M%S")
        self._root = Path(config.dump_path or ".").absolute() / f"msit_dump_{time}" / "torch_tensors"
        self._writers: dict[int, RunWriter] = {}
        self._token, self._dumping = -1, False
        self._running: list[tuple[str, str]] = []
        self._calls: Counter[str] = Counter()
        self._order: dict[str, int] = {}
        self._logits: tuple[str, str, Any] | None = None
        self._functions: Any = None
        self._handles: list[Any] = []
        if is_dumped(self._device, config.device_id):
            self._begin()

    @property
    def folder(self) -> Path | None:
        return self._writer().folder if self._handles else None

    def remove(self) -> None:
        """Remove the hooks from the model."""
        for handle in self._handles:
            handle.remove()
        self._handles.clear()
        self._leave_functions()
        for writer in self._writers.values():
            writer.finish(False)

    def _begin(self) -> None:
        make_folder(self._root)
        self._writer().modules(tree_of(self._model, self._names, self._order))
        if self._config.dump_weight:
            self._weights()
        # ``disable`` makes compiled code leave its graph at a hook and continue after it. The call imports torch's
        # compiler, which takes a second or two even if the program never compiles; a later call would be too late.
        eager = self._torch.compiler.disable
        self._handles = [self._model.register_forward_pre_hook(eager(self._start), with_kwargs=True, prepend=True)]
        # Run after the program's own hooks, whose changes belong to the module. The end of the model comes last.
        for name, module in self._names.items():
            before, after = self._hooks(name, module)
            self._handles.append(module.register_forward_pre_hook(eager(before), with_kwargs=True))
            self._handles.append(module.register_forward_hook(eager(after), with_kwargs=True, always_call=True))
        self._handles.append(self._model.register_forward_hook(eager(self._end), with_kwargs=True, always_call=True))

    def _writer(self) -> RunWriter:
        """Return the writer of this process; a forked process gets its own folder."""
        pid = os.getpid()
        if pid not in self._writers:
            folder, least = self._root / f"{self._device}_{pid}", self._control.storage.min_free
            self._writers[pid] = RunWriter(self._torch, folder, least, self._config.keeps_values)
            if len(self._writers) > 1:
                self._writers[pid].modules(tree_of(self._model, self._names, self._order))
        return self._writers[pid]

    def _start(self, module: Any, arguments: Any, keywords: Any) -> None:
        """Begin a token."""
        self._token += 1
        self._running, self._calls, self._logits = [], Counter(), None
        self._dumping = self._token in self._control.steps
        if not self._dumping:
            return
        self._writer().start(self._token)
        if "api" in self._config.kinds:
            self._functions = _watching(self)
            self._functions.__enter__()

    def _end(self, module: Any, arguments: Any, keywords: Any, output: Any) -> None:
        """End a token; it is incomplete if an exception ended it, during which torch calls this hook."""
        if not self._dumping:
            return
        self._dumping = False
        self._leave_functions()
        if self._logits is not None:
            name, kind, tensors = self._logits
            self._save(tensors, name, kind, "out")
        self._writer().finish(output is not None or sys.exc_info()[0] is None)
        self._writer().modules(tree_of(self._model, self._names, self._order))

    def _leave_functions(self) -> None:
        if self._functions is not None:
            self._functions.__exit__(None, None, None)
            self._functions = None

    def _hooks(self, name: str, module: Any) -> tuple[Any, Any]:
        """Return the hooks to call before and after a module runs."""
        kind = type(module).__name__
        classes = tuple(self._config.module_list or ())
        dumped = "module" in self._config.kinds and not self._config.dump_last_logits
        dumped = dumped and self._config.wants_layer(name) and (not classes or isinstance(module, classes))

        def before(_module: Any, arguments: Any, keywords: Any) -> None:
            if not self._dumping:
                return
            calls = self._calls[name]
            self._calls[name] += 1
            self._running.append((name, f"{name}@{calls}" if calls else name))
            if dumped:
                self._writer().arguments(self._running[-1][1], kind, simple(_module.__dict__))
            if dumped and self._control.mode != "output":
                self._save((*arguments, keywords), self._running[-1][1], kind, "in", len(arguments))

        def after(_module: Any, _arguments: Any, _keywords: Any, output: Any) -> None:
            if not self._dumping or not self._running:
                return
            called = self._running.pop()[1]
            self._order.setdefault(name, len(self._order))
            if self._config.dump_last_logits and (name != ROOT or self._logits is None):
                if any(True for _ in tensors_in(self._torch, output)):
                    self._logits = called, kind, output
            elif dumped and self._control.mode != "input":
                self._save(output, called, kind, "out")

        return before, after

    def function_called(self, function: Any, arguments: Any, keywords: Any) -> tuple[str, str] | None:
        """Return the names of the call and of the torch function, or None if it is not dumped.

        Inputs are saved here, because the function may write to them.
        """
        # An operator of an exported graph, aten.linear.default, has the name of its overload packet.
        word = getattr(getattr(function, "overloadpacket", function), "__name__", "")
        if word in _PROPERTIES or not self._config.wants_function(function, word):
            return None
        within = self._running[-1][0] if self._running else ROOT
        name = f"{within}.{word}"
        calls = self._calls[name] + (name in self._names)
        self._calls[name] += 1
        called = f"{name}.{calls}" if calls else name
        if not self._config.wants_layer(called):
            return None
        self._writer().arguments(
            called, word, simple({**dict(zip(map(str, range(len(arguments))), arguments)), **keywords})
        )
        if self._control.mode != "output" and any(True for _ in tensors_in(self._torch, (*arguments, keywords))):
            self._save((*arguments, keywords), called, word, "in", len(arguments))
        return called, word

    def function_returned(self, call: tuple[str, str], output: Any) -> None:
        if self._control.mode != "input":
            self._save(output, *call, "out")

    def _save(self, values: Any, name: str, kind: str, side: str, positional: int = -1) -> None:
        """Save the tensors in arguments or results; the item at index ``positional`` holds the keyword arguments."""
        writer = self._writer()
        if writer.stopped:
            return
        without: list[str] = []
        with by_itself(self._torch):
            for keys, tensor in tensors_in(self._torch, values, (), without):
                if positional >= 0 and keys and keys[0] == positional:
                    keys = keys[1:]
                try:
                    plain = plain_tensor(self._torch, tensor)
                    stats = statistics_of(self._torch, plain) if self._config.keeps_statistics else None
                except Exception as error:  # the program must run on, whatever the tensor raises
                    without.append(f"{type(error).__name__}: {' '.join(str(error).split())[:200]}")
                    continue
                writer.tensor(Taken(plain, name, kind, side, part_of(keys), stats))
        for why in without:
            writer.left_out(f"{name}, {side}put", why)

    def _weights(self) -> None:
        writer = self._writer()
        for name, parameter in self._model.named_parameters():
            named = f"{ROOT}.{name}"
            if self._config.wants_layer(named):
                with self._torch.no_grad():
                    path = writer.folder / "weights" / f"{named.replace('/', '_')}{ENDING}"
                    writer.save(plain_tensor(self._torch, parameter), path)


def _watching(hook: ModuleHook) -> Any:
    """Return a mode that sees every call of a torch function."""
    from torch.compiler import disable
    from torch.overrides import TorchFunctionMode

    called, returned = disable(hook.function_called), disable(hook.function_returned)

    class Watch(TorchFunctionMode):  # type: ignore[misc]
        def __torch_function__(self, function: Any, types: Any, arguments: Any = (), keywords: Any = None) -> Any:
            keywords = keywords or {}
            call = called(function, arguments, keywords)
            output = function(*arguments, **keywords)
            if call is not None:
                returned(call, output)
            return output

    return Watch()


def named_modules(torch: Any, model: Any) -> Iterator[tuple[str, Any]]:
    """Yield every module under its first name; warn about scripted modules, which run no hooks."""
    scripted = []
    for name, module in model.named_modules():
        if isinstance(module, torch.jit.ScriptModule):
            scripted.append(f"{ROOT}.{name}")
        else:
            yield f"{ROOT}.{name}" if name else ROOT, module
    if scripted:
        more = f" and {len(scripted) - 1} more" if len(scripted) > 1 else ""
        warnings.warn(f"{scripted[0]}{more} is scripted: nothing inside is dumped", stacklevel=5)


def check_names(names: Mapping[str, Any], config: DumpConfig) -> None:
    if config.kinds == ("module",) and config.layer_name is not None and not any(map(config.wants_layer, names)):
        raise ConfigError(f"no module is named {config.layer_name!r}{hint(config.layer_name, list(names))}")
    classes = tuple(config.module_list or ())
    if classes and not any(isinstance(module, classes) for module in names.values()):
        existing = {type(module).__name__: None for module in names.values()}
        missing = ", ".join(kind.__name__ for kind in classes)
        raise ConfigError(f"no module is an instance of {missing}{hint(missing, existing)}")


def tree_of(model: Any, names: Mapping[str, Any], order: Mapping[str, int]) -> dict[str, Any]:
    """Return the document of ``model_tree.json``: children in ``order`` of their first run, then all others."""
    never, first_run = len(names), itemgetter(0)

    def node(name: str, module: Any) -> tuple[int, dict[str, Any]]:
        inner = sorted((node(f"{name}.{word}", child) for word, child in module.named_children()), key=first_run)
        # A list of modules does not run itself; it takes the rank of its first child.
        rank = order.get(name, min(map(first_run, inner), default=never))
        return rank, {"name": name, "type": type(module).__name__, "children": [document for _, document in inner]}

    return node(ROOT, model)[1]


def device_of(model: Any) -> str:
    """Return the model's device as used in folder names: cpu, npu0."""
    for tensor in (*model.parameters(), *model.buffers()):
        return str(tensor.device).replace(":", "")
    return "cpu"


def is_dumped(device: str, number: int | None) -> bool:
    if number is None or device == "cpu" or device == f"{device.rstrip('0123456789')}{number}":
        return True
    warnings.warn(f"nothing is dumped: the model is on {device}, device_id is {number}", stacklevel=4)
    return False


def tensors_in(
    torch: Any, value: Any, keys: tuple[Any, ...] = (), without: list[str] | None = None
) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """Yield the tensors in nested tuples, lists and dicts, with the keys that lead to each.

    ``without`` collects the reasons of tensors without values.
    """
    if isinstance(value, torch.Tensor):
        why = why_without_values(value)
        if not why:
            yield keys, value
        elif without is not None:
            without.append(why)
    elif len(keys) < _DEEPEST and isinstance(value, tuple | list | Mapping):
        inner = value.items() if isinstance(value, Mapping) else enumerate(value)
        for key, item in inner:
            yield from tensors_in(torch, item, (*keys, key), without)


def simple(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the public entries that are numbers, text, or short lists of these."""
    return {name: value for name, value in values.items() if name[:1] != "_" and _is_simple(value)}


def _is_simple(value: Any) -> bool:
    if isinstance(value, tuple | list):
        return len(value) <= _MOST_IN_LIST and all(map(_is_simple, value))
    return value is None or type(value) in (bool, int, float, str)


def plain_tensor(torch: Any, tensor: Any) -> Any:
    """Return the tensor alone on the CPU, without the rest of a shared storage; the copy waits for the device."""
    plain = tensor.detach().to("cpu").resolve_conj().resolve_neg()
    if plain.is_quantized:
        return plain.clone()
    if type(plain) is not torch.Tensor:
        plain = plain.as_subclass(torch.Tensor)
    whole = plain.is_contiguous() and plain.untyped_storage().nbytes() == plain.numel() * plain.element_size()
    return plain if whole else plain.clone(memory_format=torch.contiguous_format)


def statistics_of(torch: Any, tensor: Any) -> dict[str, float] | None:
    """Return max, min, mean and l2norm as torch computes them (NaN if a value is NaN), or None without statistics."""
    if tensor.is_quantized:
        tensor = tensor.dequantize()
    if not tensor.numel() or tensor.dtype == torch.bool or tensor.is_complex():
        return None
    sums = sums_of(tensor)
    if sums is not None:
        least, most, total, squares = sums
        return {"max": most, "min": least, "mean": total / tensor.numel(), "l2norm": math.sqrt(squares)}
    values = tensor.double()
    return {
        "max": float(values.max()),
        "min": float(values.min()),
        "mean": float(values.mean()),
        "l2norm": float(torch.linalg.vector_norm(values)),
    }


def why_without_values(tensor: Any) -> str:
    """Return the reason why a tensor has no values to save, or "". A quantised tensor is saved as its integers."""
    # This import needs torch, which is present: without it there are no tensors.
    from sgsdump.capture.programs.hook.for_torch.sgsdump_torch_tensors import unreadable, why_not_plain

    if tensor.is_quantized:
        return ""
    return why_not_plain(tensor) or unreadable(tensor)


@contextmanager
def by_itself(torch: Any) -> Iterator[None]:
    """Hide the computations of this block from the program: no gradients, modes or transforms of torch.func."""
    from sgsdump.capture.programs.hook.for_torch.sgsdump_torch_tensors import outside_transforms

    with torch.no_grad(), torch._C.DisableTorchFunction(), torch._C._DisableTorchDispatch(), outside_transforms():
        yield
