"""Whether a command was begun in this place, on the files that are still here."""

from holdfast.workspace.commands.place import CommandPlace


def test_a_place_is_the_same_as_long_as_the_files_have_not_left_it() -> None:
    place = CommandPlace("here", "boot", "host")

    assert place.is_same({"data": "here", "boot": "an earlier one"})
    assert not place.is_same({"data": "there"})
    assert not place.is_same({"data": "here", "is_left": True})
