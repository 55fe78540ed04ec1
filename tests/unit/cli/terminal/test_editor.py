"""A text that a person reviews."""

import io

import pytest

from holdfast.cli.terminal.editor import review_text


@pytest.mark.parametrize(
    ("typed", "text"),
    [
        ("m\n", "Change it"),
        ("yes\n", "Change it"),
        ("n\n", None),
        ("c\n", None),
        ("", None),
        ("what?\nm\n", "Change it"),
    ],
)
def test_a_text_is_accepted_or_not(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], typed: str, text: str | None
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(typed))

    assert review_text("Change it", "Commit message:", accept="merge") == text

    assert ("'what?' is none of these." in capsys.readouterr().err) is typed.startswith("what")
