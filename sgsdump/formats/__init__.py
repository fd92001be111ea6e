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
        # Folders, the one that says least of itself last.
        "dump_info_dir": "sgsdump.formats.dump_info_dir:FORMAT",
        "npy_dir": "sgsdump.formats.npy_dir:FORMAT",
    },
)
