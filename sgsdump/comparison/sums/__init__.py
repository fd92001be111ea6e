"""Sums of a pair of tensors: ``tiles`` defines their order, ``by_numpy`` and the compiled kernel compute them."""
