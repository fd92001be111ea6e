"""The inputs of a run: what the user gives, on the command line too, and random values for the rest."""
