"""The steps by which the rows' tables came to be what they are."""

HEAD = "0012"  # the newest one; a test compares it with the folder
