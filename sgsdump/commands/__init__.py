"""The subcommands, one thin file each: a docstring (``--help`` shows it, with examples), add_arguments, run.

``sgsdump --help`` imports none of them: what it says of each stands here. A command module imports nothing heavy at its
top, so that its own ``--help`` answers at once too.
"""

from sgsdump.registry import Registry

HELP = {
    "diagnose": "where accuracy is lost and what to do: the whole loop, one page",
    "dump": "every layer of a model into one dump",
    "exec": "dump a program that runs: torch and onnxruntime",
    "pipeline": "every tensor of an ONNX model as an executor computes it; golden comparison",
    "calibrate": "pictures + float model -> fixed model and tensor ranges",
    "simulate": "run one picture through a float or fixed model, dump its layers",
    "compare": "compare two dumps layer by layer",
    "report": "write the comparison of two dumps as an HTML file to look at",
    "histogram": "draw every layer's values against its calibrated range",
    "convert": "write a dump in another format",
    "show": "list the tensors of a dump, or print one",
    "split": "split a dump into one file per tensor, or per pattern",
    "merge": "merge several dumps into one",
    "advise": "which convolutions need INT16 inputs, and why",
    "repair": "raise convolutions to INT16 until the outputs are good",
    "tune": "find and verify the smallest set of INT16 convolutions",
    "demo": "the whole loop on an embedded sample",
    "cfg": "write a copy of a configuration file to start from",
}

COMMANDS = Registry("command", {name: f"sgsdump.commands.{name}" for name in HELP})
