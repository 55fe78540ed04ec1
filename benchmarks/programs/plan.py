"""The ten programs: what they are, what a run of each must have done once, and where it is killed."""

from dataclasses import dataclass

from benchmarks.programs.work import (
    BACK_OFF_S,
    CHECK_EVERY_S,
    CHECKS,
    CHILD_STEPS,
    CHILDREN,
    FLAKY,
    SEQUENCE,
    SLEEP_S,
    WIDTH,
)


@dataclass(frozen=True)
class Program:
    """A program, by its name in all systems."""

    name: str
    title: str
    effects: tuple[str, ...]
    """What an undisturbed run does, each once."""
    kill_at: str
    """The process dies right after this effect; if `is_wait`, in the wait that follows it."""
    is_wait: bool = False
    is_nudged: bool = False
    """Somebody outside sends what it waits for."""
    waits_s: float = 0.0
    """How long it must wait in all, which no system can save."""

    @property
    def undisturbed(self) -> str:
        """The id of the run that is left alone."""
        return f"{self.name}-undisturbed"

    @property
    def killed(self) -> str:
        """The id of the run whose process dies."""
        return f"{self.name}-killed"


_children = tuple(f"child {child} step {step}" for child in range(CHILDREN) for step in range(CHILD_STEPS))
_flaky = tuple(name for n in range(FLAKY) for name in (f"try part {n}", f"part {n}"))
_saga = ("flight", "hotel", "car", "cancel hotel", "cancel flight")

PROGRAMS = [
    Program("sequence", f"{SEQUENCE} steps in a row", tuple(f"step {n}" for n in range(SEQUENCE)), "step 25"),
    Program(
        "fan_out",
        f"{WIDTH} steps at once, then one",
        (*(f"item {n}" for n in range(WIDTH)), "sum"),
        f"item {WIDTH // 2}",
    ),
    Program("retry", f"{FLAKY} steps that fail once", _flaky, "part 2", waits_s=FLAKY * BACK_OFF_S),
    Program("timer", "a durable sleep", ("before", "after"), "before", is_wait=True, waits_s=SLEEP_S),
    Program("event", "wait for an event, with a time-out", ("order", "ship"), "order", is_wait=True, is_nudged=True),
    Program("approval", "a person approves", ("draft", "publish"), "draft", is_wait=True, is_nudged=True),
    Program("child", f"{CHILDREN} children of {CHILD_STEPS} steps", _children, "child 2 step 1"),
    Program("saga", "three bookings, the third refused, two undone", _saga, "cancel hotel"),
    Program(
        "poll",
        f"look {CHECKS} times, a pause between",
        tuple(f"check {n}" for n in range(CHECKS)),
        "check 4",
        waits_s=(CHECKS - 1) * CHECK_EVERY_S,
    ),
    Program("change", "a step added while a run is under way", ("reserve", "charge", "ship", "mail"), "ship"),
]
BY_NAME = {program.name: program for program in PROGRAMS}
