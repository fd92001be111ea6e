"""The tensors of one run of a model, one after another, by any executor."""
