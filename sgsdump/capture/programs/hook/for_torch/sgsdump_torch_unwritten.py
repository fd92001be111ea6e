"""Tracking of memory that nothing has written to yet, as ``torch.empty`` returns.

Memory counts as unwritten from the operator that allocated it (``allocated``) until operators have written to it
(``ran``), element by element. Operators that move elements (copy, concatenation, index) or compute each by itself pass
this state on. Which elements an operator of an unknown library writes is detected by a mark that unwritten memory
carries while the operator runs (``marked``). Writes outside torch, such as numpy's or those of a Triton kernel, are
detected by a few sampled bytes; all of that memory then counts as written.

Masks are kept on the CPU. The sampled bytes of a device stay on the device until they are compared.

The module needs only torch: the hook and the backend of ``torch.compile`` (``sgsdump/capture/torchair``) use it.
"""

import ctypes
import weakref
from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef

# Operators that allocate memory without writing to it.
GIVING = {
    *("aten.empty", "aten.empty_like", "aten.empty_strided", "aten.empty_permuted"),
    *("aten.new_empty", "aten.new_empty_strided"),
}
# Outputs that hold private data of the library, or nothing.
SCRATCH = {"aten.mkldnn_rnn_layer": (3,)}
RESIZING = {"aten.resize_", "aten.resize_as_"}
_NO_WRITING = {"aten.set_", "aten.detach_", "aten.transpose_", "aten.t_", "aten.squeeze_", "aten.unsqueeze_"}
# Libraries whose schemas state what their operators write.
_KNOWN = {"aten", "prims", "prim", "c10d", "_c10d_functional", "_c10d_functional_autograd", "higher_order"}
# In-place operators that do not read the memory that they write.
_OVERWRITING = {
    *("aten.fill_", "aten.zero_", "aten.normal_", "aten.uniform_", "aten.random_", "aten.bernoulli_"),
    *("aten.exponential_", "aten.geometric_", "aten.cauchy_", "aten.log_normal_", "aten._foreach_zero_"),
}
# Mark in unwritten memory: small and finite as a float of any width.
_MARK = {4: 0x3A5C3A5C, 8: 0x3A5C3A5C3A5C3A5C}
# Number of sampled bytes that show whether memory has changed.
SAMPLES = 256


class Unwritten:
    """Unwritten memory of a program, by storage."""

    def __init__(self):
        self.storages = {}

    def __bool__(self):
        return bool(self.storages)

    def allocated(self, tensor):
        """Record that an operator allocated the memory of a plain tensor without writing to it."""
        if tensor.numel():
            storage = tensor.untyped_storage()
            self.storages[storage._cdata] = Blank(storage, tensor.element_size(), tensor)

    def holds(self, tensor):
        """Return whether an element of a plain tensor is unwritten."""
        blank = self._blank(tensor)
        return blank is not None and tensor.numel() > 0 and blank.holds(tensor)

    def marked(self, kind, args, kwargs):
        """Mark unwritten memory among an operator's arguments if its schema may not state its writes."""
        if not self.storages or kind.partition(".")[0] in _KNOWN:
            return []
        tensors = [tensor for tensor in _tensors_in((args, kwargs)) if self.holds(tensor)]
        storages = {storage._cdata: storage for storage in (tensor.untyped_storage() for tensor in tensors)}
        blanks = [(storage, self.storages[number]) for number, storage in storages.items()]
        return [(storage, blank, blank.mark(storage)) for storage, blank in blanks]

    def unmark(self, marked):
        """Record the writes of an operator that ran: where the mark is gone; the rest is restored."""
        for storage, blank, words in marked:
            if storage._cdata not in self.storages or self.storages[storage._cdata] is not blank:
                continue  # the operator resized this memory
            blank.unmark(*words)
            blank.sample = _sample(storage)
            if not blank.mask.any():
                del self.storages[storage._cdata]

    def ran(self, kind, func, args, kwargs, result, written):
        """Record that an operator ran and wrote to the tensors ``written``."""
        if not self.storages or kind in _NO_WRITING or kind in RESIZING:
            return
        masks = self._moved(kind, func, args, kwargs, {tensor.untyped_storage()._cdata for tensor in written})
        if masks is not None:
            for tensor, mask in zip(written or _tensors_in(result), masks):
                if mask.any():
                    self._copied(tensor, mask.expand(tensor.shape))
                elif written:
                    self._write(kind, tensor, args)
            return
        keeps = _reads_what_it_writes(kind, kwargs)
        for tensor in written:
            self._write(kind, tensor, args, keeps)

    def grown(self, tensor, before):
        """Record that a tensor's memory, which had ``before`` bytes, was resized."""
        self._resized(tensor.untyped_storage(), before, tensor.element_size(), tensor)

    def storage_grown(self, storage, before):
        """Record that the program itself resized a storage that had ``before`` bytes."""
        self._resized(storage, before, 1)

    def _resized(self, storage, before, unit, tensor=None):
        blank = self.storages.pop(storage._cdata, None)
        if not storage.nbytes() or (storage.nbytes() <= before and blank is None):
            return
        new = Blank(storage, unit, tensor)
        if before:
            new.resized(before, blank)
        self.storages[storage._cdata] = new

    def begins(self):
        """Begin a step: memory that torch has written since the last step counts as written."""
        for number, blank in list(self.storages.items()):
            if blank.reference.expired() or blank.may_be_written():
                del self.storages[number]

    def ends(self):
        for blank in self.storages.values():
            blank.note_version()

    def _blank(self, tensor, looking=True):
        """Return the unwritten state of a tensor's memory, or None; with ``looking``, check the sample for changes."""
        if not self.storages:
            return None
        storage = tensor.untyped_storage()
        blank = self.storages.get(storage._cdata)
        if blank is None:
            return None
        if looking and not _are_same(blank.sample, _sample(storage)):
            del self.storages[storage._cdata]
            return None
        return blank

    def _write(self, kind, tensor, args, keeps=False):
        """Record a write; with ``keeps``, unwritten elements stay unwritten."""
        blank = self._blank(tensor, looking=False)
        if blank is None:
            return
        storage = tensor.untyped_storage()
        writer = _WRITING.get(kind)
        if writer is None and not keeps and tensor.numel() * tensor.element_size() == storage.nbytes():
            del self.storages[storage._cdata]
            return
        if not keeps:
            blank.write(tensor, writer, args)
        blank.sample = _sample(storage)

    def _copied(self, tensor, unwritten):
        """Record a copy of elements, some unwritten, to a tensor."""
        storage = tensor.untyped_storage()
        blank = self.storages.get(storage._cdata)
        if blank is None:
            blank = self.storages[storage._cdata] = Blank(storage, tensor.element_size(), tensor)
            blank.fill(False)
        blank.places(tensor).copy_(unwritten.unsqueeze(-1))
        blank.sample = _sample(storage)

    def _moved(self, kind, func, args, kwargs, written):
        """Return, per output, which elements are unwritten because they come from unwritten inputs.

        None if no input is unwritten, or the operator neither moves elements nor computes each by itself. ``written``
        are the ids of the memory that it wrote.
        """
        base = kind[:-1] if kind.endswith("_") else kind
        if kind in _WRITING:
            return None
        if kind in _COPYING:
            values = args[1:2]
        elif kind == "aten.where":
            values = args[1:3]
        elif base in _MOVING or base + "_" in _WRITING:
            values = args[: _MOVING.get(base, 1)]
        elif _POINTWISE in getattr(func, "tags", ()):
            values = args
        else:
            return None
        tensors = _tensors_in(values)
        if not any(tensor.untyped_storage()._cdata in self.storages for tensor in tensors):
            return None
        masks = [self._elements(tensor, tensor.untyped_storage()._cdata not in written) for tensor in tensors]
        if not any(mask.any() for mask in masks):
            return None
        if kind in _COPYING or base in _WHOLE:
            return masks
        args = _on_host(args)
        if kind == "aten.where":
            return [torch.where(args[0], *masks)]
        if kind == "aten.constant_pad_nd":
            return [func(masks[0], args[1], 0)]
        if base in _MOVING:
            first = [masks] if isinstance(args[0], (list, tuple)) else masks
            kwargs = {name: _on_host(value) for name, value in kwargs.items() if name != "out"}
            moved = func.overloadpacket(*first, *args[_MOVING[base] :], **kwargs)
            return moved if isinstance(moved, (list, tuple)) else [moved]
        if base + "_" in _WRITING:
            _WRITING[base + "_"](masks[0], args)
            return masks
        shape = torch.broadcast_shapes(*(mask.shape for mask in masks))
        return [torch.stack([mask.expand(shape) for mask in masks]).any(0)]

    def _elements(self, tensor, looking=True):
        """Return which elements are unwritten."""
        blank = self._blank(tensor, looking)
        if blank is None:
            return torch.zeros((), dtype=torch.bool, device="cpu").expand(tensor.shape)
        return blank.places(tensor).any(-1)


class Blank:
    """Memory that is at least partly unwritten.

    unit     number of bytes that are written together; mask: for each unit whether it is unwritten; None if all are.
    sample   bytes of it after torch's last write.
    tensor   tensor for which it was allocated, whose version shows writes; None for memory that the program resized.
    """

    def __init__(self, storage, unit, tensor=None):
        self.reference = StorageWeakRef(storage)
        self.unit = unit
        self.mask: Any = None
        self.sample = _sample(storage)
        self._tensor = None if tensor is None else weakref.ref(tensor)
        self._pieces = storage.nbytes() // self.unit
        self.note_version()

    def note_version(self):
        tensor = None if self._tensor is None else self._tensor()
        self._version = None if tensor is None or tensor.is_inference() else tensor._version

    def may_be_written(self):
        """Return whether a write is possible since the version was noted; always True without a tensor."""
        if self._tensor is None:
            return True
        tensor = self._tensor()
        return tensor is not None and self._version is not None and tensor._version != self._version

    def holds(self, tensor):
        return self.mask is None or bool(self.places(tensor).any())

    def places(self, tensor):
        """Return a tensor's part of the mask, with one more axis for the units of an element."""
        if self.mask is None:
            self.fill(True)
        size = tensor.element_size()
        if size < self.unit:
            self.mask = self.mask.repeat_interleave(self.unit // size)
            self.unit = size
        pieces = size // self.unit
        strides = (*(stride * pieces for stride in tensor.stride()), 1)
        return self.mask.as_strided((*tensor.shape, pieces), strides, tensor.storage_offset() * pieces)

    def write(self, tensor, writer, args):
        """Clear the mask where ``writer`` writes as the operator does; without a writer, for all elements."""
        places = self.places(tensor)
        if writer is None:
            places.fill_(False)
            return
        args = _on_host(args)
        for piece in range(places.shape[-1]):
            writer(places[..., piece], args)

    def fill(self, unwritten):
        self.mask = torch.full((self._pieces,), unwritten, dtype=torch.bool, device="cpu")

    def resized(self, before, earlier):
        """Keep the state of the first bytes, which existed before."""
        self.fill(True)
        kept = min(before // self.unit, self._pieces)
        self.mask[:kept] = False
        if earlier is not None:
            mask = earlier.mask if earlier.unit == self.unit else None
            self.mask[:kept] = True if mask is None else mask[:kept]

    def mark(self, storage):
        """Write the mark to all unwritten units; return the memory, its previous content and the unwritten units."""
        if self.mask is None:
            self.fill(True)
        memory = torch.empty(0, dtype=torch.uint8, device=storage.device).set_(storage)
        words = self._words(memory)
        before = words.clone()
        if self.unit < words.element_size():
            unwritten = self.mask[: len(words) * words.element_size() // self.unit].view(len(words), -1).all(1)
        else:
            unwritten = self.mask.repeat_interleave(self.unit // words.element_size())
        unwritten = unwritten.to(storage.device)
        words.masked_fill_(unwritten, _MARK[words.element_size()])
        self.sample = _sample(storage)
        return words, before, unwritten

    def unmark(self, words, before, unwritten):
        """Restore the previous content where the mark remains; everything else is written."""
        unwritten = unwritten & (words == _MARK[words.element_size()])
        words.copy_(torch.where(unwritten, before, words))
        unwritten = unwritten.cpu()
        if self.unit < words.element_size():
            unwritten = unwritten.repeat_interleave(words.element_size() // self.unit)
            self.mask.fill_(False)[: len(unwritten)] = unwritten
        else:
            self.mask.copy_(unwritten.view(len(self.mask), -1).all(1))

    def _words(self, memory):
        """Return the memory in words long enough that no other value is likely to equal the mark."""
        size = 4 if self.unit >= 4 else 8
        return memory[: len(memory) // size * size].view(torch.int32 if size == 4 else torch.int64)


def _sample(storage):
    """Return bytes from all over a memory; of a device a tensor of them, without a wait."""
    size, address = storage.nbytes(), storage.data_ptr()
    step = max(1, size // SAMPLES) | 1
    if storage.device.type == "meta":
        return b""
    if storage.device.type != "cpu":
        memory = torch.empty(0, dtype=torch.uint8, device=storage.device).set_(storage)
        return memory[::step].clone() if size > SAMPLES else memory.clone()
    if size <= SAMPLES:
        return ctypes.string_at(address, size)
    return bytes((ctypes.c_ubyte * size).from_address(address)[::step])


def _are_same(a, b):
    """Return whether two samples are equal; those of a device need a wait."""
    return torch.equal(a, b) if isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor) else a is b or a == b


def _on_host(value):
    """Return arguments with their indices and conditions on the CPU, where the masks are."""
    if isinstance(value, torch.Tensor):
        return value if value.is_cpu or value.is_floating_point() else value.cpu()
    if type(value) in (list, tuple):
        return type(value)(map(_on_host, value))
    return value


def _tensors_in(value):
    """Return the tensors with memory of their own in an operator's arguments or result."""
    if isinstance(value, torch.Tensor):
        return [value] if value.layout is torch.strided and not value.is_nested and not value.is_meta else []
    if isinstance(value, dict):
        value = value.values()
    elif not isinstance(value, (list, tuple)):
        return []
    return [tensor for item in value for tensor in _tensors_in(item)]


def _reads_what_it_writes(kind, kwargs):
    """Return whether an in-place operator computes a tensor's elements from their old values."""
    is_in_place = kind.startswith("aten.") and kind.endswith("_") and kwargs.get("beta") != 0
    return is_in_place and kind not in _OVERWRITING and kind not in _WRITING and kind not in _COPYING


# Operators that write some elements of a tensor -> the same write on a mask, from the operator's arguments.
_WRITING = {
    **dict.fromkeys(
        ("aten.index_put_", "aten._index_put_impl_"),
        lambda mask, args: mask.index_put_(args[1], mask.new_zeros(())) if args[3:4] != (True,) else mask,
    ),
    **dict.fromkeys(
        ("aten.index_fill_", "aten.index_copy_"), lambda mask, args: mask.index_fill_(args[1], args[2], False)
    ),
    "aten.scatter_": lambda mask, args: mask.scatter_(args[1], args[2], False),
    **dict.fromkeys(
        ("aten.masked_fill_", "aten.masked_scatter_"), lambda mask, args: mask.masked_fill_(args[1], False)
    ),
    "aten.put_": lambda mask, args: mask.put_(args[1], mask.new_zeros(args[1].shape)),
    "aten.fill_diagonal_": lambda mask, args: mask.fill_diagonal_(False, *args[2:]),
}
# Operators that copy elements to existing tensors.
_COPYING = {"aten.copy_", "aten._foreach_copy_"}
# Operators that return all elements of another tensor unchanged.
_WHOLE = {"aten.clone", "aten._to_copy"}
# Operators that move elements -> number of leading arguments whose elements they take.
_MOVING = {
    **dict.fromkeys(_WHOLE, 1),
    **dict.fromkeys(("aten.cat", "aten.stack", "aten._chunk_cat", "aten.index", "aten.index_select", "aten.gather"), 1),
    **dict.fromkeys(("aten.repeat", "aten.flip", "aten.roll", "aten.constant_pad_nd", "aten._reshape_copy"), 1),
    **dict.fromkeys(("aten.split_with_sizes_copy", "aten.split_copy", "aten.unbind_copy", "aten.narrow_copy"), 1),
    **dict.fromkeys(("aten.triu", "aten.tril"), 1),
    **dict.fromkeys(("aten.slice_scatter", "aten.select_scatter", "aten.diagonal_scatter"), 2),
    "aten.as_strided_scatter": 2,
}
# Tag of elementwise operators; torch has it since 2.0.
_POINTWISE = getattr(getattr(torch, "Tag", None), "pointwise", ())
