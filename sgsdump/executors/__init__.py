"""Table of the built-in executors, by the name that users give.

``base.py`` is the contract that every executor implements; ``table.py`` opens an executor by name.

Another package adds its own executor by an entry point::

    [project.entry-points."sgsdump.executors"]
    mine = "my_package.my_module:MyExecutor"
"""

ENTRY_POINTS = "sgsdump.executors"
EXECUTORS = {
    "ort": "sgsdump.executors.ort:OrtExecutor",
    "reference": "sgsdump.executors.reference:ReferenceExecutor",
    "openvino": "sgsdump.executors.openvino:OpenvinoExecutor",
    "tvm": "sgsdump.executors.tvm:TvmExecutor",
    "sdaa": "sgsdump.executors.sdaa:SdaaExecutor",
}
