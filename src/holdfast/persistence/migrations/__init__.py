"""The steps by which the rows' tables came to be what they are."""

HEAD = "0017"  # the newest one; a test compares it with the folder
OLDEST = "0012"  # whose processes go on beside this one; a step that does more than add raises it to its own
