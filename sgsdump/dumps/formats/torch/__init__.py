"""Files and trees of PyTorch, read without torch."""
