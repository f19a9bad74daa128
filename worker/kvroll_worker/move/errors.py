"""Why a move did not happen; the session goes on where it is."""


class MoveFailedError(Exception):
    """This attempt is over; another target, or a later try under a new migration id, may do."""


class MoveRefusedError(MoveFailedError):
    """The target's verdict is Refuse, with every reason."""
