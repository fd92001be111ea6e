"""Table of the runtimes for models that only their own framework runs, by ``Native.runtime``.

``base.py`` is the contract of a runtime.
"""

from sgsdump.registry import Registry

RUNTIMES = Registry(
    "runtime",
    {
        "tflite": "sgsdump.executors.native.litert:LiteRt",
        "openvino": "sgsdump.executors.native.openvino_ir:OpenvinoIr",
    },
)
