"""The errors sgsdump raises on purpose. Each message is one line: what is wrong, where, and what to do next.

Everything a user can cause (a bad file, a wrong option, a full disk) ends as a ``SgsdumpError``; the command line
prints its text after ``sgsdump: error:`` and exits with status 2. Any other exception is a bug in sgsdump.
"""


class SgsdumpError(Exception):
    """Root of the tree; raise a kind below."""


class FormatError(SgsdumpError):
    """A file is not what it should be: truncated, of another format, or contradicting itself."""


class ConfigError(SgsdumpError):
    """A side file or an option asks for something that cannot be."""


class ModelError(SgsdumpError):
    """A model cannot be read, or cannot do what is asked of it."""


class InputError(SgsdumpError):
    """A picture, array or preprocess file cannot feed the model."""


class ValuesError(SgsdumpError):
    """A tensor is known but its values are not: left out of the file, padded, or of unknown scale."""


class OutputError(SgsdumpError):
    """A result could not be written: missing folder, full disk, no permission."""


class MissingExtra(SgsdumpError):
    """An optional package is absent; the message names the extra that brings it."""


class WorkerError(SgsdumpError):
    """The processes or the cluster that were to share the work cannot be reached, were lost, or do not fit."""
