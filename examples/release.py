"""A release that waits for approval: run it, answer, run it again. Kill it whenever you like.

    python examples/release.py 1.4              starts, or goes on; stops at the approval
    python examples/release.py 1.4 --approve    answers (in any process, any time later)
    python examples/release.py 1.4              publishes; once more just shows the result

It writes `release.db` (the journal) and `releases.txt` (what is published) into the working folder.
"""

import argparse
import asyncio
from pathlib import Path

from holdfast import Context, Done, NotDone, RunPaused, decide, run_flow, step_key

STORE = "release.db"
PUBLISHED = Path("releases.txt")


def write_notes(version: str) -> str:
    print("writing the notes")
    return f"{version}: three fixes"


async def test_on(system: str) -> str:
    print(f"testing on {system}")
    await asyncio.sleep(0.3)
    return f"{system} is fine"


def publish(version: str, notes: str) -> str:
    print("publishing")
    with PUBLISHED.open("a") as published:
        published.write(f"{step_key()} {notes}\n")
    return f"{version} is out"


async def is_published(key: str) -> Done | NotDone:
    """Asked if a process died while it was publishing: look at the place itself, then decide."""
    if PUBLISHED.exists() and any(line.startswith(f"{key} ") for line in PUBLISHED.read_text().splitlines()):
        return Done(f"{key.partition(':')[0].removeprefix('release-')} is out")
    return NotDone()


async def release(ctx: Context, version: str) -> str:
    notes = await ctx.step("notes", write_notes, version)
    results = await ctx.gather(*(ctx.step("test", test_on, system) for system in ("Debian", "Ubuntu")))
    await ctx.approval("publish", show={"notes": notes, "tests": results})
    result: str = await ctx.step("publish", publish, version, notes, on_unknown=is_published)
    return result


async def main(version: str, *, is_approved: bool) -> None:
    run_id = f"release-{version}"
    if is_approved:
        await decide(run_id, "publish", "approve", store=STORE, by="you")
        print("approved; run it again")
        return
    try:
        print(await run_flow(release, version, run_id=run_id, store=STORE))
    except RunPaused as paused:
        print(f"{paused.message} Answer with: python examples/release.py {version} --approve")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("version")
    parser.add_argument("--approve", action="store_true")
    given = parser.parse_args()
    asyncio.run(main(given.version, is_approved=given.approve))
