"""Public functions of fixed point, one per command: calibrate, cure, diagnose, simulate and tune."""
