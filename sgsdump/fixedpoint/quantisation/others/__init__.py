"""Networks quantised by others, beside the float network they were made from."""
