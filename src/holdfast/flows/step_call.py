"""`ctx.step` and `ctx.step.options(…)`: typed by the function that is called."""

from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any, ParamSpec, TypeVar, TypeVarTuple, Unpack, overload

from holdfast.flows.step_options import DEFAULT_POLICY, StepOptions, StepPolicy, to_policy
from holdfast.runtime.step import OnUnknown

_P = ParamSpec("_P")
_T = TypeVar("_T")
_Ts = TypeVarTuple("_Ts")
Perform = Callable[[StepPolicy, str, Callable[..., Any], tuple[Any, ...], Mapping[str, Any]], Coroutine[Any, Any, Any]]


class ConfiguredStep:
    """A step with its options: every further keyword is the function's."""

    __slots__ = ("_perform", "_policy")

    def __init__(self, perform: Perform, policy: StepPolicy) -> None:
        self._perform = perform
        self._policy = policy

    @overload
    async def __call__(
        self, key: str, fn: Callable[_P, Awaitable[_T]], /, *args: _P.args, **kwargs: _P.kwargs
    ) -> _T: ...
    @overload
    async def __call__(self, key: str, fn: Callable[_P, _T], /, *args: _P.args, **kwargs: _P.kwargs) -> _T: ...
    def __call__(self, key: str, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """Call `fn(*args, **kwargs)` once and return its result, now and on every resume."""
        return self._perform(self._policy, key, fn, args, kwargs)


class StepCall:
    """`ctx.step`: call it for a step, or ask it for one with `options`."""

    __slots__ = ("_perform",)

    def __init__(self, perform: Perform) -> None:
        self._perform = perform

    def options(self, **options: Unpack[StepOptions]) -> ConfiguredStep:
        """Return a step with these options, to be called with a key, a function and the function's arguments."""
        return ConfiguredStep(self._perform, to_policy(options))

    @overload
    async def __call__(
        self, key: str, fn: Callable[_P, Awaitable[_T]], /, *args: _P.args, **kwargs: _P.kwargs
    ) -> _T: ...
    @overload
    async def __call__(self, key: str, fn: Callable[_P, _T], /, *args: _P.args, **kwargs: _P.kwargs) -> _T: ...
    @overload
    async def __call__(
        self,
        key: str,
        fn: Callable[[*_Ts], Awaitable[_T]],
        /,
        *args: *_Ts,
        on_unknown: OnUnknown = ...,
        retries: int = ...,
        backoff_s: float = ...,
    ) -> _T: ...
    @overload
    async def __call__(
        self,
        key: str,
        fn: Callable[[*_Ts], _T],
        /,
        *args: *_Ts,
        on_unknown: OnUnknown = ...,
        retries: int = ...,
        backoff_s: float = ...,
    ) -> _T: ...
    def __call__(  # type: ignore[misc]  # it takes what either signature allows
        self, key: str, fn: Callable[..., Any], /, *args: Any, **kwargs: Any
    ) -> Any:
        """Call `fn(*args, **kwargs)` once and return its result, now and on every resume.

        A failure is tried again `retries` times, first after `backoff_s`, then twice as long each time. `on_unknown`
        says what to do if a process died in the middle of the call: `"rerun"` it, `"ask"` a person, `"fail"`, or
        ask `async def (key) -> Done(result) | NotDone()`, which gets the step's idempotency key.
        """
        policy = take_policy(kwargs) if kwargs else DEFAULT_POLICY
        return self._perform(policy, key, fn, args, kwargs)


def take_policy(kwargs: dict[str, Any]) -> StepPolicy:
    """Take the options of the short form out of a call's keywords: the rest is the function's."""
    options = {name: kwargs.pop(name) for name in _SHORT_FORM if name in kwargs}
    return to_policy(options) if options else DEFAULT_POLICY


_SHORT_FORM = ("on_unknown", "retries", "backoff_s")
