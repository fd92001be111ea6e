"""Memory that nothing has written to yet, as ``torch.empty`` gives.

Memory counts as unwritten from the operator that gave it (``allocated``) until operators have written to it (``ran``),
element by element; what moves elements (a copy, a concatenation, an index) moves this with them. Writes
that torch does not see, of an extension's kernel or numpy, show in a few bytes, and all of it counts as written.

Needs nothing but torch: the hook and the backend of ``torch.compile`` (``sgsdump/capture/torchair``) use it.
"""

import ctypes
import weakref
from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef

# Operators that give memory and write nothing to it.
GIVING = {
    *("aten.empty", "aten.empty_like", "aten.empty_strided", "aten.empty_permuted"),
    *("aten.new_empty", "aten.new_empty_strided"),
}
# Outputs that hold what the library needs for itself, or nothing.
SCRATCH = {"aten.mkldnn_rnn_layer": (3,)}
RESIZING = {"aten.resize_", "aten.resize_as_"}
_NO_WRITING = {"aten.set_", "aten.detach_", "aten.transpose_", "aten.t_", "aten.squeeze_", "aten.unsqueeze_"}
# So many bytes show whether memory has changed.
SAMPLES = 256


class Unwritten:
    def __init__(self):
        self.storages = {}

    def __bool__(self):
        return bool(self.storages)

    def allocated(self, tensor):
        """An operator gave the memory of a plain tensor, and wrote nothing to it."""
        if tensor.numel():
            storage = tensor.untyped_storage()
            self.storages[storage._cdata] = Blank(tensor, storage)

    def holds(self, tensor):
        """Whether an element of a plain tensor is unwritten."""
        blank = self._blank(tensor)
        return blank is not None and tensor.numel() > 0 and blank.holds(tensor)

    def ran(self, kind, func, args, kwargs, result, written):
        """An operator ran, which wrote to the tensors ``written``."""
        if not self.storages or kind in _NO_WRITING or kind in RESIZING:
            return
        if not written:
            if kind in _MOVING and isinstance(result, torch.Tensor):
                self._moved(kind, func, args, kwargs, result)
            return
        source = args[1] if kind == "aten.copy_" else None
        if isinstance(source, torch.Tensor) and self.holds(source):
            self._copied(args[0], self._elements(source))
            return
        for tensor in written:
            blank = self._blank(tensor, looking=False)
            if blank is not None:
                self._write(blank, kind, tensor, args)

    def grown(self, tensor, before):
        """A tensor's memory, which had so many bytes, was resized."""
        storage = tensor.untyped_storage()
        blank = self.storages.pop(storage._cdata, None)
        if storage.nbytes() <= before and blank is None:
            return
        new = Blank(tensor, storage)
        if before:
            new.resized(before, blank)
        self.storages[storage._cdata] = new

    def begins(self):
        """A step begins: what torch has written since the last one ended is written."""
        for number, blank in list(self.storages.items()):
            if blank.reference.expired() or blank.is_other_version():
                del self.storages[number]

    def ends(self):
        for blank in self.storages.values():
            blank.note_version()

    def _blank(self, tensor, looking=True):
        """Of a tensor's memory, where something of it is unwritten; ``looking`` whether it has changed."""
        if not self.storages:
            return None
        storage = tensor.untyped_storage()
        blank = self.storages.get(storage._cdata)
        if blank is None:
            return None
        if looking and blank.sample != _sample(storage):
            del self.storages[storage._cdata]
            return None
        return blank

    def _write(self, blank, kind, tensor, args):
        storage = tensor.untyped_storage()
        writer = _WRITING.get(kind)
        if writer is None and tensor.numel() * tensor.element_size() == storage.nbytes():
            del self.storages[storage._cdata]
            return
        blank.write(tensor, writer, args)
        blank.sample = _sample(storage)

    def _copied(self, tensor, unwritten):
        """Elements of which some are unwritten were copied to a tensor."""
        storage = tensor.untyped_storage()
        blank = self.storages.get(storage._cdata)
        if blank is None:
            blank = self.storages[storage._cdata] = Blank(tensor, storage)
            blank.fill(False)
        blank.places(tensor).copy_(unwritten.to(tensor.device).unsqueeze(-1))
        blank.sample = _sample(storage)

    def _moved(self, kind, func, args, kwargs, result):
        """Elements were moved to memory of their own."""
        values, rest = (args[:1], args[1:]) if kind != "aten.where" else (args[1:3], ())
        tensors = values[0] if isinstance(values[0], (list, tuple)) else values
        if not any(isinstance(tensor, torch.Tensor) and self.holds(tensor) for tensor in tensors):
            return
        masks = [self._elements(tensor) for tensor in tensors]
        if kind in _WHOLE:
            moved = masks[0]
        elif kind == "aten.where":
            moved = torch.where(args[0], *masks)
        elif kind == "aten.constant_pad_nd":
            moved = func(masks[0], args[1], 0)
        else:
            moved = func(masks if isinstance(values[0], (list, tuple)) else masks[0], *rest, **kwargs)
        if moved.any():
            self._copied(result, moved)

    def _elements(self, tensor):
        """Of each element whether it is unwritten."""
        blank = self._blank(tensor)
        if blank is None:
            return torch.zeros((), dtype=torch.bool, device=tensor.device).expand(tensor.shape)
        return blank.places(tensor).any(-1)


class Blank:
    """Memory of which something is unwritten.

    unit     so many bytes are written at once, or none of them; mask: of each such piece whether it is unwritten; None
             where all are.
    sample   bytes of it, after what torch wrote to it last.
    """

    def __init__(self, tensor, storage):
        self.reference = StorageWeakRef(storage)
        self.unit = tensor.element_size()
        self.mask: Any = None
        self.sample = _sample(storage)
        self._tensor = weakref.ref(tensor)
        self._pieces = storage.nbytes() // self.unit
        self._device = tensor.device
        self.note_version()

    def note_version(self):
        tensor = self._tensor()
        self._version = None if tensor is None or tensor.is_inference() else tensor._version

    def is_other_version(self):
        tensor = self._tensor()
        return tensor is not None and self._version is not None and tensor._version != self._version

    def holds(self, tensor):
        return self.mask is None or bool(self.places(tensor).any())

    def places(self, tensor):
        """The part of the mask that is a tensor's, with an axis more for the pieces of an element."""
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
        """``writer`` writes as the operator does, to some of the elements; without it all are written."""
        places = self.places(tensor)
        if writer is None:
            places.fill_(False)
            return
        for piece in range(places.shape[-1]):
            writer(places[..., piece], args)

    def fill(self, unwritten):
        self.mask = torch.full((self._pieces,), unwritten, dtype=torch.bool, device=self._device)

    def resized(self, before, earlier):
        """The first bytes are those that were there before, as they are known of."""
        self.fill(True)
        kept = min(before // self.unit, self._pieces)
        self.mask[:kept] = False
        if earlier is not None:
            mask = earlier.mask if earlier.unit == self.unit else None
            self.mask[:kept] = True if mask is None else mask[:kept]


def _sample(storage):
    """Bytes from all over a memory; of another device's none, for looking takes long there."""
    if storage.device.type != "cpu":
        return b""
    size, address = storage.nbytes(), storage.data_ptr()
    step = max(1, size // SAMPLES) | 1
    if size <= SAMPLES:
        return ctypes.string_at(address, size)
    return bytes((ctypes.c_ubyte * size).from_address(address)[::step])


# Operators that write to some of a tensor's elements: what each does to a mask, by the operator's arguments.
_WRITING = {
    **dict.fromkeys(
        ("aten.index_put_", "aten._index_put_impl_"),
        lambda mask, args: torch.ops.aten.index_put_(mask, args[1], mask.new_zeros(())),
    ),
    **dict.fromkeys(
        ("aten.index_fill_", "aten.index_copy_", "aten.index_add_", "aten.index_reduce_"),
        lambda mask, args: mask.index_fill_(args[1], args[2], False),
    ),
    **dict.fromkeys(
        ("aten.scatter_", "aten.scatter_add_", "aten.scatter_reduce_"),
        lambda mask, args: mask.scatter_(args[1], args[2], False),
    ),
    **dict.fromkeys(
        ("aten.masked_fill_", "aten.masked_scatter_"), lambda mask, args: mask.masked_fill_(args[1], False)
    ),
    "aten.put_": lambda mask, args: mask.put_(args[1], mask.new_zeros(args[1].shape)),
}
# Operators that give elements of others, each as it is.
_WHOLE = {"aten.clone", "aten._to_copy"}
_MOVING = {
    *_WHOLE,
    *("aten.cat", "aten.stack", "aten.index", "aten.index_select", "aten.gather", "aten.where"),
    *("aten.repeat", "aten.flip", "aten.roll", "aten.constant_pad_nd", "aten._reshape_copy"),
}
