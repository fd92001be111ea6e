"""What a tensor is to the torch hook, and its elements as they lie in memory."""

import ctypes
import functools

import torch

_PLAIN = frozenset((torch.Tensor, torch.nn.Parameter))
_ATOMS = frozenset((int, float, bool, str, type(None), torch.dtype, torch.device, torch.layout, torch.memory_format))
_functorch = getattr(torch._C, "_functorch", None)
_is_wrapped = getattr(_functorch, "is_functorch_wrapped_tensor", lambda tensor: False)


def plain(value):
    """Whether a value is a tensor with elements in memory of its own, not a fake, meta, sparse or quantised one."""
    kind = type(value)
    if kind not in _PLAIN and (
        not isinstance(value, torch.Tensor)
        or hasattr(kind, "__tensor_flatten__")
        or kind.__name__ in ("FakeTensor", "FunctionalTensor")
    ):
        return False
    return value.layout is torch.strided and not (value.is_meta or value.is_quantized or _is_wrapped(value))


def tensors_in(value):
    """The tensors in lists, tuples, dicts and dataclasses, in order."""
    if type(value) in _PLAIN or isinstance(value, torch.Tensor):
        return [value]
    found: list = []
    _collect(value, found, 0)
    return found


def _collect(value, found, depth):
    if isinstance(value, (list, tuple)):
        inner = value
    elif isinstance(value, dict):
        inner = list(value.values())
    elif hasattr(type(value), "__dataclass_fields__"):
        inner = [getattr(value, name, None) for name in type(value).__dataclass_fields__]
    else:
        return
    for one in inner:
        kind = type(one)
        if kind in _ATOMS:
            continue
        if kind in _PLAIN or isinstance(one, torch.Tensor):
            found.append(one)
        elif depth < 7:
            _collect(one, found, depth + 1)


@functools.lru_cache(maxsize=None)
def type_word(dtype):
    return str(dtype).partition(".")[2]


def version(tensor):
    return None if tensor.is_inference() else tensor._version


def synchronise(tensor):
    """Let an asynchronous device finish what would still change a tensor."""
    kind = tensor.device.type
    if kind != "cpu":
        wait = getattr(getattr(torch, kind, None), "synchronize", None)
        if wait is not None:
            wait()


def in_c_order(tensor):
    """The same elements in C order on the host, without a copy where they are so."""
    return tensor.detach().resolve_conj().resolve_neg().cpu().contiguous()


def payload(lying):
    """The memory of a tensor in C order, which has to live as long as this is used."""
    size = lying.numel() * lying.element_size()
    return memoryview((ctypes.c_char * size).from_address(lying.data_ptr())).cast("B") if size else memoryview(b"")


def fills_its_memory(tensor):
    """Whether the elements of a tensor are one piece of memory; False where that is not known at once."""
    return tensor.is_contiguous() or tensor.is_contiguous(memory_format=torch.channels_last)


def in_memory_order(tensor):
    """All elements once, in the order of memory; without a copy where they fill it without gaps."""
    tensor = tensor.detach()
    if not tensor.is_contiguous():
        order = sorted(range(tensor.dim()), key=lambda axis: (-tensor.stride(axis), -tensor.size(axis)))
        tensor = tensor.permute(order)
    return tensor.reshape(-1)
