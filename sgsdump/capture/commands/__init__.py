"""The commands ``exec``, ``check`` and ``sgsdump-msit``."""
