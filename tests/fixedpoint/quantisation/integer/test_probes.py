"""Every integer of the vendor's probe networks: chained from the picture by our ONNX file, and operator by operator,
each fed the vendor's own inputs, by the ONNX file and by the reference in numpy.
"""

from dataclasses import replace

import integer_reference as rule
import numpy as np
import pytest
from integer_operators import operator_output, rows_of
from onnx_part import STORED, part_outputs
from vendor_probes import PROBES, Probe

from sgsdump.fixedpoint.quantisation.simulation import simulate


@pytest.fixture(scope="module", params=PROBES)
def probe(request, shared):
    return Probe(shared / f"sigmastar/probes/{request.param}")


@pytest.fixture(scope="module")
def records(probe):
    """What we dump of the whole net, chained from the picture."""
    return list(simulate(replace(probe.model, proto=probe.fixed.proto), probe.picture, dequantise=False).records)


@pytest.fixture(scope="module")
def stored(probe, records):
    """The vendor's integers under our names, in the layout of the model: NCHW."""
    ours = {r.name: r.tensor.stored() for r in records if not r.constant}
    found = {}
    for name, array in ours.items():
        vendor = probe.vendor.get(name)
        if vendor is None:  # the converter has no such tensor: a Flatten's output, moved from the one before it
            continue
        assert vendor.dtype == array.dtype and vendor.size == array.size, name
        shaped = vendor.reshape(array.shape)
        found[name] = np.moveaxis(shaped, -1, 1) if shaped.ndim == 4 else shaped
    # The vendor dumps the picture's bytes as they came.
    (entry,) = probe.config.inputs
    found["data"] = rule.picture(found["data"], entry.mean[0], entry.std[0], probe.scales["data"]).astype(np.uint8)
    for op in probe.fixed.plan.operators:
        if op.outputs[0] not in found and op.head.op_type == "Flatten":
            found[op.outputs[0]] = found[op.inputs[0]].reshape(found[op.inputs[0]].shape[0], -1)
    return found


def test_every_integer_chained_from_the_picture(probe, records):
    ours = {r.name: r.tensor for r in records if not r.constant and r.io == "out"}
    checked = [name for name in ours if name in probe.vendor]
    assert len(checked) >= 3
    for name in checked:
        vendor, array = probe.vendor[name], ours[name].stored()
        assert array.dtype == vendor.dtype, name
        np.testing.assert_array_equal(array.reshape(-1), vendor.reshape(-1), name)
    missing = {r.name for r in probe.dump.records if r.io == "out"} - set(ours)
    assert all("#" in name or name.endswith(("_output", "_reshape")) for name in missing), missing


def test_every_row_of_bias_and_multiplier(probe, records):
    ours = {r.name: r.tensor.stored() for r in records if r.constant and r.tensor.info.dtype == np.int16}
    vendor = {r.name: r.tensor.stored().reshape(2, -1) for r in probe.dump.records if r.name.endswith("_bias")}
    assert vendor
    for name in vendor:
        np.testing.assert_array_equal(ours[name], vendor[name], name)


def test_every_operator_by_the_reference(probe, stored):
    checked = 0
    for op in probe.fixed.plan.operators:
        name = op.outputs[0]
        if name not in probe.vendor:
            continue
        for output, array in operator_output(probe, op, stored).items():
            np.testing.assert_array_equal(array, stored[output], output)
            checked += 1
    assert checked


def test_every_operator_by_its_part_of_the_onnx_file(probe, stored):
    for op in probe.fixed.plan.operators:
        names = [name for name in op.outputs if name in stored]
        if not names:
            continue
        feeds = {STORED.format(name): stored[name] for name in op.inputs}
        outputs = part_outputs(probe.fixed.proto, feeds, [STORED.format(name) for name in names])
        for name, array in zip(names, outputs, strict=True):
            np.testing.assert_array_equal(array, stored[name], name)


def test_the_rows_of_the_reference(probe):
    checked = 0
    for op in probe.fixed.plan.operators:
        if op.outputs[0] in probe.vendor:
            for name, rows in rows_of(probe, op).items():
                np.testing.assert_array_equal(rows, probe.vendor[name].reshape(2, -1), name)
                checked += 1
    assert checked
