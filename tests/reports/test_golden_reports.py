"""The log of a comparison with golden."""

import numpy as np

from sgsdump.comparison.golden import GoldenSettings, compare_files
from sgsdump.reports.golden import golden_lines


def test_goldens_own_differences_are_multiplied_by_the_tag():
    golden = np.array([1.0, 2.0])
    sides = [{"x.npy": lambda values=values: values} for values in (golden, golden + 0.5, golden)]
    (line,) = golden_lines(compare_files(*sides, GoldenSettings(4.0))).splitlines()
    products = dict(part.split(": ") for part in line.split(" | ") if part.startswith(("diff3_max_g", "diff3_mean_g")))
    assert len(products) == 2
    for text in products.values():
        difference, tag, product = (float(number) for number in text.replace("=", "*").split("*"))
        assert tag == 4.0 and difference > 0 and product == 4 * difference
