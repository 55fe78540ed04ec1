"""What is wanted of a run and when, from options or from the person at the terminal."""

import select
import sys
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from holdfast.cli.terminal.answer_input import read_line
from holdfast.cli.terminal.completion import complete_role_personas
from holdfast.cli.terminal.output import say
from holdfast.images import Image, check_images, read_image_file

if TYPE_CHECKING:
    from holdfast.engine.run.create import RunOrder

REPOSITORY = Annotated[
    str, typer.Option("--repo", metavar="PATH|URL", help="The repository: a folder, or a URL that git can push to.")
]
REQUIREMENTS = Annotated[str | None, typer.Option("--requirements", metavar="TEXT", help="What the run is to do.")]
REQUIREMENTS_FILE = Annotated[
    str | None, typer.Option("--requirements-file", metavar="FILE", help="The same from a file; - is standard input.")
]
PERSONA = Annotated[
    list[str] | None,
    typer.Option(
        "--persona",
        metavar="ROLE=NAME",
        help="The persona for a role; can be repeated.",
        autocompletion=complete_role_personas,
    ),
]
UNSANDBOXED = Annotated[
    bool, typer.Option("--unsandboxed", help="Let the agents' commands run without a sandbox; recorded as your choice.")
]
IMAGE = Annotated[
    list[Path] | None,
    typer.Option("--image", metavar="FILE", help="An image that goes with it; can be repeated."),
]
QUEUE = Annotated[str, typer.Option("--queue", metavar="NAME", help="The queue; one of the setting queues.")]
PRIORITY = Annotated[
    int, typer.Option("--priority", min=-1000, max=1000, help="Among your own runs the higher goes first.")
]
_PASTE_WAIT_S = 0.05  # what a terminal pastes arrives at once; typing is slower
_MISSING = "Say what is wanted with --requirements TEXT or --requirements-file FILE."


def read_requirements(text: str | None, file: str | None) -> str | None:
    """Read what the options say; `None` if neither is given. Raises `BadParameter`."""
    if text is not None and file is not None:
        raise typer.BadParameter("Give either this or --requirements-file.", param_hint="--requirements")
    return text if file is None else read_source(file, option="--requirements-file")


def read_source(file: str, *, option: str) -> str:
    """Read the text of a file, or standard input for `-`. Raises `BadParameter`."""
    try:
        return sys.stdin.read() if file == "-" else Path(file).expanduser().read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise typer.BadParameter(f"{file} cannot be read: {error}.", param_hint=option) from error


def read_overrides(personas: list[str] | None) -> dict[str, str]:
    """Read `ROLE=NAME` pairs. Raises `BadParameter`."""
    return dict(_split(item) for item in personas or ())


def read_change(
    text: str | None,
    file: str | None,
    *,
    personas: list[str] | None,
    images: Sequence[Path] | None,
    is_unsandboxed: bool = False,
) -> dict[str, Any]:
    """Read what is to be different, as the engine takes it; empty if nothing is. Raises `BadParameter`."""
    change: dict[str, Any] = {}
    if overrides := read_overrides(personas):
        change["persona_overrides"] = overrides
    if added := read_images(images):
        change["images"] = added
    if is_unsandboxed:
        change["is_unsandboxed"] = True
    new_text = read_requirements(text, file)
    if new_text is not None:
        if not new_text.strip():
            raise refuse_missing()
        change["requirements_md"] = new_text
    return change


def read_images(files: Iterable[str | Path] | None) -> tuple[Image, ...]:
    """Read the images that options name. Raises `ImageInvalid`."""
    return check_images([read_image_file(Path(file).expanduser()) for file in files or ()])


def refuse_missing() -> typer.BadParameter:
    """Make the error for a run that nobody has said anything about."""
    return typer.BadParameter(_MISSING, param_hint="--requirements")


def ask_requirements() -> str:
    """Read lines up to an empty one or the end of input. An empty line in the middle of a paste does not end it."""
    say("What is wanted? An empty line ends it.")
    lines: list[str] = []
    while (line := read_line("> ")) is not None:
        if not line.strip() and not _is_more_waiting():
            break
        lines.append(line.rstrip())
    return "\n".join(lines).strip()


def _is_more_waiting() -> bool:
    try:
        return bool(select.select([sys.stdin], [], [], _PASTE_WAIT_S)[0])
    except (OSError, ValueError):
        return False


def _split(item: str) -> tuple[str, str]:
    role, separator, name = item.partition("=")
    if not separator or not role or not name:
        raise typer.BadParameter(f"It takes ROLE=NAME, not {item!r}.", param_hint="--persona")
    return role, name


def to_order(queue: str, priority: int, at: str | None) -> "RunOrder":
    """Return when the run is to be driven. Raises `BadParameter` for a time that is none."""
    from holdfast.engine.run.create import RunOrder
    from holdfast.persistence.statements import to_time_text

    return RunOrder(queue, priority, None if at is None else to_time_text(parse_time(at)))


def parse_time(word: str, *, now: datetime | None = None) -> datetime:
    """Parse a date with a time, or a time of day, the next one; without an offset by this machine's clock."""
    now = now or datetime.now().astimezone()
    try:
        if len(word) <= len("HH:MM:SS") and ":" in word:
            form = "%H:%M" if word.count(":") == 1 else "%H:%M:%S"
            moment = datetime.combine(now.date(), datetime.strptime(word, form).time()).astimezone()  # noqa: DTZ007
            return (moment if moment > now else moment + timedelta(days=1)).astimezone(UTC)
        return datetime.fromisoformat(word).astimezone(UTC)
    except (ValueError, OverflowError) as error:
        hint = "It should be a time, such as 03:30 or 2026-12-24T18:00+01:00."
        raise typer.BadParameter(f"{word!r} is no time. {hint}", param_hint="--at") from error
