"""Dump a model with any executor, bisect to the first difference, and save stand-alone test cases."""

from sgsdump.plugins import Command, Plugin

PLUGIN = Plugin(
    commands={
        "pipeline": Command(
            "sgsdump.pipeline.command",
            "dump and compare the tensors of an ONNX model",
            "dump",
            after="dump",
        )
    }
)
