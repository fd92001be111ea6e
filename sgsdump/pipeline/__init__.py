"""Dump a model with any executor, bisect to the first difference, and save stand-alone test cases."""

from sgsdump.plugins import Command, Plugin

PLUGIN = Plugin(
    commands={
        "pipeline": Command(
            "sgsdump.pipeline.command",
            "every tensor of an ONNX model as an executor computes it; golden comparison",
            "dump",
            after="dump",
        )
    }
)
