"""Quantities: exact, as Kubernetes reads and prints them.  Values of valid texts were checked against apimachinery 0.36.1."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nobiru.kernel.errors import QuantityError
from nobiru.kernel.quantity import (
    cpu_milli,
    format_amount,
    format_bytes,
    format_cpu,
    parse_quantity,
    resource_amount,
)

# text, whole units, milli-units
VALID = [
    ("0", 0, 0),
    ("1", 1, 1000),
    ("1.", 1, 1000),
    (".5", 1, 500),
    ("+1", 1, 1000),
    ("007", 7, 7000),
    ("100m", 1, 100),
    ("1500m", 2, 1500),
    ("0.1", 1, 100),
    ("1.5", 2, 1500),
    ("1.000000001", 2, 1001),
    ("1n", 1, 1),
    ("999u", 1, 1),
    ("1001u", 1, 2),
    ("1k", 1000, 1_000_000),
    ("1Ki", 1024, 1_024_000),
    ("1.5Gi", 1610612736, 1610612736000),
    ("1.5G", 1500000000, 1500000000000),
    ("2M", 2000000, 2000000000),
    ("1Ti", 1099511627776, 1099511627776000),
    ("1P", 10**15, 10**18),
    ("1e3", 1000, 1_000_000),
    ("1E3", 1000, 1_000_000),
    ("3.5e2", 350, 350_000),
    ("1e-3", 1, 1),
    ("1e+2", 100, 100_000),
    ("0.1Ki", 103, 102_400),
    ("-1.5", -2, -1500),
    ("-1500m", -2, -1500),
    ("-0", 0, 0),
    ("1e-20", 1, 1),
]


@pytest.mark.parametrize(("text", "whole", "milli"), VALID)
def test_valid_quantities_mean_what_kubernetes_says(text: str, whole: int, milli: int) -> None:
    """Whole units and milli-units, rounded away from zero."""
    assert parse_quantity(text) == whole
    assert parse_quantity(text, 1000) == milli


@pytest.mark.parametrize(
    "text",
    [
        *["", " ", "1 ", " 1", "--1", "1ki", "1K", "1KI", "1mi", "1e", "1e+", "1e3Ki", "1e3m", "1_000", "0x10", "1Gii"],
        *["inf", "NaN", "1,5", "1.2.3", "m", ".", "E5", "１", "1\n", "1" * 65],
    ],
)
def test_other_texts_are_refused(text: str) -> None:
    """What is no quantity, or has no digit, is refused with the text named."""
    with pytest.raises(QuantityError, match="invalid quantity"):
        parse_quantity(text)


@pytest.mark.parametrize("text", ["9223372036854775808", "8Ei", "1e19", "1e60", "9.3E", "-9223372036854775809"])
def test_values_outside_64_bits_are_refused(text: str) -> None:
    """A value that does not fit is said to be too large, never wrapped."""
    with pytest.raises(QuantityError, match="too large"):
        parse_quantity(text)


def test_an_absurd_exponent_costs_nothing() -> None:
    """The text is refused before a huge number is made of it."""
    with pytest.raises(QuantityError):
        parse_quantity("1e1000000000")


@pytest.mark.parametrize(
    ("name", "text", "amount"),
    [
        ("cpu", "250m", 250),
        ("cpu", "2", 2000),
        ("memory", "1Gi", 2**30),
        ("memory", "128974848", 128974848),
        ("ephemeral-storage", "10G", 10**10),
        ("pods", "110", 110),
        ("nvidia.com/gpu", "4", 4),
        ("hugepages-2Mi", "512Mi", 2**29),
    ],
)
def test_each_resource_has_its_unit(name: str, text: str, amount: int) -> None:
    """CPU counts millicores, everything else whole units."""
    assert resource_amount(name, text) == amount


@pytest.mark.parametrize(
    ("name", "amount", "text"),
    [
        ("cpu", 0, "0"),
        ("cpu", 250, "250m"),
        ("cpu", 2000, "2"),
        ("cpu", -500, "-500m"),
        ("memory", 0, "0"),
        ("memory", 1536 * 2**20, "1536Mi"),
        ("memory", 2**40, "1Ti"),
        ("memory", 1025, "1025"),
        ("memory", -(124 * 2**20), "-124Mi"),
        ("hugepages-2Mi", 2**21, "2Mi"),
        ("pods", 110, "110"),
    ],
)
def test_amounts_print_as_people_write_them(name: str, amount: int, text: str) -> None:
    """The largest suffix that stays exact."""
    assert format_amount(name, amount) == text


@given(st.integers(min_value=-(2**53), max_value=2**53))
def test_printed_amounts_read_back(amount: int) -> None:
    """What is printed means what was printed."""
    assert cpu_milli(format_cpu(amount)) == amount
    assert parse_quantity(format_bytes(amount)) == amount


@given(st.integers(0, 2**30), st.integers(0, 999), st.sampled_from(["", "k", "M", "Ki", "Mi"]))
def test_more_digits_never_mean_less(whole: int, thousandths: int, suffix: str) -> None:
    """Rounding goes up: a quantity is never taken for less than it says."""
    value = parse_quantity(f"{whole}.{thousandths:03d}{suffix}", 1000)

    assert value >= parse_quantity(f"{whole}{suffix}", 1000)
    assert value <= parse_quantity(f"{whole + 1}{suffix}", 1000)
