"""Dump a model by any executor; bisection to the first difference; stand-alone test cases."""

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
