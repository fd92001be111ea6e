"""What every test may use: the genuine files beside the checkout, where they are present."""

from pathlib import Path

import pytest

SHARED = Path(__file__).resolve().parents[2] / "shared" / "data"


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of genuine files; tests that need it are skipped where it is absent (a user's fresh checkout)."""
    if not SHARED.is_dir():
        pytest.skip(f"no genuine files: {SHARED.name} is not beside this checkout")
    return SHARED
