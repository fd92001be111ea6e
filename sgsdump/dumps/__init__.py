"""A dump, the formats it is stored in, and conversion, splitting and merging."""
