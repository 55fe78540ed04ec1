"""Flows by name: what `@flow` registers, and the modules in which programs and commands find them."""

import importlib
import importlib.util
import inspect
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, overload

from holdfast.errors import ConfigInvalid

if TYPE_CHECKING:
    from holdfast.flows.service.flow_schedule import FlowSchedule, Missed, Overlap

FlowFunction = Callable[..., Any]  # asynchronous, or plain: `def flow(ctx: SyncContext, …)`
_F = TypeVar("_F", bound=Callable[..., Any])
_NAME = "__holdfast_flow__"


@dataclass(frozen=True)
class FlowDefinition:
    """A flow that can be started and recovered by its name."""

    name: str
    function: FlowFunction
    max_parallel: int | None = None
    """How many of its runs one runtime drives at a time; `None`: as many as it has room for."""
    schedule: "FlowSchedule | None" = None
    timeout_s: float | None = None
    """How long a run may take from its start until it is cancelled; `None`: for ever."""

    @property
    def place(self) -> str:
        """File and line of its function."""
        code = getattr(inspect.unwrap(self.function), "__code__", None)
        return f"{code.co_filename}:{code.co_firstlineno}" if code else repr(self.function)


_flows: dict[str, FlowDefinition] = {}


@overload
def flow(function: _F, /) -> _F: ...
@overload
def flow(
    name: str | None = None,
    /,
    *,
    max_parallel: int | None = None,
    cron: str | None = None,
    zone: str = "UTC",
    missed: "Missed" = "skip",
    overlap: "Overlap | None" = None,
    timeout: float | timedelta | None = None,
) -> Callable[[_F], _F]: ...
def flow(
    target: Any = None,
    /,
    *,
    max_parallel: int | None = None,
    cron: str | None = None,
    zone: str = "UTC",
    missed: "Missed" = "skip",
    overlap: "Overlap | None" = None,
    timeout: float | timedelta | None = None,
) -> Any:
    """Register a flow under a name, so that it is started and recovered by it: `@flow("name")`, or bare `@flow`.

    The function stays what it is: `run_flow` takes it as before. Without a name it is the function's own. With `cron`,
    a line of five fields by the clock of `zone`, whoever drives the flow starts it at these times; `missed` says what
    becomes of those at which nobody did, `overlap` of those at which an earlier run is not over: `"skip"` them, or
    `"queue"` the run until it is; without it both run. A run that is not over `timeout` after its start, seconds or a
    `timedelta`, is cancelled by whoever runs it. Raises `ConfigInvalid` if another function has the name.
    """
    timeout_s = timeout.total_seconds() if isinstance(timeout, timedelta) else timeout
    if timeout_s is not None and (not isinstance(timeout_s, int | float) or not timeout_s > 0):
        raise ConfigInvalid(f"timeout of a flow is a time above 0, in seconds or as a timedelta, not {timeout!r}.")
    if max_parallel is not None and (not isinstance(max_parallel, int) or max_parallel < 1):
        raise ConfigInvalid(f"max_parallel of a flow is a whole number above 0, not {max_parallel!r}.")
    if callable(target):
        _register(FlowDefinition(target.__name__, target))
        return target
    if target is not None and (not isinstance(target, str) or not target.strip()):
        raise TypeError(f"The name of a flow is a string, not {target!r}.")

    def register(function: _F) -> _F:
        if not callable(function):
            raise TypeError(f"@flow takes a function, not {function!r}.")
        name = target or function.__name__
        schedule = None
        if cron is not None:
            from holdfast.flows.service.flow_schedule import to_schedule

            schedule = to_schedule(function, name, cron, zone=zone, missed=missed, overlap=overlap)
        _register(FlowDefinition(name, function, max_parallel, schedule, timeout_s))
        return function

    return register


def _register(definition: FlowDefinition) -> None:
    name, function = definition.name, definition.function
    before = _flows.get(name)
    if before is not None and not _takes_place_of(function, before.function):
        raise ConfigInvalid(
            f"Two flows are called {name!r}: {before.place} and {definition.place}.",
            hint="Give one of them another name: @flow('name').",
            flow=name,
        )
    function.__holdfast_flow__ = name  # type: ignore[attr-defined]  # found again by `name_of`
    _flows[name] = definition


def _takes_place_of(function: Callable[..., Any], before: Callable[..., Any]) -> bool:
    """Return true for the same definition, executed again, and for one inside another function than the one before.

    What is defined inside a function may be gone with it, as in two tests that use one name.
    """
    if function is before or (function.__module__, function.__qualname__) == (before.__module__, before.__qualname__):
        return True
    outer, outer_before = _enclosing(function), _enclosing(before)
    return bool(outer_before) and outer != outer_before


def _enclosing(function: Callable[..., Any]) -> str:
    outer, _, _ = function.__qualname__.rpartition(".<locals>.")
    return f"{function.__module__}.{outer}" if outer else ""


def name_of(function: Callable[..., Any]) -> str:
    """Return the name under which a flow's runs are recorded: the registered one, else the function's own."""
    registered: str | None = getattr(function, _NAME, None)
    return registered or getattr(function, "__qualname__", None) or type(function).__qualname__


def find_flow(name: str) -> FlowDefinition | None:
    """Find a registered flow by its name."""
    return _flows.get(name)


def list_definitions() -> list[FlowDefinition]:
    """List all registered flows."""
    return [_flows[name] for name in sorted(_flows)]


def to_definitions(flows: Iterable[FlowFunction | str] | None) -> dict[str, FlowDefinition]:
    """Return the definitions of functions or names; of all that are registered if there are none.

    Raises `ConfigInvalid` for a name that nobody has registered, and for one that two functions have.
    """
    if flows is None:
        return dict(_flows)
    found: dict[str, FlowDefinition] = {}
    for item in flows:
        definition = _to_definition(item)
        other = found.setdefault(definition.name, definition)
        if other.function is not definition.function:
            raise ConfigInvalid(f"Two flows are called {other.name!r}: {other.place} and {definition.place}.")
    return found


def _to_definition(item: FlowFunction | str) -> FlowDefinition:
    if isinstance(item, str):
        if item not in _flows:
            raise ConfigInvalid(
                f"No flow is registered as {item!r}.",
                hint=f"Known: {', '.join(sorted(_flows)) or 'none'}. Import the module of its @flow first.",
            )
        return _flows[item]
    if not callable(item):
        raise TypeError(f"A flow is an asynchronous function or a registered name, not {item!r}.")
    name = name_of(item)
    registered = _flows.get(name)
    return registered if registered is not None and registered.function is item else FlowDefinition(name, item)


def load_flows(modules: Iterable[str]) -> list[FlowDefinition]:
    """Import modules (`package.module`, or a path that ends in `.py`) and list the flows that are registered then.

    Raises `ConfigInvalid` if one cannot be imported, or registers nothing.
    """
    for module in modules:
        imported = import_flows(module)
        if not any(definition.function.__module__ == imported for definition in _flows.values()):
            known = [each for each in vars(sys.modules[imported]).values() if getattr(each, _NAME, None)]
            if not known:
                raise ConfigInvalid(f"{module} registers no flow.", hint="Decorate a flow with @holdfast.flow('name').")
    return list_definitions()


def import_flows(module: str) -> str:
    """Import a module, or a path that ends in `.py`, and return its name. Raises `ConfigInvalid`."""
    path = Path(module)
    folder = str(path.resolve().parent if path.suffix == ".py" else Path.cwd())
    if folder not in sys.path:
        sys.path.insert(0, folder)  # as `python path.py` and `python -m module` do
    try:
        if path.suffix != ".py":
            return importlib.import_module(module).__name__
        return _import_file(path)
    except ConfigInvalid:
        raise
    except Exception as error:
        raise ConfigInvalid(
            f"{module} cannot be imported: {type(error).__name__}: {error}.",
            hint="Name an importable module (package.flows) or a file (flows.py).",
        ) from error


def _import_file(path: Path) -> str:
    for name, loaded in list(sys.modules.items()):
        if name != "__main__" and getattr(loaded, "__file__", None) == str(path.resolve()):
            return name
    spec = importlib.util.spec_from_file_location(path.stem, path.resolve())
    if spec is None or spec.loader is None or not path.is_file():
        raise ConfigInvalid(f"There is no file {path}.")
    loaded = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = loaded  # before it runs: its dataclasses look their module up
    try:
        spec.loader.exec_module(loaded)
    except BaseException:
        del sys.modules[path.stem]
        raise
    return path.stem
