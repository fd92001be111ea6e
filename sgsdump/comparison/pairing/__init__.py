"""Which tensor of the sample is held against which of the benchmark, and which are left out."""
