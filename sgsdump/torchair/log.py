"""The logger that reports what could not be done as asked; TorchAir has one too."""

from __future__ import annotations

import logging

logger = logging.getLogger("sgsdump.torchair")
