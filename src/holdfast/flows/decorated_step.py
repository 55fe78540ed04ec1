"""`@step`: a function that is a durable step wherever a flow calls it, for those who prefer that to `ctx.step`."""

import functools
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Concatenate, ParamSpec, TypeVar, Unpack, overload

from holdfast.flows.context import Context
from holdfast.flows.step_options import StepOptions, to_policy

_P = ParamSpec("_P")
_T = TypeVar("_T")
_Decorated = Callable[Concatenate[Context, _P], Coroutine[Any, Any, _T]]


@overload
def step(function: Callable[_P, Coroutine[Any, Any, _T]], /) -> _Decorated[_P, _T]: ...
@overload
def step(function: Callable[_P, _T], /) -> _Decorated[_P, _T]: ...
@overload
def step(key: str | None = None, /, **options: Unpack[StepOptions]) -> "_Decorator": ...
def step(target: Any = None, /, **options: Unpack[StepOptions]) -> Any:
    """Make a durable step of a function: `await charge(ctx, 40)` is `await ctx.step("charge", charge, 40)`.

    `@step("key", retries=3)` names it and takes options; without a key it is the function's name.
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
    def __call__(self, function: Callable[_P, Coroutine[Any, Any, _T]], /) -> _Decorated[_P, _T]: ...
    @overload
    def __call__(self, function: Callable[_P, _T], /) -> _Decorated[_P, _T]: ...
    def __call__(self, function: Callable[..., Any], /) -> Any:
        return _decorate(function, self._key, self._options)


def _decorate(function: Callable[..., Any], key: str | None, options: StepOptions) -> Callable[..., Awaitable[Any]]:
    name = key or function.__name__

    @functools.wraps(function)
    async def durable(ctx: Context, /, *args: Any, **kwargs: Any) -> Any:
        return await ctx.step.options(**options)(name, function, *args, **kwargs)

    return durable
