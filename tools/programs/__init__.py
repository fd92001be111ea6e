"""Programs of public model libraries, each a small network with random weights; see ``public_programs.py``."""
