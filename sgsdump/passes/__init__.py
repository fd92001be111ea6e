"""Graph passes, imported by name from their own modules.

topology (sort the nodes), segment (cut, sub-model), fold_constants, fold_batchnorm, mark_outputs,
quantise (the fixed model).
"""
