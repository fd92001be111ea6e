"""Dump of a running program: selection of tensors, the hooked run, and the resulting trees.

control.py         DumpControl: the record that selects what is dumped, and the vendors' syntax of its fields
options.py         a vendor's options -> DumpControl; acl_json.py: the file that TorchAir accepts too
program.py         runs the program; process_index.py reads the indexes that its processes wrote
tensor_tree.py     the tree of tensors, built from the indexes while the program runs
msit_tree.py       the files beside the tensors, built from the operations of a step
replay.py          onnxruntime runs (captured_models.py) computed again, one dump each; agreement.py compares
operator_names.py  requested operators that did not run
one_pass.py        the hooks' compiled kernel, for dumps from within a program
hook/              code that runs in the program's process; uses the standard library, torch and onnxruntime only
"""
