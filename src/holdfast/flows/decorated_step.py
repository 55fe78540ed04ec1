"""`@step`: a function that is a durable step wherever a flow calls it, for those who prefer that to `ctx.step`."""

import functools
import inspect
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Concatenate, ParamSpec, TypeVar, overload

from holdfast.flows.context import Context

_P = ParamSpec("_P")
_T = TypeVar("_T")
_Decorated = Callable[Concatenate[Context, _P], Coroutine[Any, Any, _T]]


@overload
def step(function: Callable[_P, Coroutine[Any, Any, _T]], /) -> _Decorated[_P, _T]: ...
@overload
def step(function: Callable[_P, _T], /) -> _Decorated[_P, _T]: ...
@overload
def step(key: str | None = None, /, **options: Any) -> "_Decorator": ...
def step(target: Any = None, /, **options: Any) -> Any:
    """Make a durable step of a function: `await charge(ctx, 40)` is `await ctx.step("charge", charge, 40)`.

    `@step("key", retries=3)` names it and takes the options of `ctx.step`; without a key it is the function's name.
    """
    if callable(target):
        return _decorate(target, None, {})
    if target is not None and not isinstance(target, str):
        raise TypeError(f"The key of a step is a string, not {target!r}.")
    return _Decorator(target, options)


class _Decorator:
    """`@step(…)` before it has met its function."""

    def __init__(self, key: str | None, options: dict[str, Any]) -> None:
        known = _list_options()
        unknown = sorted(set(options) - known)
        if unknown:
            raise TypeError(f"{unknown[0]!r} is no option of a step. The options are {', '.join(sorted(known))}.")
        self._key, self._options = key, options

    @overload
    def __call__(self, function: Callable[_P, Coroutine[Any, Any, _T]], /) -> _Decorated[_P, _T]: ...
    @overload
    def __call__(self, function: Callable[_P, _T], /) -> _Decorated[_P, _T]: ...
    def __call__(self, function: Callable[..., Any], /) -> Any:
        return _decorate(function, self._key, self._options)


def _decorate(function: Callable[..., Any], key: str | None, options: dict[str, Any]) -> Callable[..., Awaitable[Any]]:
    name = key or function.__name__

    @functools.wraps(function)
    async def durable(ctx: Context, /, *args: Any, **kwargs: Any) -> Any:
        return await ctx.step(name, function, *args, **options, **kwargs)

    return durable


@functools.cache
def _list_options() -> frozenset[str]:
    return frozenset(
        name
        for name, parameter in inspect.signature(Context.step).parameters.items()
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY
    )
