"""Quantities are read as k8s.io/apimachinery reads them, whatever the text is."""

import math
import re
from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kvroll_core.quantity import MOST, QuantityError, parse_quantity, whole

POWERS = {"n": (10, -9), "u": (10, -6), "m": (10, -3), "": (10, 0), "k": (10, 3), "M": (10, 6), "G": (10, 9), "T": (10, 12), "P": (10, 15),
          "E": (10, 18), "Ki": (2, 10), "Mi": (2, 20), "Gi": (2, 30), "Ti": (2, 40), "Pi": (2, 50), "Ei": (2, 60)}  # fmt: skip
NUMBERS = st.from_regex(
    r"[0-9]{1,25}(\.[0-9]{0,25})?|\.[0-9]{1,25}", fullmatch=True, alphabet=st.characters(max_codepoint=127)
)
NO_QUANTITIES = ["", "+", "-", ".", "Ki", "1 Gi", " 1", "1\n", "1GiB", "1ki", "1K", "1g", "1e", "1e+", "1e1.5", "1e3Ki", "1Ki3",
                 "--1", "1,5", "1_000", "0x10",
                 "nan", "NaN", "inf", "Infinity", "١", "１", "1²", "1e1000", "e3", "1.2.3", "1Kie3", "1mm"]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "scale", "expected"),
    [
        ("100m", 1000, 100),
        ("1.5", 1000, 1500),
        (2, 1000, 2000),
        (0.5, 1000, 500),
        ("1n", 1000, 1),  # rounded up: nothing that is asked for weighs nothing
        ("1Ki", 1, 1024),
        ("1.5Gi", 1, 3 << 29),
        ("1k", 1, 1000),
        ("1e3", 1, 1000),
        ("1E3", 1, 1000),
        ("1E", 1, 10**18),
        ("+.5Ki", 1, 512),
        ("5.", 1, 5),
        ("0e999", 1, 0),
        ("12E", 1, 2**63 - 1),  # bounded, as there
        ("1e999", 1, 2**63 - 1),
        ("9" * 5000, 1, 2**63 - 1),
        ("0." + "0" * 5000 + "1", 1, 1),
    ],
)
def test_quantities_are_read_as_kubernetes_reads_them(text: str | float, scale: int, expected: int) -> None:
    assert whole(text, scale) == expected


@pytest.mark.parametrize("text", NO_QUANTITIES)
def test_what_is_no_quantity_is_refused(text: str) -> None:
    with pytest.raises(QuantityError, match="expected a quantity"):
        parse_quantity(text)


def test_a_negative_one_is_a_quantity_that_no_resource_has() -> None:
    assert parse_quantity("-1.5k") == -1500
    assert parse_quantity("-0.1n") == Decimal("-1e-9")
    with pytest.raises(QuantityError, match="0 or more"):
        whole("-1")
    with pytest.raises(QuantityError):
        parse_quantity(True)


@given(NUMBERS, st.sampled_from(sorted(POWERS)), st.sampled_from(["", "+", "-"]))
def test_a_quantity_is_its_number_times_its_unit(number: str, unit: str, sign: str) -> None:
    """Against exact fractions: a billionth is the finest, rounded away from zero, and the bound is 2^63 - 1."""
    base, power = POWERS[unit]
    left, _, right = number.partition(".")
    exact = Fraction(int(left + right or "0"), 10 ** len(right)) * Fraction(base) ** power
    size = min(Fraction(math.ceil(exact * 10**9), 10**9), Fraction(MOST))
    assert Fraction(parse_quantity(sign + number + unit)) == (-size if sign == "-" else size)


@given(NUMBERS, st.integers(-999, 999))
def test_an_exponent_moves_the_point(number: str, exponent: int) -> None:
    left, _, right = number.partition(".")
    exact = Fraction(int(left + right or "0"), 10 ** len(right)) * Fraction(10) ** exponent
    size = min(Fraction(math.ceil(exact * 10**9), 10**9), Fraction(MOST))
    assert (
        Fraction(parse_quantity(f"{number}e{exponent}")) == Fraction(parse_quantity(f"{number}E{exponent:+}")) == size
    )


# The grammar in apimachinery's documentation, with an exponent as its code reads it: a whole number.
GRAMMAR = re.compile(r"[+-]?([0-9]+|[0-9]+\.[0-9]+|[0-9]+\.|\.[0-9]+)([KMGTPE]i|[numkMGTPE]?|[eE][+-]?[0-9]{1,3})")


@given(st.one_of(st.text(max_size=12), st.text("0123456789.+-eEinumkKMGTP", max_size=9)))
@example("1e1")
@example("1Ei")
def test_any_other_text_is_refused_and_nothing_else_is_raised(text: str) -> None:
    try:
        found = parse_quantity(text)
    except QuantityError:
        assert not GRAMMAR.fullmatch(text)
    else:
        assert GRAMMAR.fullmatch(text)
        assert abs(found) <= MOST
