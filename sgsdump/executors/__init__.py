"""The executors, by the name users give: the table of the family; ``base.py`` is the contract, ``table.py`` opens one.

Another package adds its own by an entry point:

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
