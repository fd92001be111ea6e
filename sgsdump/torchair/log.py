"""Where this front door tells what went otherwise than asked: a logger, as TorchAir has one."""

from __future__ import annotations

import logging

logger = logging.getLogger("sgsdump.torchair")
