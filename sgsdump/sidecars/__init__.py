"""Side files of dumps: a registry of names and reader functions."""

from sgsdump.registry import Registry

SIDECARS = Registry(
    "side file",
    {
        "debug_config": "sgsdump.sidecars.debug_config:read",
        "ge_proto": "sgsdump.sidecars.ge_proto:read",
        "input_config": "sgsdump.sidecars.input_config:read",
        "tensor_min_max": "sgsdump.sidecars.tensor_min_max:read_ranges",
        "quant_param": "sgsdump.sidecars.quant_param:read",
        "parse_net": "sgsdump.sidecars.parse_net:read",
        "tensor_chn": "sgsdump.sidecars.tensor_chn:read",
        "tensor_weight": "sgsdump.sidecars.tensor_weight:read",
        "input_text": "sgsdump.sidecars.input_text:read",
    },
)
