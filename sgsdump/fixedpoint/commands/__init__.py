"""The commands that make, run and diagnose a fixed model."""
