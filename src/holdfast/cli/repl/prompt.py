"""The line a person types into: keys, history, completion, and above it what is under way."""

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

from prompt_toolkit import PromptSession
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document
from prompt_toolkit.filters import is_searching
from prompt_toolkit.formatted_text import FormattedText
from prompt_toolkit.history import FileHistory, History, InMemoryHistory
from prompt_toolkit.input import create_input
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.key_binding.bindings.search import abort_search
from prompt_toolkit.output import ColorDepth
from prompt_toolkit.patch_stdout import patch_stdout
from prompt_toolkit.styles import Style

from holdfast.presentation.format import match_names

INTERRUPT = "\x03"
EXPAND = "/expand"
_MOST_COMPLETIONS = 50
_STYLE = Style.from_dict(
    {
        "live": "ansibrightblack",
        "working": "ansicyan",
        "question": "ansiyellow",
        "mark": "bold",
        "bottom-toolbar": "noreverse ansibrightblack",
        "completion-menu.completion": "bg:ansibrightblack ansiwhite",
        "completion-menu.completion.current": "bg:ansicyan ansiblack",
    }
)
Words = Callable[[], Iterable[str]]


class TalkCompleter(Completer):
    """Completes slash commands and what follows them, and `@file` anywhere."""

    def __init__(self, commands: dict[str, str], arguments: dict[str, Words], files: Words) -> None:
        self._commands = commands
        self._arguments = arguments
        self._files = files

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterator[Completion]:
        text = document.text_before_cursor
        word = text.split()[-1] if text and not text[-1].isspace() else ""
        if word.startswith("@"):
            yield from _complete(word[1:], self._files())
        elif text.startswith("/") and " " not in text:
            for name, summary in self._commands.items():
                if name.startswith(text):
                    yield Completion(name, start_position=-len(text), display_meta=summary)
        elif text.startswith("/"):
            yield from _complete(word, self._arguments.get(text.split()[0], tuple)())


def _complete(word: str, known: Iterable[str]) -> Iterator[Completion]:
    for name in match_names(word, known, _MOST_COMPLETIONS):
        yield Completion(name, start_position=-len(word))


class TalkPrompt:
    """Reads what a person types while other things are printed above it.

    `above` gives the lines under way, each with its style; `below` is the one line at the bottom.
    """

    def __init__(
        self,
        *,
        completer: Completer,
        above: Callable[[], list[tuple[str, str]]],
        below: Callable[[], str],
        is_busy: Callable[[], bool],
    ) -> None:
        self._above = above
        terminal = create_input()
        self._cooked_mode = terminal.cooked_mode
        # prompt_toolkit would give the terminal back for each line that is printed above the prompt. A Ctrl-C typed at
        # that moment ends the program, a Ctrl-D is lost, and letters are shown twice.
        terminal.cooked_mode = terminal.raw_mode  # type: ignore[method-assign]
        self._session: PromptSession[str] = PromptSession(
            message=self._message,
            input=terminal,
            multiline=True,  # so that a text can have several lines; Enter sends it all the same
            history=open_history(),
            completer=completer,
            complete_while_typing=True,
            key_bindings=_bind_keys(is_busy),
            bottom_toolbar=lambda: FormattedText([("class:bottom-toolbar", below())]),
            prompt_continuation="  ",
            style=_STYLE,
            color_depth=ColorDepth.MONOCHROME if os.environ.get("NO_COLOR") else None,
            erase_when_done=True,
            reserve_space_for_menu=4,
        )

    def held(self) -> AbstractContextManager[None]:
        """Keep the terminal as it is while reading, also between two lines: what is typed there waits for the next.

        Otherwise it would be shown twice, and a Ctrl-C there would end the program.
        """
        return self._session.app.input.raw_mode()

    def lent(self) -> AbstractContextManager[None]:
        """Give the terminal to others who read from it."""
        return self._cooked_mode()

    async def read(self) -> str:
        """Return what was typed; `INTERRUPT` for Ctrl-C. Raises `EOFError` for Ctrl-D."""
        with patch_stdout(raw=True):
            return await self._session.prompt_async()

    def refresh(self) -> None:
        self._session.app.invalidate()

    def _message(self) -> FormattedText:
        lines = [(f"class:{style}", f"{text}\n") for style, text in self._above()]
        return FormattedText([*lines, ("class:mark", "› ")])


def _bind_keys(is_busy: Callable[[], bool]) -> KeyBindings:
    keys = KeyBindings()
    # During a Ctrl-R search the keys go to another buffer, and Enter is the library's: it takes what was found.
    is_typing = ~is_searching

    @keys.add("enter", filter=is_typing)
    def _(event: KeyPressEvent) -> None:
        buffer = event.current_buffer
        state = buffer.complete_state
        if state is not None and state.current_completion is not None:
            buffer.complete_state = None  # it is in the text already; Enter takes it, and sends nothing yet
        elif buffer.document.text_before_cursor.endswith("\\"):
            buffer.delete_before_cursor(1)
            buffer.insert_text("\n")
        else:
            buffer.validate_and_handle()

    @keys.add("escape", "enter", filter=is_typing)
    def _(event: KeyPressEvent) -> None:
        event.current_buffer.insert_text("\n")

    @keys.add("c-c", filter=is_typing)
    def _(event: KeyPressEvent) -> None:
        if event.current_buffer.text and not is_busy():
            event.current_buffer.reset()
        else:
            event.app.exit(result=INTERRUPT)

    @keys.add("c-d", filter=is_typing)
    def _(event: KeyPressEvent) -> None:
        if not event.current_buffer.text:
            event.app.exit(exception=EOFError())

    @keys.add("c-o", filter=is_typing)
    def _(event: KeyPressEvent) -> None:
        event.app.exit(result=EXPAND)

    for key in ("escape", "c-c", "c-d"):
        keys.add(key, filter=is_searching, eager=True)(abort_search)
    return keys


def open_history() -> History:
    """Open the history of what was typed, in the user's state folder; readable by nobody else."""
    named = Path(os.environ.get("XDG_STATE_HOME", ""))
    folder = (named if named.is_absolute() else Path.home() / ".local/state") / "holdfast"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        os.close(os.open(folder / "history", os.O_CREAT | os.O_APPEND | os.O_WRONLY, 0o600))
    except OSError:
        return InMemoryHistory()
    return _ScrubbedHistory(str(folder / "history"))


class _ScrubbedHistory(FileHistory):
    """A history that keeps no keys."""

    def store_string(self, string: str) -> None:
        from holdfast.agents.redaction import SECRETS, scrub_prompt

        super().store_string(SECRETS.scrub_text(scrub_prompt(string)))
