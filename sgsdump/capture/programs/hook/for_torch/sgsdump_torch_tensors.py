"""The torch hook's view of tensors: which values count as tensors, and their elements as they lie in memory."""

import contextlib
import ctypes
import functools

import torch

PLAIN = frozenset((torch.Tensor, torch.nn.Parameter))
CONSTANTS = frozenset((torch.dtype, torch.device, torch.layout, torch.memory_format))
_ATOMS = frozenset((int, float, bool, str, type(None))) | CONSTANTS
# A view with more than MOST_REPEATED bytes and more than REPEATED times its memory is not read.
MOST_REPEATED, REPEATED = 1 << 32, 64
_functorch = getattr(torch._C, "_functorch", None)
_peek = getattr(_functorch, "peek_interpreter_stack", lambda: None)
_AS_IT_IS = contextlib.nullcontext()
_is_wrapped = getattr(_functorch, "is_functorch_wrapped_tensor", lambda tensor: False)


def plain(value):
    """Return whether a value is a tensor with elements in memory of its own."""
    return not why_not_plain(value)


def why_not_plain(value):
    """Return the reason why a value has no elements in memory of its own, or ""."""
    kind = type(value)
    if kind not in PLAIN and not _is_kept_in_memory(value, kind):
        return f"{kind.__name__} has no memory of its own" if isinstance(value, torch.Tensor) else "it is not a tensor"
    if _is_wrapped(value):
        return "a tensor within torch.func has no memory of its own"
    if value.is_nested:
        return "a nested tensor has no shape"
    if value.layout is not torch.strided:
        return f"the tensor has layout {value.layout} and is not stored as a dense array"
    if value.is_meta or value._is_zerotensor():
        return "a tensor without memory"
    return "a quantised tensor has no numbers of its own type" if value.is_quantized else ""


def _is_kept_in_memory(value, kind):
    """Return whether a subclass is an ordinary tensor with another name, not a wrapper of others or of none."""
    if not isinstance(value, torch.Tensor) or hasattr(kind, "__tensor_flatten__"):
        return False
    if kind.__name__ in ("FakeTensor", "FunctionalTensor"):
        return False
    if kind.__torch_dispatch__ is torch.Tensor.__torch_dispatch__:
        return True
    try:
        return value.untyped_storage().data_ptr() != 0 and lies_in_its_memory(value)
    except (RuntimeError, NotImplementedError, TypeError):
        return False


def outside_transforms():
    """Return a context in which tensors are as outside ``torch.func``, even if its transforms are active."""
    if _peek() is None:
        return _AS_IT_IS
    from torch._functorch import pyfunctorch

    clear = getattr(pyfunctorch, "temporarily_clear_interpreter_stack", contextlib.nullcontext)
    return clear()


def lies_in_its_memory(tensor):
    """Return whether every element is within the current memory of the tensor's storage."""
    size = tensor.numel()
    if not size:
        return True
    if not tensor.is_contiguous():
        size = 1 + sum((count - 1) * stride for count, stride in zip(tensor.shape, tensor.stride()))
    return (tensor.storage_offset() + size) * tensor.element_size() <= tensor.untyped_storage().nbytes()


def unreadable(tensor):
    """Return the reason why the elements of a plain tensor cannot be read, or ""."""
    if not lies_in_its_memory(tensor):
        return "its memory was freed"
    if tensor.is_contiguous():
        return ""
    size = tensor.numel() * tensor.element_size()
    if size > MOST_REPEATED and size > REPEATED * tensor.untyped_storage().nbytes():
        return (
            f"the tensor is an expanded view: it is more than {REPEATED} times as large as its "
            f"storage and larger than {MOST_REPEATED >> 30} GiB"
        )
    return ""


def shape_of(tensor):
    """Return a tensor's shape; () if it has none that consists of numbers."""
    try:
        return tuple(int(size) for size in tensor.shape)
    except (RuntimeError, TypeError, ValueError, AttributeError):  # AttributeError: a nested tensor's symbolic sizes
        return ()


def tensors_in(value):
    """Return the tensors in lists, tuples, dicts and dataclasses, in order."""
    if type(value) in PLAIN or isinstance(value, torch.Tensor):
        return [value]
    tensors: list = []
    _collect(value, tensors, 0)
    return tensors


def _collect(value, tensors, depth):
    if isinstance(value, (list, tuple)):
        inner = value
    elif isinstance(value, dict):
        inner = list(value.values())
    elif hasattr(type(value), "__dataclass_fields__"):
        inner = [getattr(value, name, None) for name in type(value).__dataclass_fields__]
    else:
        return
    for item in inner:
        kind = type(item)
        if kind in _ATOMS:
            continue
        if kind in PLAIN or isinstance(item, torch.Tensor):
            tensors.append(item)
        elif depth < 7:
            _collect(item, tensors, depth + 1)


@functools.lru_cache(maxsize=None)
def type_word(dtype):
    return str(dtype).partition(".")[2]


def version(tensor):
    return None if tensor.is_inference() else tensor._version


def in_c_order(tensor):
    """Return the elements in C order on the host, without a copy if they already are."""
    return tensor.detach().resolve_conj().resolve_neg().cpu().contiguous()


def payload(lying):
    """Return the memory of a tensor in C order; the tensor must outlive its use."""
    size = lying.numel() * lying.element_size()
    return memoryview((ctypes.c_char * size).from_address(lying.data_ptr())).cast("B") if size else memoryview(b"")


def fills_its_memory(tensor):
    """Return whether a tensor's elements are one piece of memory, each once, in any order."""
    if tensor.is_contiguous() or tensor.is_contiguous(memory_format=torch.channels_last):
        return True
    expected = 1
    for stride, size in sorted(zip(tensor.stride(), tensor.shape)):
        if size != 1:
            if stride != expected:
                return False
            expected *= size
    return True


def in_memory_order(tensor):
    """Return all elements, also repeated ones, flat in memory order, without a copy if they fill their memory."""
    tensor = tensor.detach()
    if not tensor.is_contiguous():
        order = sorted(range(tensor.dim()), key=lambda axis: (-tensor.stride(axis), -tensor.size(axis)))
        tensor = tensor.permute(order)
    return tensor.reshape(-1).contiguous()  # reshape leaves one axis with gaps, or with stride 0, as it is
