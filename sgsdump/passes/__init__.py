"""Graph passes, imported by name from their own modules: topology (order, needs), segment (cut, sub-model)."""
