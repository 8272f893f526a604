"""Go durations.  Values were checked against Go 1.26's time.ParseDuration and Duration.String."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nobiru.kernel.duration import format_duration, parse_duration
from nobiru.kernel.errors import DurationError


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("0", 0),
        ("+0", 0),
        ("-0", 0),
        ("0s", 0),
        ("10s", 10_000),
        ("10m0s", 600_000),
        ("1h30m", 5_400_000),
        ("-1.5h", -5_400_000),
        ("300ms", 300),
        ("+5s", 5_000),
        (".5s", 500),
        ("5.s", 5_000),
        ("1999us", 1),
        ("-1999\u00b5s", -1),
        ("1500\u03bcs", 1),
        ("999999ns", 0),
        ("1s1s", 2_000),
        ("1m0.5s", 60_500),
        ("0.1ms", 0),
        ("0.3333333333333333333h", 1_200_000),
        ("0.9999999999999999999999s", 1_000),
        ("2562047h47m16.854775807s", 9_223_372_036_854),
        ("-9223372036854775808ns", -9_223_372_036_854),
    ],
)
def test_go_durations_mean_what_go_says(text: str, milliseconds: int) -> None:
    """The same value as in Go, cut to whole milliseconds."""
    assert parse_duration(text) == milliseconds


NOT_DURATIONS = ["", "s", ".s", "-", "+", "1d", "1H", "1h-1m", "--1s", "1s ", " 1s", "1e3s", "1m1", "１s", "1 h", "s1"]
NO_UNIT = ["1", "10"]
TOO_LONG = ["2562047h47m16.854775808s", "9223372036854775808ns", "99999999999999999999h", "9" * 200 + "s"]


@pytest.mark.parametrize("text", NOT_DURATIONS + NO_UNIT + TOO_LONG)
def test_what_go_refuses_is_refused(text: str) -> None:
    """Also a bare number, the usual slip, and what Go's 64 bits cannot hold."""
    with pytest.raises(DurationError, match="invalid duration"):
        parse_duration(text)


def test_a_bare_number_gets_a_hint() -> None:
    """The user is told that the unit is missing."""
    with pytest.raises(DurationError, match="needs a unit, such as 10s"):
        parse_duration("600")


@pytest.mark.parametrize(
    ("milliseconds", "text"),
    [
        (0, "0s"),
        (1, "1ms"),
        (250, "250ms"),
        (1_000, "1s"),
        (1_500, "1.5s"),
        (60_000, "1m0s"),
        (600_000, "10m0s"),
        (3_600_000, "1h0m0s"),
        (3_600_001, "1h0m0.001s"),
        (-5_400_000, "-1h30m0s"),
        (100 * 3_600_000, "100h0m0s"),
    ],
)
def test_durations_print_as_go_prints_them(milliseconds: int, text: str) -> None:
    """The text of Duration.String."""
    assert format_duration(milliseconds) == text


@given(st.integers(min_value=-(2**42), max_value=2**42))
def test_printed_durations_read_back(milliseconds: int) -> None:
    """What is printed means what was printed."""
    assert parse_duration(format_duration(milliseconds)) == milliseconds
