"""The side files: name -> the function that reads it."""

from sgsdump.family import Family

SIDECARS = Family(
    "side file",
    {
        "debug_config": "sgsdump.sidecars.debug_config:read",
        "input_config": "sgsdump.sidecars.input_config:read",
        "tensor_min_max": "sgsdump.sidecars.tensor_min_max:read_ranges",
        "quant_param": "sgsdump.sidecars.quant_param:read",
        "parse_net": "sgsdump.sidecars.parse_net:read",
        "name_map": "sgsdump.sidecars.name_map:read",
        "mindie_map": "sgsdump.sidecars.mindie_map:read",
        "ge_graph": "sgsdump.sidecars.ge_graph:read",
        "layer_mapping": "sgsdump.sidecars.layer_mapping:read",
        "name_rules": "sgsdump.sidecars.name_rules:read",
        "input_text": "sgsdump.sidecars.input_text:read",
    },
)
