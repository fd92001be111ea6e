"""Trees and folders with the dumps of several runs: which there are, which is meant, which belong together."""
