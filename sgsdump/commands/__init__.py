"""The subcommands, one thin file each: a docstring (``--help`` shows it, with examples), HELP, add_arguments, run.

A command module imports nothing heavy at its top, so that ``sgsdump --help`` answers at once.
"""

from sgsdump.registry import Registry

COMMANDS = Registry(
    "command",
    {
        "dump": "sgsdump.commands.dump",
        "exec": "sgsdump.commands.exec",
        "pipeline": "sgsdump.commands.pipeline",
        "calibrate": "sgsdump.commands.calibrate",
        "simulate": "sgsdump.commands.simulate",
        "compare": "sgsdump.commands.compare",
        "report": "sgsdump.commands.report",
        "histogram": "sgsdump.commands.histogram",
        "convert": "sgsdump.commands.convert",
        "show": "sgsdump.commands.show",
        "split": "sgsdump.commands.split",
        "merge": "sgsdump.commands.merge",
        "advise": "sgsdump.commands.advise",
        "repair": "sgsdump.commands.repair",
        "tune": "sgsdump.commands.tune",
        "demo": "sgsdump.commands.demo",
        "cfg": "sgsdump.commands.cfg",
    },
)
