"""The errors a user may see: each one's text is a single clear sentence."""


class KbnnError(Exception):
    """The base of all errors this package raises on purpose."""


class DataError(KbnnError):
    """The input data cannot be used as they are."""


class OutputError(DataError):
    """Something that was asked for cannot be written."""


class ModelError(KbnnError):
    """A model file is broken, or does not fit what is asked of it."""


class UsageError(KbnnError):
    """Options contradict each other or name something that does not exist."""


class ArgumentError(UsageError, TypeError):
    """An argument of a function has a type that the function does not take."""


class ReaderLeft(Exception):
    """Whoever read an output has left; no error, but what was written is not all of it."""
