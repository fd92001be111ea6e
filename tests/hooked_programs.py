"""A program for the hooks without torch: a module ``torch`` of its own, and a net whose tensors it hands to the session
itself. What the hook of the real torch says of that module is of no interest here."""

import os
import sys
from pathlib import Path

from in_process import called

from sgsdump.cli import main

ROOT = Path(__file__).parents[1]
TORCH = '__version__ = "9.9"\n'
NET = '''
import struct
import sys

import torch

records, hooked = (sys.modules.get(name) for name in ("sgsdump_records", "sgsdump_session"))
session = hooked and hooked.session()


def operator(step, folders, op_type, ins, outs, module):
    """``ins`` and ``outs`` are pairs of value and weight's name; every tensor is 2 x 2."""
    one = records.Operator(folders, op_type=op_type, module=module, model="Net")
    if not session.wants(step, one):
        session.say([session.operator(step, one)], step)
        return
    for side, values in (("in", ins), ("out", outs)):
        for moment in session.moments(side):
            told = []
            for slot, (value, weight) in enumerate(values):
                data = struct.pack("<4f", *[value + step] * 4)
                stats = {"max": value, "min": value, "mean": value, "l2norm": 2.0 * value, "nan": 0}
                held = records.Values("float32", (2, 2), value + 100 * step, stats=stats)
                held.belong(weight)
                told.append(session.tensor((step, one, side, slot, moment), held, data))
            session.say([session.tensors(step, one, side, moment, told)], step)
    session.say([session.operator(step, one, param={"alpha": 1}, nanoseconds=12345)], step)


def forward(step):
    session.begins(step)
    if session.wants_step(step):
        operator(step, ("0_Linear", "0_addmm"), "aten.addmm", [(1, ""), (2, "root.fc.weight")], [(3, "")], "root.fc")
        operator(step, ("0_Linear", "1_relu"), "aten.relu", [(3, "")], [(4, "")], "root.fc")
        operator(step, ("1_Softmax", "0_softmax"), "aten.softmax", [(4, "")], [(5, "")], "root.softmax")
'''
MAIN = """
for step in range(3):
    forward(step)
print("result 42")
sys.exit(int(sys.argv[1]) if len(sys.argv) > 1 else 0)
"""


def program(folder, main=MAIN, name="infer.py"):
    """Write the program and its ``torch`` into a folder; returns the program's path."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "torch.py").write_text(TORCH)
    path = folder / name
    path.write_text(NET + main)
    return path


def environment(**more):
    """What a command of the checkout needs, wherever it is started; ``python`` is the one that runs the tests."""
    own = {name: value for name, value in os.environ.items() if not name.startswith("SGSDUMP")}
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
    return {**own, "PATH": path, "PYTHONPATH": str(ROOT), **more}


def sgsdump(*words, cwd, **more):
    """Run a command as a user would; the texts of both outputs and the status."""
    arguments = list(map(str, words))
    return called(lambda: main(arguments), cwd, environment(**more), arguments)


def trees(folder):
    return sorted(folder.glob("msit_dump_*"))
