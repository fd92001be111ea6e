"""Files that map the names of one dump to those of the other, and their reading functions by kind."""

from sgsdump.registry import Registry

NAME_FILES = Registry(
    "name file",
    {
        "name_map": "sgsdump.comparison.naming.name_files:read_name_map",
        "mindie_map": "sgsdump.comparison.naming.operator_maps:read_mindie_map",
        "ge_graph": "sgsdump.comparison.naming.operator_maps:read_ge_graph",
        "layer_mapping": "sgsdump.comparison.naming.name_files:read_layers",
        "name_rules": "sgsdump.comparison.naming.name_files:read_rules",
    },
)
