"""Trials of quant plans on a few images, which decide ranges and bits by the effect on the outputs."""
