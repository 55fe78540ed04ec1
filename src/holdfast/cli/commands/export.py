"""The command export: a run as one file."""

from pathlib import Path
from typing import Annotated

import typer

from holdfast.cli.terminal.arguments import JSON, RUN_ID, STORE, find_run_id
from holdfast.cli.terminal.output import print_json, print_text, say
from holdfast.errors import ConfigInvalid, HoldfastError


def export(
    run_id: RUN_ID,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="Where it goes; it must not be there yet.")
    ] = None,
    as_json: JSON = False,
    store: STORE = None,
) -> None:
    """Write a run into one file: journal, artifacts, report and change. Anyone can check it with holdfast verify.

    It holds all that the agent was told, read and wrote. Keys were redacted when it was recorded.

    Example: holdfast export 3f2a --output review.zip
    """
    from holdfast.cli.terminal.store import read_events
    from holdfast.engine.bundle import write_bundle

    full_id = find_run_id(run_id)
    file = (output or Path(f"holdfast-{full_id[:8]}.zip")).absolute()
    events = read_events(full_id)
    files = _collect(full_id)
    try:
        bundle = write_bundle(file, full_id, events, files)
    except FileExistsError as error:
        raise ConfigInvalid(
            f"{file} is there already.", hint="Name another one: --output FILE", key="output"
        ) from error
    except OSError as error:
        raise ConfigInvalid(
            f"{file} cannot be written: {error.strerror}.", hint="Name another one.", key="output"
        ) from error
    facts = {"file": str(file), "bytes": file.stat().st_size, **bundle.to_dict()}
    if as_json:
        print_json(facts)
    else:
        print_text(f"✓ {file} ({facts['bytes']:,} bytes, {bundle.events} events)")
        print_text(f"  digest {bundle.digest}\n  Check it anywhere: holdfast verify {file.name}")


def _collect(run_id: str) -> dict[str, bytes]:
    """Return what goes beside the journal; what cannot be had any more is named and left out."""
    import json

    from holdfast.persistence.flow_listings import find_flow_run

    if row := find_flow_run(run_id):
        from holdfast.cli.terminal.flow_runs import read_flow, to_json_facts

        facts = to_json_facts(row, read_flow(run_id))
        return {"run.json": json.dumps(facts, indent=1, ensure_ascii=False, default=str).encode()}
    from holdfast.cli.commands.runs.diff import read_diff
    from holdfast.cli.commands.runs.show import read_run
    from holdfast.persistence.raw_sql import find_artifact_text

    facts = read_run(run_id)
    files = {"run.json": json.dumps(facts, indent=1, ensure_ascii=False, default=str).encode()}
    for item in facts["artifacts"]:
        text = find_artifact_text(run_id, item["phase_key"], item["attempt"], item["hash"])
        if text is not None:
            files[f"artifacts/{item['phase_key']}/{item['attempt']}.{item['turn']}.json"] = text.encode()
    if report := facts["final_report_path"]:
        for path in (Path(report), Path(report).with_suffix(".md")):
            if path.is_file():
                files[f"report/{path.name}"] = path.read_bytes()
    try:
        files["changes.diff"] = read_diff(run_id).encode(errors="surrogateescape")
    except HoldfastError as error:
        say(f"Without the change: {error}")
    return files
