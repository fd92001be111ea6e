"""A dump as a list, or one tensor as text."""
