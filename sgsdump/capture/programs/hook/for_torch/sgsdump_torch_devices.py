"""Reading of tensors on asynchronous devices such as GPUs and NPUs, without a wait for each tensor.

An operator on a device returns before it has run. A read is therefore a kernel on the program's current stream, which
runs after the operator and before anything that overwrites the tensor. Results stay on the device until ``fetch``,
which waits once per device. Whole tensors are copied to pinned memory on a side stream meanwhile.

The functions of a device are those of its module, ``torch.cuda`` or ``torch.npu``, which have the same names.
"""

import contextlib
import math
import struct

import torch
from sgsdump_torch_statistics import LINE, SAMPLED, UNSIGNED, WHOLE, checksum_parts
from sgsdump_torch_tensors import fills_its_memory, in_memory_order

# Bytes of copies that wait on a device; beyond it they are fetched. A larger tensor is copied directly.
MOST_HELD = 1 << 28
# Number of waiting reads beyond which they are fetched.
MOST_READS = 20000
WORD = 8
# Types that torch reduces on a device as they are.
REDUCED = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
# Types of devices without float64.
_narrow: set = set()


class Devices:
    """Devices that the program uses, as the hook meets them."""

    def __init__(self):
        self.met: set = set()
        self._asks: list = []

    def meet(self, tensor):
        self.met.add(tensor.device)

    def modules(self):
        """Return the torch modules of all kinds of devices that may be captured, in use or not."""
        kinds = {"cuda", "xpu", torch._C._get_privateuse1_backend_name(), *(device.type for device in tuple(self.met))}
        return [module for module in map(module_of, sorted(kinds)) if module is not None]

    def look(self):
        """Learn which kinds of devices the program uses by now."""
        asks = ((module, getattr(module, "is_current_stream_capturing", None)) for module in self.modules())
        self._asks = [ask for module, ask in asks if ask is not None and _is_in_use(module)]

    def wait(self):
        """Wait until the devices have finished all work, including copies to the host that are still on their way."""
        for device in tuple(self.met):
            with contextlib.suppress(RuntimeError):  # a device that has failed; reads of it say so
                wait(device)

    def are_capturing(self):
        """Return whether the current stream of a device is being captured: nothing on it can be read, or waited for."""
        return any(ask() for ask in self._asks)


def module_of(kind):
    """Return the torch module of a kind of device, ``torch.cuda``; None if it has none."""
    return None if kind in ("cpu", "meta") else getattr(torch, kind, None)


def _is_in_use(module):
    began = getattr(module, "is_initialized", None)
    return began is None or began()


def wait(device):
    """Wait until a device has finished all work."""
    module = module_of(device.type)
    if hasattr(module, "synchronize"):
        try:
            module.synchronize(device)
        except TypeError:  # a module whose function takes no device
            module.synchronize()


def random_states(tensors):
    """Return the states of the random generators of the CPU and of the tensors' devices."""
    states = {torch.device("cpu"): torch.get_rng_state()}
    for device in {tensor.device for tensor in tensors if not tensor.is_cpu}:
        module = module_of(device.type)
        if hasattr(module, "get_rng_state"):
            states[device] = module.get_rng_state(device)
    return states


def set_random_states(states):
    for device, state in states.items():
        if device.type == "cpu":
            torch.set_rng_state(state)
        else:
            module_of(device.type).set_rng_state(state, device)


class Coming:
    """Bytes on their way from a device; ``data`` is None until ``Reader.fetch``."""

    __slots__ = ("data",)

    def __init__(self, data=None):
        self.data = data


class Reader:
    """Reads of the tensors of one round."""

    def __init__(self):
        self.held = self.reads = 0
        self._small: dict = {}  # device -> [(piece, Coming)]
        self._streams: dict = {}  # device -> streams that made the pieces, by their id
        self._sides: dict = {}  # device -> side stream
        self._large: list = []  # what must stay until its copy is finished

    def is_full(self):
        return self.held > MOST_HELD or self.reads > MOST_READS

    def figures(self, tensor):
        """Read maximum, minimum, sum and L2 norm: four words (``statistics_of``). None if there are none."""
        if not tensor.numel() or tensor.dtype is torch.bool or tensor.is_complex():
            return None
        return self._bring(tensor.device, [_figures(tensor)])

    def sample(self, tensor):
        """Read what shows whether a weight's memory has changed; None if its elements do not fill their memory."""
        pieces = sample_parts(tensor)
        return None if pieces is None else self._bring(tensor.device, pieces)

    def checksum(self, tensor):
        """Read the sums that change if a word of the tensor changes; None as ``sample``."""
        pieces = checksum_parts(tensor)
        return None if pieces is None else self._bring(tensor.device, pieces)

    def copy(self, tensor):
        """Return a copy in C order that stays on the device. It counts as held."""
        self.held += tensor.numel() * tensor.element_size()
        lying = _in_c_order(tensor)
        return lying.clone() if lying.data_ptr() == tensor.data_ptr() else lying

    def elements(self, tensor):
        """Copy a tensor's elements, in C order, to the host."""
        size = tensor.numel() * tensor.element_size()
        if not size:
            return Coming(torch.empty(0, dtype=torch.uint8))
        if size > MOST_HELD:  # a copy on the device would need as much memory again
            self.held += size
            return Coming(_in_c_order(tensor).reshape(-1).cpu().view(torch.uint8))
        self.reads += 1
        flat = self.copy(tensor).reshape(-1).view(torch.uint8)
        device, coming = tensor.device, Coming()
        host = _pinned(size)
        side = self._side(device)
        if side is None:
            host.copy_(flat, non_blocking=True)
        else:
            module = module_of(device.type)
            side.wait_stream(module.current_stream(device))
            with module.stream(side):
                host.copy_(flat, non_blocking=True)
        self._note_stream(device)
        self._small.setdefault(device, [])
        self._large.append((flat, host, coming))
        return coming

    def fetch(self):
        """Wait once for each device; all data that were read are there then."""
        hosts = []
        for device, pieces in self._small.items():
            with _on(device):
                self._wait_for_streams(device)
                host = None
                if pieces:
                    flat = torch.cat([piece for piece, _ in pieces])
                    host = _pinned(flat.numel())
                    host.copy_(flat, non_blocking=True)
                    hosts.append((host, pieces, flat))
                wait_for_stream(device)
        for host, pieces, _ in hosts:
            data, start = bytes(host.numpy()), 0
            for piece, coming in pieces:
                size = piece.numel()
                coming.data = (coming.data or b"") + data[start : start + size]
                start += size
        for _, host, coming in self._large:
            coming.data = host
        self.held = self.reads = 0
        self._small, self._streams, self._large = {}, {}, []

    def _bring(self, device, pieces):
        coming, waiting = Coming(), self._small.setdefault(device, [])
        for piece in pieces:
            flat = piece.reshape(-1).view(torch.uint8)
            self.held += flat.numel()
            waiting.append((flat, coming))
        self.reads += 1
        self._note_stream(device)
        return coming

    def _note_stream(self, device):
        current = _current_stream(device)
        if current is not None:
            self._streams.setdefault(device, {})[_id_of(current)] = current

    def _side(self, device):
        if device not in self._sides:
            module = module_of(device.type)
            self._sides[device] = None
            with contextlib.suppress(Exception):
                self._sides[device] = module.Stream(device)
        return self._sides[device]

    def _wait_for_streams(self, device):
        """Let the current stream wait for all streams that made something for it."""
        current, side = _current_stream(device), self._sides.get(device)
        for stream in (*self._streams.get(device, {}).values(), *([] if side is None else [side])):
            if current is not None and _id_of(stream) != _id_of(current):
                current.wait_stream(stream)


def statistics_on_device(tensor):
    """Return maximum, minimum, mean and L2 norm of a tensor, computed on its device; None if there are none."""
    reader = Reader()
    coming = reader.figures(tensor)
    if coming is None:
        return None
    reader.fetch()
    return statistics_of(coming.data, tensor.numel(), tensor.is_floating_point())


def statistics_of(data, count, is_float):
    """Return maximum, minimum, mean and L2 norm of ``count`` elements from the words of ``Reader.figures``."""
    most, least = struct.unpack_from("=2d" if is_float else "=2q", data)
    total, norm = struct.unpack_from("=2d", data, 2 * WORD)
    return most, least, total / count, norm if norm == norm else math.nan


def sample_parts(tensor):
    """Return pieces on the device that show whether a tensor's memory has changed, as ``sample_of`` on the CPU."""
    size = tensor.numel() * tensor.element_size()
    if size <= WHOLE:
        return checksum_parts(tensor)
    if not fills_its_memory(tensor) or tensor.is_conj() or tensor.is_neg():
        return None
    flat = in_memory_order(tensor)
    flat = (torch.view_as_real(flat).reshape(-1) if flat.is_complex() else flat).view(torch.uint8)
    lines = SAMPLED // LINE
    step = (size - LINE) // (lines - 1) // LINE * LINE
    return [flat.as_strided((lines, LINE), (step, 1), flat.storage_offset()).contiguous()]


def _figures(tensor):
    """Return maximum, minimum, sum and norm as words on the device: float64, or int64 for the first two of integers."""
    flat = in_memory_order(tensor.detach().resolve_neg())
    if flat.dtype not in REDUCED:
        flat = flat.float() if flat.is_floating_point() else flat.long() if flat.dtype in UNSIGNED else flat
    words = torch.empty(4, dtype=torch.int64, device=flat.device)
    numbers, is_float = words.view(torch.float64), flat.is_floating_point()
    least, most = torch.aminmax(flat)
    ends = numbers if is_float else words
    ends[0].copy_(most)
    ends[1].copy_(least)
    if flat.device.type not in _narrow:
        try:
            doubles = flat if is_float else flat.double()
            torch.sum(doubles, (0,), dtype=torch.float64, out=numbers[2])
            torch.linalg.vector_norm(doubles, dtype=torch.float64, out=numbers[3])
            return words
        except (RuntimeError, TypeError):
            _narrow.add(flat.device.type)
    floats = flat.float()
    numbers[2].copy_(floats.sum())
    numbers[3].copy_(torch.linalg.vector_norm(floats))
    return words


def _in_c_order(tensor):
    """Return a tensor's elements in C order on its device, without a copy if they already are."""
    return tensor.detach().resolve_conj().resolve_neg().contiguous()


def _pinned(size):
    """Return memory of the host to which a device can copy without the host; ordinary memory if there is none."""
    try:
        return torch.empty(size, dtype=torch.uint8, pin_memory=True)
    except RuntimeError:
        return torch.empty(size, dtype=torch.uint8)


def _current_stream(device):
    function = getattr(module_of(device.type), "current_stream", None)
    return None if function is None else function(device)


def wait_for_stream(device):
    """Wait until the current stream of a device has finished its work, such as copies to the host."""
    stream = _current_stream(device)
    if stream is None:
        wait(device)
    else:
        stream.synchronize()


def wait_for_copy(inputs, outputs):
    """Wait until a non-blocking copy from a device to the host has arrived."""
    if any(tensor.is_cpu for tensor in outputs):
        for device in {tensor.device for tensor in inputs if not tensor.is_cpu}:
            wait_for_stream(device)


def _id_of(stream):
    return getattr(stream, "stream_id", id(stream))


def _on(device):
    """Return a context in which a device is the current one of its kind."""
    made = getattr(module_of(device.type), "device", None)
    return contextlib.nullcontext() if made is None or device.index is None else made(device)
