"""Graph mode as TorchAir has it: dump the operators of a ``torch.compile``d program, with TorchAir's own options.

::

    import sgsdump.capture.torchair as torchair             # was: import torchair

    config = torchair.CompilerConfig()
    config.dump_config.enable_dump = True
    model = torch.compile(model, backend=torchair.get_npu_backend(compiler_config=config))

The captured graph runs operator by operator on whatever device the program uses, with the program's own results.
docs/dump_a_compiled_program.md has every option.

options.py    CompilerConfig and its dump_config, as users set them
plan.py       what is dumped and where to, from these and the JSON file, which may be edited
scope.py      with-blocks whose operators are dumped
operators.py  the captured graph as aten operators, and which of them are dumped
dumped.py     runs them one by one, and what is taken while they run
tree.py       the result tree and its index; values.py: a tensor's bytes and statistics
"""

from sgsdump.capture.torchair import scope
from sgsdump.capture.torchair.backend import get_npu_backend
from sgsdump.capture.torchair.operators import logger
from sgsdump.capture.torchair.options import CompilerConfig

__all__ = ["CompilerConfig", "get_npu_backend", "logger", "scope"]
