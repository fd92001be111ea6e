"""Reader of Caffe models (https://caffe.berkeleyvision.org): a prototxt with the network, a caffemodel with weights.

prototxt.py       text -> layers with line numbers
net.py            layers of the TEST phase up to the post-processing, and inputs
weights.py        blobs of the caffemodel as arrays
schema.py         used part of the messages of both files
stages.py         tensor names of the SDK
layers/           one function per layer type, grouped by subject
layer_builder.py  helper with which layer functions write ONNX nodes
onnx_graph.py     network and weights -> ModelProto
"""
