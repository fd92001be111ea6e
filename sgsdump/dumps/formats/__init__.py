"""The table of dump formats, in the order in which ``open_dump`` tries them; plug-ins come last."""

from functools import partial

from sgsdump.plugins import further
from sgsdump.registry import Registry

FORMATS = Registry(
    "format",
    {
        # Recognised by its file name; must be tried before formats that accept any raw values.
        "msaccucmp_bin": "sgsdump.dumps.formats.ascend.converted:FORMAT",
        "sigmastar_bin": "sgsdump.dumps.formats.sigmastar.binary:FORMAT",
        "sigmastar_text": "sgsdump.dumps.formats.sigmastar.text_dump:FORMAT",
        "npy": "sgsdump.dumps.formats.arrays.npy:FILE",
        "npz": "sgsdump.dumps.formats.arrays.npz:FORMAT",
        "safetensors": "sgsdump.dumps.formats.arrays.safetensors:FORMAT",
        "tensorrt_outputs": "sgsdump.dumps.formats.tensorrt.exported_outputs:FORMAT",
        "tvm_params": "sgsdump.dumps.formats.tvm.debug_dump:FILE",
        "polygraphy": "sgsdump.dumps.formats.polygraphy.run_results:FORMAT",
        "torch": "sgsdump.dumps.formats.torch.torch_file:FORMAT",
        "atb_bin": "sgsdump.dumps.formats.atb.bin_file:FORMAT",
        "ascend_nano": "sgsdump.dumps.formats.ascend.operator_dump:NANO",
        "ascend_stats": "sgsdump.dumps.formats.ascend.ascend_stats:FORMAT",
        "ascend_dump": "sgsdump.dumps.formats.ascend.operator_dump:FORMAT",
        "mindspore_stats": "sgsdump.dumps.formats.mindspore.dump_folder:TABLE",
        "torchtitan_log": "sgsdump.dumps.formats.torchtitan.activation_log:FORMAT",
        "torch_debug_mode": "sgsdump.dumps.formats.torch.debug_mode:FORMAT",
        "llama_eval_log": "sgsdump.dumps.formats.llama_cpp.eval_log:FORMAT",
        "transformers_debug": "sgsdump.dumps.formats.transformers.debug_tree:FORMAT",
        "onnx_tensor": "sgsdump.dumps.formats.onnx_tests.data_set:FILE",
        # Recognised by its name or by any numbers; must be tried after the other files.
        "tensor_file": "sgsdump.dumps.formats.arrays.folder:FILE",
        # Folders, from the most to the least specific.
        "rknn_snapshot": "sgsdump.dumps.formats.rknn.snapshot:FORMAT",
        "aimet_outputs": "sgsdump.dumps.formats.aimet.layer_outputs:FORMAT",
        "tvm_debug": "sgsdump.dumps.formats.tvm.debug_dump:FORMAT",
        "tidl_traces": "sgsdump.dumps.formats.tidl.traces:FORMAT",
        "onnx_test_data": "sgsdump.dumps.formats.onnx_tests.data_set:FORMAT",
        "replays": "sgsdump.dumps.formats.replays.tree:FORMAT",
        "dump_info_dir": "sgsdump.dumps.formats.sdaa.dump_info_dir:FORMAT",
        "rounds": "sgsdump.dumps.formats.rounds.tree:FORMAT",
        "msprobe_single_save": "sgsdump.dumps.formats.msprobe.single_save:FORMAT",
        "msprobe_dir": "sgsdump.dumps.formats.msprobe.folder:FORMAT",
        "mindspore_dir": "sgsdump.dumps.formats.mindspore.dump_folder:FORMAT",
        "atb_tree": "sgsdump.dumps.formats.atb.tree:FORMAT",
        "ascend_dir": "sgsdump.dumps.formats.ascend.ascend_dir:FORMAT",
        "torch_tree": "sgsdump.dumps.formats.torch.torch_tree:FORMAT",
        "npy_dir": "sgsdump.dumps.formats.arrays.npy:FOLDER",
        "folder": "sgsdump.dumps.formats.arrays.folder:FORMAT",
    },
    partial(further, "formats", "recognises"),
)
# Facts about formats that avoid importing their modules. A test compares them with the modules.
# Formats of files only; ``format_of`` does not try them for folders.
OF_FILES = frozenset(
    (
        *("sigmastar_bin", "sigmastar_text", "npy", "npz", "safetensors", "tensorrt_outputs", "tvm_params"),
        *("polygraphy", "torch", "atb_bin", "ascend_nano", "ascend_stats", "ascend_dump", "mindspore_stats"),
        *("torch_debug_mode", "llama_eval_log", "onnx_tensor", "tensor_file"),
    )
)
# Formats with ``Format.owns``.
OWNERS = ("replays", "msprobe_single_save")
