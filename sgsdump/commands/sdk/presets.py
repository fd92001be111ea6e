"""The SDK's own preprocess files, which its tools take by bare names: ``-n ssd_mobilenet_v1``.

They lie in ``$SGS_IPU_DIR/Scripts/calibrator/preprocess_method/NAME.py``; the SDK's cfg_env.sh sets the variable.
"""

from __future__ import annotations

import os
from pathlib import Path

FOLDER = Path("Scripts/calibrator/preprocess_method")


def with_presets(preprocess: str | None) -> str | None:
    """The preprocess files of ``-n``, separated by commas; a bare name of none here becomes the SDK's file, if it has
    one of that name."""
    return ",".join(_found(name.strip()) for name in preprocess.split(",")) if preprocess else None


def _found(name: str) -> str:
    sdk = os.environ.get("SGS_IPU_DIR")
    if not sdk or not name.isidentifier() or Path(name).exists() or Path(f"{name}.py").exists():
        return name
    preset = Path(sdk) / FOLDER / f"{name}.py"
    return str(preset) if preset.is_file() else name
