"""The checks of every call, which the native module makes in C++."""

import torch


def check_rows(buffer: torch.Tensor, rows: int, width: int) -> torch.Tensor:
    """The leading rows of a buffer as a view [rows, width].

    Raises:
        ValueError: the buffer is too small.
    """
    if rows < 0 or rows * width > buffer.numel():
        raise ValueError(f"{rows} rows of {width} need {rows * width} elements, the buffer has {buffer.numel()}")
    return buffer.view(-1)[: rows * width].view(rows, width)


def check_heads(heads: int, head_dim: int, row_stride: int, offset: int) -> None:
    """Refuses heads that do not lie inside a row.

    Raises:
        ValueError: they do not.
    """
    if heads < 0 or offset < 0 or offset + heads * head_dim > row_stride:
        raise ValueError(f"{heads} heads of {head_dim} from {offset} must lie inside a row of {row_stride}")


def check_ids(ids: torch.Tensor, count: int, high: int, what: str, low: int = 0) -> list[int]:
    """The first `count` ids as Python ints, each in [low, high).

    Raises:
        ValueError: too few, or one out of range.
    """
    values: list[int] = check_rows(ids, 1, count)[0].tolist()
    for row, value in enumerate(values):
        if not low <= value < high:
            raise ValueError(f"{what} of row {row} must be in [{low}, {high}), found {value}")
    return values
