"""msit's functions for reading, saving and dumping data, with msit's names and arguments.

``from sgsdump.capture.msit import DumpConfig, register_hook`` replaces ``from msit_llm import …``: dump the tensors of
a torch model, module by module. ``from sgsdump.capture.msit import read_atb_data`` replaces msit's own function. ATB
.bin files are read in all their forms, and operator dumps without Ascend's toolkit. Functions that accept or return
torch tensors need torch (the extra ``torch``); the others do not.
"""

from sgsdump.capture.msit.bin_data import (
    BinTensor as BinTensor,
)
from sgsdump.capture.msit.bin_data import (
    DumpData as DumpData,
)
from sgsdump.capture.msit.bin_data import (
    Payload as Payload,
)
from sgsdump.capture.msit.bin_data import (
    atb_json_to_onnx,
    convert_bin_data_to_npy,
    convert_bin_data_to_pt,
    get_bin_data_from_dir,
    read_atb_data,
    read_bin_data,
    read_dump_data,
    save_npy_data,
    save_torch_data,
)
from sgsdump.capture.msit.dump_config import DumpConfig
from sgsdump.capture.msit.module_hook import register_hook

__all__ = [
    "DumpConfig",
    "atb_json_to_onnx",
    "convert_bin_data_to_npy",
    "convert_bin_data_to_pt",
    "get_bin_data_from_dir",
    "read_atb_data",
    "read_bin_data",
    "read_dump_data",
    "register_hook",
    "save_npy_data",
    "save_torch_data",
]
