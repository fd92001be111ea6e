"""The vendors' JSON files that say what is dumped.

acl_json.py    the "dump" section of acl.json, which TorchAir's dump_config_path takes too
acl_checks.py  the vendor's checks of it; acl_path.py those of the folder it names
acl_use.py     what such a file means as a DumpControl
msit_json.py   msit llm dump's own file, all of whose values are text
live.py        a file that is edited while the program runs
"""
