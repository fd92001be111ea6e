"""Dump a program that runs: what is dumped (``control``), how a program is run and hooked, and the trees that result.

control.py        DumpControl: the one record of what is dumped, whichever front door it came through
steps.py names.py the vendors' words for steps, ids, devices, names
front_door.py     what was asked for in a vendor's options -> DumpControl; configs/ their JSON files
program.py        runs the program; process_index.py reads what its processes wrote of themselves
tensor_tree.py    the tree of tensors, made of that while the program runs (meanwhile.py)
known_names.py    operators that were asked for and do not run; operator_types.py: types that there may be
trees/            what belongs beside the tensors
replay/           runs of onnxruntime: computed again from what was captured, a dump for each
hook/             what is put into the program's process; the standard library, torch and onnxruntime only
"""
