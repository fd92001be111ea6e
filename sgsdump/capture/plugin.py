"""What this plug-in adds to the core."""

from sgsdump.plugins import Command, Plugin

PLUGIN = Plugin(
    commands={
        "exec": Command(
            "sgsdump.capture.commands.exec", "dump a program that runs: torch and onnxruntime", "dump", after="dump"
        ),
        "check": Command(
            "sgsdump.capture.commands.check",
            "judge each operator of a program's run alone",
            "compare and look",
            after="judge",
        ),
    },
    names={"capture": "sgsdump.capture.programs.capture", "DumpControl": "sgsdump.capture.programs.control"},
)
