"""What tests have worker processes do: importable by name there."""

import os
import signal
from pathlib import Path

from sgsdump.errors import InputError


def adder(number):
    return lambda item: item + number


def where():
    made = object()
    return lambda item: (os.getpid(), id(made))


def unlucky(number):
    def work(item):
        if number is not None and item == number:
            raise InputError(f"{item} is no picture")
        return item

    return work


def dies_once(folder: Path, deadly):
    """Each deadly item kills the first worker that tries it."""

    def work(item):
        mark = folder / str(item)
        if item in deadly and not mark.exists():
            mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return item

    return work


def poison():
    return lambda item: os.kill(os.getpid(), signal.SIGKILL)


def unmakeable():
    raise InputError("cannot begin")


def freezes(folder: Path, frozen):
    """The item stops the worker that does it, as a machine that hangs."""

    def work(item):
        if item == frozen:
            (folder / "pid").write_text(str(os.getpid()))
            os.kill(os.getpid(), signal.SIGSTOP)
        return item

    return work
