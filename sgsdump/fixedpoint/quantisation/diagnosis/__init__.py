"""A float model and its fixed model on several pictures: what is diagnosed, on what, and how far the two are apart."""
