"""A whole .npy file that a user names, mapped into memory."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from sgsdump.files.bounded_read import open_file

MAGIC = b"\x93NUMPY"


def load_npy(path: Path) -> np.ndarray:
    """The array, of any dtype but objects, read-only. Raises OSError for what cannot be read, ValueError, one line, for
    what is no .npy file or a damaged one."""
    with open_file(path) as file:
        head = file.read(len(MAGIC))
    if head.startswith(b"PK"):
        raise ValueError("it is an archive of several arrays; give one .npy file")
    if head != MAGIC:
        raise ValueError("it is not an .npy file" if head else "it is empty")
    try:
        with np.errstate(all="ignore"):
            array = np.load(path, mmap_mode="r", allow_pickle=False)
    except OSError:
        raise
    except MemoryError:
        raise ValueError("its header asks for more memory than there is") from None
    except Exception as error:  # a damaged header makes numpy raise anything: SyntaxError, TokenError, OverflowError
        raise ValueError(" ".join(str(error).split())[:150] or type(error).__name__) from None
    if not isinstance(array, np.ndarray):
        raise ValueError("it holds no array")
    return array
