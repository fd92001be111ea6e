"""Tests that need more of the system than Windows has."""

from __future__ import annotations

import os

import pytest

unix_only = pytest.mark.skipif(
    not hasattr(os, "pread"), reason="signals, locks, pipes and reads at an offset are those of Unix"
)
