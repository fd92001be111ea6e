"""A runtime in its own process: ``python -m sgsdump.executors.native.worker``.

Questions arrive on standard input; answers go to standard output. Each is one message::

    message := uint32 size of a JSON document, the document, then the bytes of each entry of its "arrays"
    array   := {"dtype": its name, "shape": [...], "size": bytes}

    question                                                    answer
    {"load": runtime, "path": ..., "tensors": [key, ...]}       {}
    {"run": [key of each array]} and arrays                     {}
    {"value": key}                                              {} and an array
                                                                {"error": kind of error, "reason": one line}

The framework's printed output is discarded; its errors contain the same text.
"""

from __future__ import annotations

import json
import os
import signal
import struct
import sys
from collections.abc import Sequence
from typing import IO, Any

import numpy as np

from sgsdump import errors
from sgsdump.executors.native import RUNTIMES
from sgsdump.executors.native.base import Runtime
from sgsdump.tensors.dtypes import dtype_named, name_of

MOST_BYTES = 64 << 20


def send(file: IO[bytes], document: dict[str, Any], arrays: Sequence[np.ndarray] = ()) -> None:
    arrays = [np.ascontiguousarray(array).reshape(array.shape) for array in arrays]
    facts = [{"dtype": name_of(a.dtype), "shape": list(a.shape), "size": a.nbytes} for a in arrays]
    text = json.dumps(document | {"arrays": facts}).encode()
    file.write(struct.pack("<I", len(text)) + text)
    for array in arrays:
        file.write(array.tobytes())
    file.flush()


def receive(file: IO[bytes]) -> tuple[dict[str, Any], list[np.ndarray]]:
    """Read one message. Raises EOFError if the other process has ended."""
    (size,) = struct.unpack("<I", _bytes(file, 4))
    if size > MOST_BYTES:
        raise EOFError
    document = json.loads(_bytes(file, size))
    arrays = [
        np.frombuffer(bytearray(_bytes(file, facts["size"])), dtype_named(facts["dtype"])).reshape(facts["shape"])
        for facts in document.pop("arrays")
    ]
    return document, arrays


def _bytes(file: IO[bytes], size: int) -> bytes:
    data = file.read(size)
    if len(data) < size:
        raise EOFError
    return data


def _answer(runtime: Runtime | None, question: dict[str, Any], arrays: list[np.ndarray]) -> tuple[Any, list]:
    if "load" in question:
        tensors = [tuple(key) for key in question["tensors"]]
        return RUNTIMES[question["load"]](question["path"], tensors), []
    assert runtime is not None
    if "run" in question:
        runtime.run({tuple(key): array for key, array in zip(question["run"], arrays)})
        return runtime, []
    return runtime, [runtime.value(tuple(question["value"]))]


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is handled by the parent alone
    questions, answers = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    runtime: Runtime | None = None
    while True:
        try:
            question, arrays = receive(questions)
        except EOFError:
            return
        try:
            runtime, given = _answer(runtime, question, arrays)
            send(answers, {}, given)
        except errors.SgsdumpError as error:
            send(answers, {"error": type(error).__name__, "reason": str(error)})
        except Exception as error:
            send(answers, {"error": "", "reason": " ".join(str(error).split())[:300] or type(error).__name__})


if __name__ == "__main__":
    main()
