"""Plants for tools/culprits.py: a module for each group."""
