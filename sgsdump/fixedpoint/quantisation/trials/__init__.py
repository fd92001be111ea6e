"""Trying quant plans on a few pictures, to decide ranges and bits by what the outputs say."""
