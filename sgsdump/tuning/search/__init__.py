"""The search for the best plans of each size, and for the smallest that reaches a target."""
