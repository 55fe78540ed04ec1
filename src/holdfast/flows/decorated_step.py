"""`@step`: a function that is a durable step wherever a flow calls it, for those who prefer that to `ctx.step`."""

import functools
from collections.abc import Callable, Coroutine
from typing import Any, ParamSpec, Protocol, TypeVar, Unpack, overload

from holdfast.flows.context import Context
from holdfast.flows.step_options import StepOptions, to_policy
from holdfast.flows.sync_context import SyncContext

_P = ParamSpec("_P")
_T = TypeVar("_T")
_T_co = TypeVar("_T_co", covariant=True)


class DecoratedStep(Protocol[_P, _T_co]):
    """A function after `@step`: it takes the flow's context first, and is awaited in a flow that is `async`."""

    @overload
    def __call__(self, ctx: Context, /, *args: _P.args, **kwargs: _P.kwargs) -> Coroutine[Any, Any, _T_co]: ...
    @overload
    def __call__(self, ctx: SyncContext, /, *args: _P.args, **kwargs: _P.kwargs) -> _T_co: ...


@overload
def step(function: Callable[_P, Coroutine[Any, Any, _T]], /) -> DecoratedStep[_P, _T]: ...
@overload
def step(function: Callable[_P, _T], /) -> DecoratedStep[_P, _T]: ...
@overload
def step(key: str | None = None, /, **options: Unpack[StepOptions]) -> "_Decorator": ...
def step(target: Any = None, /, **options: Unpack[StepOptions]) -> Any:
    """Make a durable step of a function: `await charge(ctx, 40)` is `await ctx.step("charge", charge, 40)`.

    In a plain flow, with a `SyncContext`, it is `charge(ctx, 40)`. `@step("key", retries=3)` names it and takes
    options; without a key it is the function's name.
    """
    if callable(target):
        return _decorate(target, None, {})
    if target is not None and not isinstance(target, str):
        raise TypeError(f"The key of a step is a string, not {target!r}.")
    return _Decorator(target, options)


class _Decorator:
    """`@step(…)` before it has met its function."""

    def __init__(self, key: str | None, options: StepOptions) -> None:
        to_policy(options)  # a wrong one is an error here, where it stands
        self._key, self._options = key, options

    @overload
    def __call__(self, function: Callable[_P, Coroutine[Any, Any, _T]], /) -> DecoratedStep[_P, _T]: ...
    @overload
    def __call__(self, function: Callable[_P, _T], /) -> DecoratedStep[_P, _T]: ...
    def __call__(self, function: Callable[..., Any], /) -> Any:
        return _decorate(function, self._key, self._options)


def _decorate(function: Callable[..., Any], key: str | None, options: StepOptions) -> Callable[..., Any]:
    name = key or function.__name__

    @functools.wraps(function)
    def durable(*args: Any, **kwargs: Any) -> Any:
        ctx = args[0] if args else None
        if not isinstance(ctx, Context | SyncContext):
            raise TypeError(
                f"The step {name!r} is called with the flow's context first: {function.__name__}(ctx, …). "
                f"For a method, write ctx.step({name!r}, self.{function.__name__}, …) instead of @step."
            )
        return ctx.step.options(**options)(name, function, *args[1:], **kwargs)

    return durable
