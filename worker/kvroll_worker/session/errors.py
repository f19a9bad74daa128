"""Why a move did not happen, or a state was not read; the session goes on where it is."""


class MoveFailedError(Exception):
    """This attempt is over; another target, or a later try under a new migration id, may do."""


class MoveRefusedError(MoveFailedError):
    """The target's verdict is Refuse, with every reason."""


class StateFormatError(ValueError):
    """The state of a session was written by a newer version: reading a part of it would make another session of it."""
