"""The three-way comparison: is the run under test as good as an accepted one, both held against a golden run?

Source: the dump tools of the SDAA ONNX pipeline. With e the sample, c the benchmark and g the golden values::

    diff2                     sqrt(Σ(e-c)² / Σc²), in float32
    diff3(x, g)               for each value  |g| > th1:  |x-g| / (|g| + 1e-9),  else  |x-g|
    diff3_max_sw, _mean_sw    largest and mean diff3(e, g)
    diff3_max_g, _mean_g      largest and mean diff3(c, g)
    pass                      sw <= g * tag, for the largest and for the mean; with g = 0 only sw = 0 passes, and a
                              benchmark error that is infinite or NaN never counts as a pass

Without golden it is a comparison of two: diff2, and ``all_close``: every |e-c| <= th1 + th1 |c|, NaN equal to NaN.
diff2 and all_close are taken in float32, diff3 in the wider of both dtypes (at least float32), over whole arrays, so
that the digits are that tool's. Integers are taken in float64 throughout, the differences of those of 64 bits exactly;
a complex value is its two parts.

``by_file.compare_files`` pairs equal file names, ``by_tensor.compare_golden`` the tensors of any dumps;
``reports/golden/log.py`` prints either. ``formulas.py`` has the errors, ``measure.py`` makes a row of arrays.
"""
