"""For every convolution whether it should be INT16, by the manual's rules and by measuring it."""

from sgsdump.tuning.advice.advice import to_pandas

__all__ = ["to_pandas"]
