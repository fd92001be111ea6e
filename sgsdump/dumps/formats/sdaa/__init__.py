"""The SDAA dump tool's folders: ``dump_info.json``, ``inputs/``, ``outputs/``."""
