"""The plug-in for fixed point: calibrate, simulate, diagnose, cure and tune a model."""
