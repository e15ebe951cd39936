"""Parks while it is imported."""

import parked


class Meta(type):
    def __new__(mcs, name, bases, body):
        return super().__new__(mcs, name, bases, body)


class AtImport(metaclass=Meta):
    # A class body is a frame of its own.
    if parked.threading.current_thread().name == "import":
        from . import inner
