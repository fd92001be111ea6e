"""What people see on a terminal, as wide as its window; the commands print it."""
