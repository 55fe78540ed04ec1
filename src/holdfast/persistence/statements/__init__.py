"""Row changes as statements, to be written in the transaction of the events that explain them.

Rule: a table that events explain is written by its module here and nowhere else, each change by a function of its name.
"""

from holdfast.persistence.statements.approvals import (
    NewApprovalRow,
    approve_first,
    ask_approval,
    decide_approval,
    supersede_approval,
)
from holdfast.persistence.statements.artifacts import NewArtifactRow, copy_artifact, insert_artifact
from holdfast.persistence.statements.bindings import insert_binding, insert_persona, insert_template, rebind
from holdfast.persistence.statements.ledger import NewLedgerRow, reserve_money, settle_money
from holdfast.persistence.statements.phases import (
    await_approval,
    complete_phase,
    copy_phase,
    fail_phase,
    insert_phase,
    reopen_phase,
    start_phase,
)
from holdfast.persistence.statements.runs import (
    NewRunRow,
    change_run,
    clear_wake,
    delete_run,
    end_run,
    insert_run,
    lock_run,
    pause_run,
    place_run,
    raise_budget,
    reopen_run,
    resume_run,
    set_wake,
    start_run,
)
from holdfast.persistence.statements.table import insert, now_text, to_time_text, update

__all__ = [
    "NewApprovalRow",
    "NewArtifactRow",
    "NewLedgerRow",
    "NewRunRow",
    "approve_first",
    "ask_approval",
    "await_approval",
    "change_run",
    "clear_wake",
    "complete_phase",
    "copy_artifact",
    "copy_phase",
    "decide_approval",
    "delete_run",
    "end_run",
    "fail_phase",
    "insert",
    "insert_artifact",
    "insert_binding",
    "insert_persona",
    "insert_phase",
    "insert_run",
    "insert_template",
    "lock_run",
    "now_text",
    "pause_run",
    "place_run",
    "raise_budget",
    "rebind",
    "reopen_phase",
    "reopen_run",
    "reserve_money",
    "resume_run",
    "set_wake",
    "settle_money",
    "start_phase",
    "start_run",
    "supersede_approval",
    "to_time_text",
    "update",
]
