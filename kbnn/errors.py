"""Errors shown to users: the text of each is a clear sentence."""


class KbnnError(Exception):
    """Base of all errors that this package raises on purpose."""


class DataError(KbnnError):
    """The input data cannot be used."""


class OutputError(DataError):
    """A requested output cannot be written."""


class ModelError(KbnnError):
    """A model file is damaged, or does not fit the request."""


class UsageError(KbnnError):
    """Options contradict each other or name something that does not exist."""


class ArgumentError(UsageError, TypeError):
    """An argument of a function has a type that the function does not accept."""


class ReaderLeft(Exception):
    """The reader of an output has closed it; the output is incomplete, but this is not an error."""
