"""The functions that Kubernetes adds to CEL, as far as they are built; a rule that calls another one is refused when its CRD is loaded."""

import re
from collections.abc import Callable
from decimal import Decimal
from typing import Any
from urllib.parse import urlsplit

from kvroll_core.quantity import parse_quantity


def _holds(check: Callable[[Any], object]) -> Callable[[Any], bool]:
    def holds(value: Any) -> bool:
        try:
            return bool(check(value))
        except ValueError:
            return False

    return holds


def _amount(value: dict[str, Any]) -> Decimal:
    return parse_quantity(value["quantity"])


def _is_url(text: str) -> bool:
    """An absolute URL or an absolute path, as Go's url.ParseRequestURI takes it."""
    if re.search(r"[\x00-\x20\x7f]", text):
        return False
    parts = urlsplit(text)
    _ = parts.port  # raises ValueError where it is no number
    return bool(parts.scheme and parts.netloc) or text.startswith("/")


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "isQuantity": _holds(lambda text: parse_quantity(text) is not None),
    "quantity": lambda text: {"quantity": str(text)},
    "isGreaterThan": lambda a, b: _amount(a) > _amount(b),
    "isLessThan": lambda a, b: _amount(a) < _amount(b),
    "isURL": _holds(_is_url),
    "url": lambda text: {"url": text},
    "getScheme": lambda url: urlsplit(url["url"]).scheme,
    "getHost": lambda url: urlsplit(url["url"]).netloc,
    "getHostname": lambda url: urlsplit(url["url"]).hostname or "",
}
