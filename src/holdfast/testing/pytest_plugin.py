"""Fixtures for pytest, found by themselves once holdfast is installed. Nothing is imported before a test uses one."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from holdfast.runtime.checkpoint import SQLiteCheckpointer
    from holdfast.testing import VirtualClock


@pytest.fixture
def holdfast_store() -> "Iterator[SQLiteCheckpointer]":
    """Give the test an empty store in memory of its own."""
    from holdfast.testing import memory_store

    store = memory_store()
    yield store
    store.close()


@pytest.fixture
def holdfast_clock() -> "Iterator[VirtualClock]":
    """Let all flows of the test skip their waits; the clock tells how much was skipped."""
    from holdfast.testing import skip_time

    with skip_time() as clock:
        yield clock
