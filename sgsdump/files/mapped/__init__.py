"""Files mapped into memory: views of their bytes, reading them and writing them on without holding them."""
