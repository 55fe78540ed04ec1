"""Calls that type checkers refuse: each line that ends with `# error` and no other."""

from holdfast import Context, Runtime, SyncContext, flow, register_codec, run_flow, start_flow, step


def write_notes(version: str, copies: int = 1) -> str:
    return version * copies


async def publish(notes: str, *, tag: str = "") -> int:
    return len(notes + tag)


async def release(ctx: Context, version: str) -> int:
    await ctx.step("notes", write_notes, 3)  # error
    await ctx.step("notes", write_notes)  # error
    await ctx.step("notes", write_notes, version, 1, 2)  # error
    await ctx.step("notes", write_notes, version, copies="3")  # error
    await ctx.step("notes", publish, version, tga="x")  # error
    await ctx.step("notes", publish, version, retries="3")  # error
    await ctx.step("notes", publish, 3, retries=3)  # error
    await ctx.step("notes", publish, version, on_unknown="maybe")  # error
    await ctx.step(write_notes, version)  # error
    await ctx.step.options(retries="3")("notes", write_notes, version)  # error
    await ctx.step.options(retires=3)("notes", write_notes, version)  # error
    await ctx.step.options(timeout=3)("notes", write_notes, 3)  # error
    wrong: str = await ctx.step("publish", publish, version)  # error
    await ctx.gather(3)  # error
    _a, _b, _c = await ctx.gather(ctx.step("a", publish, ""), ctx.step("b", publish, ""))  # error
    number: int = (await ctx.gather(ctx.step("a", publish, ""), ctx.step("b", write_notes, "")))[1]  # error
    await ctx.gather(ctx.step("a", publish, ""), limit="3")  # error
    return await ctx.step("notes", write_notes, version)  # error


def plain(ctx: Context) -> int:
    return 1


def plainly(ctx: SyncContext, version: str) -> int:
    ctx.step("notes", write_notes, 3)  # error
    ctx.step("notes", write_notes, version, retries="3")  # error
    ctx.step.options(retires=3)("notes", write_notes, version)  # error
    ctx.step.options(timeout=3)("notes", write_notes, 3)  # error
    number: int = ctx.step("notes", write_notes, version)  # error
    ctx.run_flow(release, 3)  # error
    ctx.run_flow(release, 3, run_id="r")  # error
    return len(version)


@flow("nightly", cron="30 2 * * *", missed="never")  # error
async def nightly(ctx: Context) -> None: ...


@step(retires=3)  # error
async def send(to: str) -> bool:
    return bool(to)


@step
async def send_again(to: str) -> bool:
    return bool(to)


async def parent(ctx: Context, version: str) -> None:
    await send_again(ctx, 3)  # error
    await send_again(version)  # error
    await ctx.run_flow(release)  # error
    await ctx.run_flow(release, 3)  # error
    await ctx.run_flow(release, 3, run_id="r")  # error
    await ctx.run_flow(release, version, run_id=3)  # error
    await ctx.run_flow(plainly, 3)  # error
    text: str = await ctx.run_flow(release, version, run_id="r")  # error


async def main() -> None:
    await run_flow(release)  # error
    await run_flow(release, run_id="r")  # error
    await run_flow(release, 1, run_id="r")  # error
    await run_flow(release, "1", "2")  # error
    await run_flow(release, versoin="1")  # error
    await run_flow(release, "1", run_id=3)  # error
    await run_flow(plain)  # error
    text: str = await run_flow(release, "1", run_id="r")  # error
    await run_flow(plainly, 1, run_id="r")  # error
    register_codec(int, encode=len, decode=int)  # error
    await start_flow(release)  # error
    await start_flow(release, 3)  # error
    await start_flow(release, 3, run_id="r")  # error
    await start_flow(release, "1", store=3)  # error
    await start_flow(plainly, 3, run_id="r")  # error
    word: str = await (await start_flow(release, "1", run_id="r")).result()  # error
    await Runtime("holdfast.db").start(release, 3)  # error
    await Runtime("holdfast.db").start(release, 3, run_id="r")  # error
