"""The float model as it is opened and written: external weights, a model too large for a file."""

import numpy as np
import onnx
import pytest
from small_nets import single_convolution, weights

from sgsdump.errors import ModelError
from sgsdump.fixedpoint.quantisation.float_model import serialise, simplify
from sgsdump.models.graph import Graph
from sgsdump.models.model import open_model


def test_a_model_that_cannot_be_written_is_a_model_error():
    class TooLarge:
        def SerializeToString(self):
            raise ValueError("Failed to serialize proto")

    with pytest.raises(ModelError, match="does not fit into one ONNX file of 2 GB: Failed to serialize proto"):
        serialise(TooLarge())
    assert onnx.load_from_string(serialise(single_convolution().proto)).graph.node[0].op_type == "Conv"


def test_external_weights_are_read_when_the_model_is_simplified(tmp_path):
    net = single_convolution()
    onnx.save(net.proto, tmp_path / "net.onnx", save_as_external_data=True, location="net.data", size_threshold=0)
    opened = simplify(open_model(tmp_path / "net.onnx"))
    (tmp_path / "net.data").unlink()
    assert opened.folder is None
    given = weights("c", (4, 3, 1, 1))["c.w"]
    np.testing.assert_array_equal(Graph(opened.proto).value("c.w"), given)


def test_external_weights_that_are_not_there_are_a_model_error(tmp_path):
    onnx.save(
        single_convolution().proto,
        tmp_path / "net.onnx",
        save_as_external_data=True,
        location="net.data",
        size_threshold=0,
    )
    opened = open_model(tmp_path / "net.onnx")
    (tmp_path / "net.data").unlink()
    with pytest.raises(ModelError, match=r"net\.onnx: its external weights cannot be read"):
        simplify(opened)
