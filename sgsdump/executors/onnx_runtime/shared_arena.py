"""One pool of memory for all sessions that run parts of a model.

Without a pool every tensor is fresh pages from the system, which then clears them: half as much time again. With a pool
for each session, every part of the model keeps what only it can use. This one is onnxruntime's, for the whole process,
made with the first session that asks for it; it keeps for the next session what the largest part needed.
"""

from __future__ import annotations

from contextlib import suppress
from functools import cache

import onnxruntime as ort

# Grow by what is asked for, not to the next power of two.
AS_REQUESTED = 1


def use_shared_arena(options: ort.SessionOptions) -> None:
    """Have a session take its tensors' memory from the pool."""
    _register()
    options.enable_cpu_mem_arena = True
    options.add_session_config_entry("session.use_env_allocators", "1")


@cache
def _register() -> None:
    memory = ort.OrtMemoryInfo("Cpu", ort.OrtAllocatorType.ORT_ARENA_ALLOCATOR, 0, ort.OrtMemType.DEFAULT)
    with suppress(RuntimeError):  # the program around us has made one already, which will do
        ort.create_and_register_allocator(memory, ort.OrtArenaCfg({"arena_extend_strategy": AS_REQUESTED}))
