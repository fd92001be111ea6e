"""Caffe models (https://caffe.berkeleyvision.org): a prototxt with the net, a caffemodel with its weights.

prototxt.py       text -> layers, with their lines
net.py            what of them is there in the TEST phase, up to the post-processing, and the inputs
weights.py        the caffemodel's blobs as arrays; schema.py the messages of both files, as far as they are used
stages.py         the SDK's names of the tensors
layers/           one function per layer type, grouped by idea; layer_builder.py is what they write ONNX nodes with
onnx_graph.py     net + weights -> ModelProto
"""
