import pytest

from holdfast.quantities import format_number, format_size, parse_duration, parse_size


@pytest.mark.parametrize(
    ("text", "seconds"), [("90s", 90), ("15m", 900), ("12h", 43_200), ("30d", 2_592_000), ("1.5W", 907_200), ("0d", 0)]
)
def test_a_duration_is_a_number_with_a_unit(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "30", "d", "-1d", "1y", "30 days", "1e9d", "99999w", "NaNd", "٣d"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="30d"):
        parse_duration(text)


@pytest.mark.parametrize(
    ("text", "size"),
    [("10GB", 10**10), ("500 mb", 5 * 10**8), ("1.5GiB", 1_610_612_736), ("2k", 2000), ("77", 77), ("0", 0)],
)
def test_a_size_is_a_number_with_a_unit(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "GB", "-1GB", "1 iB", "10 gigabytes", "9999999TB", "1e3GB"])
def test_what_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="10GB"):
        parse_size(text)


@pytest.mark.parametrize(
    ("size", "text"), [(0, "0 B"), (999, "999 B"), (412_000, "412 kB"), (13_300_000, "13.3 MB"), (2 * 10**12, "2.0 TB")]
)
def test_a_size_is_told_in_powers_of_a_thousand(size: int, text: str) -> None:
    assert format_size(size) == text


@pytest.mark.parametrize(
    ("number", "words"),
    [(1_000_000.0, "1000000"), (1_234_567.5, "1234567.5"), (3, "3"), (0.5, "0.5"), (1e-7, "0.0000001"), (-2.0, "-2")],
)
def test_a_number_is_written_in_all_its_digits(number: float, words: str) -> None:
    assert format_number(number) == words
