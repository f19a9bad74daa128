"""Where the pieces of a text begin among its ids. Pure."""

from collections.abc import Callable, Sequence
from itertools import accumulate, takewhile

Encode = Callable[[str], list[int]]


def ids_of_pieces(encode: Encode, pieces: Sequence[str]) -> tuple[list[int], list[int]]:
    """The ids of all pieces together, and for each piece the index of the first id that holds anything of it.

    The text is tokenised as a whole, as a client's prompt would be: a token that spans the border of two pieces belongs to the later
    one, because the earlier piece alone would not have given it.
    """
    ids = encode("".join(pieces))
    texts = list(accumulate(pieces))[:-1]
    return ids, [0, *(_shared(ids, encode(text)) for text in texts)]


def _shared(whole: list[int], start: list[int]) -> int:
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(whole, start, strict=False)))
