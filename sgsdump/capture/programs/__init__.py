"""Dump a program that runs: what is dumped, how a program is run and hooked, and the trees that result.

control.py         DumpControl: the one record of what is dumped, and the vendors' words for its fields
options.py         a vendor's options -> DumpControl; acl_json.py: the file that TorchAir takes too
program.py         runs the program; process_index.py reads what its processes wrote of themselves
tensor_tree.py     the tree of tensors, made of that while the program runs
msit_tree.py       the files beside the tensors, made of the operations of a step
replay.py          runs of onnxruntime (captured_models.py) computed again, a dump for each; agreement.py compares
operator_names.py  operators that were asked for and do not run
one_pass.py        the hooks' compiled kernel, for what dumps a program from within
hook/              what is put into the program's process; the standard library, torch and onnxruntime only
"""
