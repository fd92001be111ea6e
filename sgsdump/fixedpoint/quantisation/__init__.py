"""Quantisation: calibration ranges, quant plan, fixed model and simulation; calibration levels L1 to L5."""
