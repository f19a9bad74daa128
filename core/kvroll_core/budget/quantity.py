"""Bytes as people read them."""

MIB = 1024 * 1024


def format_bytes(count: float) -> str:
    """Bytes for people, binary units: `160.0 GiB`."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(count) < 1024:
            return f"{count:.0f} B" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"
