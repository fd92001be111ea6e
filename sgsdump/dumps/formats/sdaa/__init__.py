"""Dump folders of the SDAA dump tool: ``dump_info.json``, ``inputs/``, ``outputs/``."""
