"""Models and feeds that the hook of onnxruntime took: run again segment by segment, every tensor dumped.

captured.py   the hook's index -> models, and their runs with feeds and outputs
selection.py  a DumpControl -> the tensors of a model that are dumped
agreement.py  a replayed output against the program's own
run_dump.py   one run into one dump
replay.py     all runs of a program into the tree, the index last
"""
