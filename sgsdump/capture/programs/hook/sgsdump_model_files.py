"""Preservation of a program's model file and its external data: the program may delete or overwrite them.

A file of up to 64 MiB is copied. A larger one becomes a hard link, which costs nothing and survives deletion but not
overwriting; its size and time show whether it was overwritten. If links are impossible, it is copied too.

Of ONNX's protobuf only the places of external data are read: ModelProto.graph (7), GraphProto.initializer (5) and
.node (1), NodeProto.attribute (5), AttributeProto.t (5), TensorProto.external_data (13), whose StringStringEntryProto
has key (1) and value (2).
"""

import mmap
import os

COPIED = 64 << 20
LOCATION = b"location"
# Field numbers from the model to the external data of a weight and of a constant.
PATHS = ((7, 5, 13), (7, 1, 5, 5, 13))


class Kept:
    """A preserved model file.

    file     path below the dump's root; None with the reason ``why``.
    linked   True if it is still the program's own file; ``changed``: the file has been written since.
    """

    def __init__(self, file, why="", linked=False, loaded_as=None, changed=False):
        self.file, self.why, self.linked, self.loaded_as, self.changed = file, why, linked, loaded_as, changed


def write(session, data, folder, beside):
    """Write a model given as bytes, whose external data are in ``beside``."""
    file = session.write(f"{folder}/model.onnx", data)
    _keep_data(session, _locations(data), beside, folder)
    return Kept(file, "" if file else session.stopped)


def keep(session, path, folder, dumped, before=None):
    """Preserve a model's file.

    ``dumped``: the file will be read for certain. ``before`` is the result of an earlier call.
    """
    name = f"{folder}/model{os.path.splitext(path)[1] or '.onnx'}"
    linked = before is not None and before.file is not None
    source = os.path.join(session.root, before.file) if linked else path
    try:
        status = os.stat(source)
    except OSError as error:
        return Kept(None, f"{path}: {error.strerror}")
    loaded_as = (status.st_size, status.st_mtime_ns)
    changed = before is not None and before.loaded_as not in (None, loaded_as)
    if not dumped:
        return Kept(_link(session, path, name), "the dump was not active when it was loaded", True, loaded_as)
    file = None
    if status.st_size > COPIED:
        file = before.file if linked else _link(session, path, name)
    is_link = file is not None
    if file is None:
        file = session.copy(source, name)
    with open(source, "rb") as opened, mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ) as data:
        locations = _locations(data)
    _keep_data(session, locations, os.path.dirname(path), folder)
    return Kept(file, "" if file else session.stopped, is_link, loaded_as, changed)


def _keep_data(session, locations, beside, folder):
    for location in locations:
        source, name = os.path.join(beside, location), f"{folder}/{location}"
        if os.path.isabs(location) or ".." in location.replace("\\", "/").split("/") or not os.path.isfile(source):
            continue
        if os.path.getsize(source) <= COPIED or _link(session, source, name) is None:
            session.copy(source, name)


def _link(session, source, name):
    """Create a hard link in the process's folder; return its path below the root, None if links are impossible."""
    file = f"processes/{session.pid}/{name}"
    target = os.path.join(session.root, file)
    try:
        os.makedirs(os.path.dirname(target), mode=0o750, exist_ok=True)
        if not os.path.lexists(target):
            os.link(os.path.realpath(source), target)
    except OSError:
        return None
    return file


def _locations(data):
    """Return the files with external data, relative to the model's folder; none for data other than ONNX."""
    locations: set = set()
    try:
        for path in PATHS:
            _down(data, 0, len(data), path, locations)
    except (IndexError, ValueError):
        pass
    return sorted(locations)


def _down(data, start, end, path, locations):
    for number, begin, stop in _fields(data, start, end):
        if number != path[0]:
            continue
        if len(path) > 1:
            _down(data, begin, stop, path[1:], locations)
            continue
        entry = {field: data[first:last] for field, first, last in _fields(data, begin, stop)}
        if entry.get(1) == LOCATION and len(entry.get(2, b"")) < 4096:
            locations.add(entry.get(2, b"").decode("utf-8", "surrogateescape"))


def _fields(data, at, end):
    """Yield number, first byte and end of a message's length-delimited fields."""
    while at < end:
        tag, at = _varint(data, at)
        kind = tag & 7
        if kind == 0:
            _, at = _varint(data, at)
        elif kind == 1:
            at += 8
        elif kind == 5:
            at += 4
        elif kind == 2:
            size, at = _varint(data, at)
            if at + size > end:
                raise ValueError("a protobuf message is cut off")
            yield tag >> 3, at, at + size
            at += size
        else:
            raise ValueError("not a protobuf message")


def _varint(data, at):
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
        shift += 7
        if shift > 63:
            raise ValueError("not a protobuf number")
