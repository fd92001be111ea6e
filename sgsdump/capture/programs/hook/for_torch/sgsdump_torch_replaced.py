"""Replacement of functions of torch (``Hook``)."""


class Hook:
    """Replacement of a function by ``around(original)``."""

    def __init__(self, owner, name, around):
        self._owner, self._name, self._original = owner, name, getattr(owner, name)
        self._own = around(self._original)
        setattr(owner, name, self._own)

    def take_off(self):
        """Restore the original; if another replacement surrounds this one, it stays and calls the original."""
        if getattr(self._owner, self._name) is self._own:
            setattr(self._owner, self._name, self._original)
