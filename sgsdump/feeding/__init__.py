"""The parts of ``inputs.py``: what -i may name, pictures, the user's preprocess file."""
