"""onnxruntime's execution providers, by the names users give."""

from __future__ import annotations

import onnxruntime as ort

from sgsdump.errors import ConfigError

CPU = "CPUExecutionProvider"


def providers(name: str) -> list[str]:
    """The provider of this name, ``CUDA`` for short, and behind it the CPU, which runs what another cannot.

    Raises ConfigError for one that the installed onnxruntime has not.
    """
    there = ort.get_available_providers()
    for each in there:
        if name.lower() in (each.lower(), each.lower().removesuffix("executionprovider")):
            return list(dict.fromkeys((each, CPU)))
    raise ConfigError(f"the installed onnxruntime has no execution provider {name!r}; it has {', '.join(there)}")
