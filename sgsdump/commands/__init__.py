"""The subcommands, a thin file or folder each: a docstring (``--help`` shows it, with examples), add_arguments, run.

``sgsdump --help`` imports none of them: what it says of each stands here. A command module imports nothing heavy at its
top, so that its own ``--help`` answers at once too.
"""

from sgsdump.registry import Registry

GROUPS = {
    "begin with": {
        "demo": "the whole loop on an embedded sample",
        "diagnose": "the whole loop on your model: where accuracy is lost and what to do, as one page",
        "cfg": "write a copy of a configuration file to start from",
        "completion": "have the shell complete sgsdump's commands and options",
    },
    "make the fixed model": {
        "calibrate": "pictures + float model -> fixed model and tensor ranges",
        "cure": "rewrite the float model so that 8 bits lose less",
        "advise": "which convolutions need INT16 inputs, and why",
        "repair": "raise convolutions to INT16 until the outputs are good",
        "tune": "find and verify the smallest set of INT16 convolutions",
    },
    "dump": {
        "dump": "every layer of a model into one dump",
        "simulate": "run one picture through a float or fixed model, dump its layers",
        "pipeline": "every tensor of an ONNX model as an executor computes it; golden comparison",
        "exec": "dump a program that runs: torch and onnxruntime",
    },
    "compare and look": {
        "compare": "compare two dumps layer by layer",
        "judge": "is a run as good as an accepted one, both compared with a golden run",
        "check": "judge each operator of a program's run alone",
        "report": "write the comparison of two dumps as an HTML file to look at",
        "histogram": "draw every layer's values against its calibrated range",
    },
    "any dump": {
        "show": "list the tensors of a dump, or print one",
        "convert": "write a dump in another format",
        "split": "split a dump into one file per tensor, or per pattern",
        "merge": "merge several dumps into one",
    },
}
HELP = {name: text for group in GROUPS.values() for name, text in group.items()}

# judge stands in the folder of compare, whose options and output it shares.
_MODULES = {
    "judge": "commands.compare.judge",
    "pipeline": "pipeline.command",
    **{
        name: f"fixedpoint.commands.{name}"
        for name in ("advise", "calibrate", "cfg", "cure", "demo", "diagnose", "repair", "simulate", "tune")
    },
    **{name: f"capture.commands.{name}" for name in ("check", "exec")},
}
COMMANDS = Registry("command", {name: f"sgsdump.{_MODULES.get(name, f'commands.{name}')}" for name in HELP})
