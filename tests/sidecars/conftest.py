"""What several tests of side files need."""

import pytest


@pytest.fixture
def stored(tmp_path):
    """Writes a file of these bytes or this text; returns its path."""

    def store(content, name="file"):
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return store
