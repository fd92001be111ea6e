"""Caffe nets: reading a prototxt and a caffemodel, and saying in ONNX what their layers compute.

schema.py      the messages, as far as they are used
prototxt.py    text -> layers, with their lines
net.py         what of them is there in the TEST phase, up to the post-processing, and the inputs
weights.py     the caffemodel's blobs as arrays
piece.py       the ONNX nodes one layer becomes
layers/        one function per layer type, grouped by idea
onnx_graph.py  net + weights -> ModelProto
"""
