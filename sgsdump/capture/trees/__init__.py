"""What belongs beside the tensors of a hooked program in msit's tree; the hooks' index is all it is made of.

operations.py   an index's lines of one step -> its operations, nested, with what they read and write
topology.py     model/ and layer/: the JSON of models and layers, and their .onnx
tables.py       operation_io_tensors/ and cpu_profiling/
msit_tree.py    the whole tree, its index written last
"""
