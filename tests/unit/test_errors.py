"""Errors cross processes whole, whatever their constructors take."""

import copy
import pickle

import pytest

import holdfast
from holdfast.enums import Backend
from holdfast.errors import (
    ApprovalRejected,
    BaseBranchMissing,
    ExtraMissing,
    HoldfastError,
    RunPaused,
    SequenceConflict,
    did_you_mean,
)


@pytest.mark.parametrize(
    "error",
    [
        SequenceConflict("Too late.", hint="Try again.", run_id="r"),
        RunPaused("It waits.", run_id="r", key="publish"),
        ApprovalRejected("No.", action="reject"),
        BaseBranchMissing("No such branch.", branches=("main",)),
        ExtraMissing("holdfast serve", "server"),
    ],
    ids=lambda error: error.code,
)
def test_an_error_can_be_pickled_and_copied(error: HoldfastError) -> None:
    for again in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
        assert type(again) is type(error)
        assert str(again) == str(error)
        assert (again.args, vars(again)) == (error.args, vars(error))


def test_the_package_lists_what_it_has() -> None:
    assert set(holdfast.__all__) <= set(dir(holdfast))


def test_what_was_probably_meant_is_named_as_people_write_it() -> None:
    assert did_you_mean("opnai", Backend) == " Did you mean 'openai'?"
