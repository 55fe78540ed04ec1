from holdfast.flows.time_limit import to_reason


def test_a_long_time_limit_is_said_in_all_its_digits() -> None:
    assert to_reason(14 * 86_400.0) == "It was not over 1209600 s after its start."
