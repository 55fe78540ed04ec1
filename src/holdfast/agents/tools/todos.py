"""The tool by which an agent keeps a to-do list, so that people see how far it is.

The list lives in the journal alone: each call holds the whole of it. Nothing reads it but people and the model itself.
"""

from typing import TYPE_CHECKING

from pydantic import BaseModel, Field

from holdfast.runtime.run_fold.todo_log import TODO_TOOL, TodoStatus

if TYPE_CHECKING:
    from langchain_core.tools import BaseTool

_DESCRIPTION = (
    "Keeps the list of what is to be done, so that people see how far you are. Use it for work of three steps or "
    "more: write the list before you begin, with the first entry in_progress, and write it again, whole, each time an "
    "entry is done or the plan changes. It is no answer: your result is still to be written."
)


class TodoEntry(BaseModel):
    """One thing to do."""

    content: str = Field(min_length=1, max_length=500, description="What is to be done, in one line.")
    status: TodoStatus


class TodoList(BaseModel):
    """The arguments of the tool."""

    todos: list[TodoEntry] = Field(max_length=50, description="The whole list, in the order of work.")


def open_todo_tool() -> "BaseTool":
    """Return the tool; it keeps nothing itself."""
    from langchain_core.tools import StructuredTool

    async def write(todos: list[TodoEntry]) -> str:
        done = sum(entry.status is TodoStatus.COMPLETED for entry in todos)
        return f"The list is written: {done} of {len(todos)} done."

    return StructuredTool.from_function(coroutine=write, name=TODO_TOOL, description=_DESCRIPTION, args_schema=TodoList)
