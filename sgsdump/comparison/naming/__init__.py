"""Which name of one dump is which of the other: the files that say so, and their reading functions by kind."""

from sgsdump.registry import Registry

NAME_FILES = Registry(
    "name file",
    {
        "name_map": "sgsdump.comparison.naming.name_map:read",
        "mindie_map": "sgsdump.comparison.naming.mindie_map:read",
        "ge_graph": "sgsdump.comparison.naming.ge_graph:read",
        "layer_mapping": "sgsdump.comparison.naming.layer_mapping:read",
        "name_rules": "sgsdump.comparison.naming.name_rules:read",
    },
)
