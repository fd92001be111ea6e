"""The dump formats, in the order in which ``open_dump`` asks them whether a file is theirs."""

from sgsdump.family import Family

FORMATS = Family(
    "format",
    {
        "sigmastar_bin": "sgsdump.formats.sigmastar_bin:FORMAT",
        "sigmastar_text": "sgsdump.formats.sigmastar_text:FORMAT",
        "npy": "sgsdump.formats.npy:FORMAT",
        "npz": "sgsdump.formats.npz:FORMAT",
        "safetensors": "sgsdump.formats.safetensors:FORMAT",
        "atb_bin": "sgsdump.formats.atb_bin:FORMAT",
        "ascend_nano": "sgsdump.formats.ascend_nano:FORMAT",
        "ascend_stats": "sgsdump.formats.ascend_stats:FORMAT",
        "ascend_dump": "sgsdump.formats.ascend_dump:FORMAT",
        # Folders, the one that says least of itself last.
        "dump_info_dir": "sgsdump.formats.dump_info_dir:FORMAT",
        "msprobe_dir": "sgsdump.formats.msprobe_dir:FORMAT",
        "atb_tree": "sgsdump.formats.atb_tree:FORMAT",
        "ascend_dir": "sgsdump.formats.ascend_dir:FORMAT",
        "npy_dir": "sgsdump.formats.npy_dir:FORMAT",
    },
)
