"""Every integer of small whole networks that the vendor's tools made after the rules were known, from the picture on.

What each one has: tests/golden/README.md.
"""

from dataclasses import replace

import numpy as np
import pytest
from vendor_probes import Probe

from sgsdump.fixedpoint.quantisation.simulation import simulate

# How many tensors are the vendor's by name; of two kinds it makes others: an upsampled one has the name of its TILE,
# a Concat whose inputs are aligned to 8 channels has more channels.
NETWORKS = {
    **{"net_dark": 14, "net_res": 11, "net_se": 10, "net_group": 8},
    **{"n_resblock": 8, "n_ip": 6, "n_ipbn": 5},  # layers in place
}


@pytest.mark.parametrize("name", NETWORKS)
def test_every_integer_chained_from_the_picture(shared, name):
    probe = Probe(shared / "sigmastar/probes" / name)
    records = simulate(replace(probe.model, proto=probe.fixed.proto), probe.picture, dequantise=False).records
    ours = {r.name: r.tensor.stored() for r in records if not r.constant}
    checked = [each for each in ours if each in probe.vendor]
    assert len(checked) >= NETWORKS[name]
    for each in checked:
        vendor = probe.vendor[each]
        assert ours[each].dtype == vendor.dtype, each
        np.testing.assert_array_equal(ours[each].reshape(-1), vendor.reshape(-1), each)
