"""`ctx.step` of a plain flow: as that of any flow, but it returns when the step is done."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, ParamSpec, TypeVar, TypeVarTuple, Unpack, overload

from holdfast.flows.step_call import take_policy
from holdfast.flows.step_options import DEFAULT_POLICY, StepOptions, StepPolicy, to_policy
from holdfast.runtime.step import OnUnknown

_P = ParamSpec("_P")
_T = TypeVar("_T")
_Ts = TypeVarTuple("_Ts")
_Perform = Callable[[StepPolicy, str, Callable[..., Any], tuple[Any, ...], Mapping[str, Any]], Any]


class SyncConfiguredStep:
    """A step with its options: every further keyword is the function's."""

    def __init__(self, perform: _Perform, policy: StepPolicy) -> None:
        self._perform = perform
        self._policy = policy

    @overload
    def __call__(self, key: str, fn: Callable[_P, Awaitable[_T]], /, *args: _P.args, **kwargs: _P.kwargs) -> _T: ...
    @overload
    def __call__(self, key: str, fn: Callable[_P, _T], /, *args: _P.args, **kwargs: _P.kwargs) -> _T: ...
    def __call__(self, key: str, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """Call `fn(*args, **kwargs)` once and return its result, now and on every resume."""
        return self._perform(self._policy, key, fn, args, kwargs)


class SyncStepCall:
    """`ctx.step` of a plain flow: call it for a step, or ask it for one with `options`."""

    def __init__(self, perform: _Perform) -> None:
        self._perform = perform

    def options(self, **options: Unpack[StepOptions]) -> SyncConfiguredStep:
        """Return a step with these options, to be called with a key, a function and the function's arguments."""
        return SyncConfiguredStep(self._perform, to_policy(options))

    @overload
    def __call__(self, key: str, fn: Callable[_P, Awaitable[_T]], /, *args: _P.args, **kwargs: _P.kwargs) -> _T: ...
    @overload
    def __call__(self, key: str, fn: Callable[_P, _T], /, *args: _P.args, **kwargs: _P.kwargs) -> _T: ...
    @overload
    def __call__(
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
    def __call__(
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
        """Call `fn(*args, **kwargs)` once, in a thread, and return its result, now and on every resume.

        `on_unknown`, `retries` and `backoff_s` are those of `Context.step`.
        """
        policy = take_policy(kwargs) if kwargs else DEFAULT_POLICY
        return self._perform(policy, key, fn, args, kwargs)
