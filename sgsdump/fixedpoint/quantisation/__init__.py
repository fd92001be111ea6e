"""Ranges -> quant plan -> fixed model -> simulation; the levels L1 to L5."""
