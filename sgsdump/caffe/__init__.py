"""Caffe nets: reading a prototxt and a caffemodel, and saying in ONNX what their layers compute.

schema.py  the messages, as far as they are used       net.py      layers of the TEST phase, in order
weights.py the caffemodel's blobs as arrays            piece.py    the ONNX nodes one layer becomes
onnx_graph.py  net + weights -> ModelProto             layers/     one function per layer type
"""
