"""What a command-line coding agent says it has used: JSON in a file it is told of, or in the last lines it prints.

    {"cost_usd": 0.12, "input_tokens": 5200, "output_tokens": 830}

Each of the three may be left out. As well-known programs do it, the cost may be named `total_cost_usd`, and the tokens
may stand in an object `usage`. It is the word of a program: what makes no sense is taken as not said.
"""

import json
import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from holdfast.agents.calls.gate import Usage
from holdfast.catalog.model_table import ModelCard

VARIABLE = "HOLDFAST_USAGE_FILE"
_MAX_BYTES = 100_000
_MAX_MICROS = 10**12  # a million dollars: whoever says more has made a mistake


def estimate_cost(usage: Usage | None, card: ModelCard | None) -> Usage | None:
    """Return the usage with a cost by the model table, where tokens are all that a program reports."""
    if usage is None or card is None or usage.cost_micros is not None or not usage.input_tokens + usage.output_tokens:
        return usage
    cost = card.estimate_micros(
        input_tokens=usage.input_tokens, output_tokens=usage.output_tokens, cached_tokens=usage.cached_tokens
    )
    return replace(usage, cost_micros=cost, is_estimated=True)


def read_usage_file(path: Path) -> Usage | None:
    try:
        with path.open("rb") as file:
            text = file.read(_MAX_BYTES).decode(errors="replace")
    except OSError:
        return None
    return _find_usage([text, *reversed(text.splitlines())])


def find_usage_in_output(output: str) -> Usage | None:
    """Find the usage in the last line that reports one, or in an output that is one JSON object."""
    return _find_usage([*reversed(output[-_MAX_BYTES:].splitlines()), output])


def _find_usage(texts: list[str]) -> Usage | None:
    for text in texts:
        try:
            report = json.loads(text) if text.lstrip().startswith("{") else None
        except (ValueError, RecursionError):
            continue
        usage = _to_usage(report) if isinstance(report, dict) else None
        if usage is not None:
            return usage
    return None


def _to_usage(report: Mapping[str, Any]) -> Usage | None:
    cost = _to_micros(report.get("cost_usd", report.get("total_cost_usd")))
    nested = report.get("usage")
    tokens = nested if isinstance(nested, dict) else report
    used = [_to_count(tokens.get(name)) for name in ("input_tokens", "output_tokens")]
    if cost is None and used == [None, None]:
        return None
    return Usage(input_tokens=used[0] or 0, output_tokens=used[1] or 0, cost_micros=cost)


def _to_micros(usd: Any) -> int | None:
    if isinstance(usd, bool) or not isinstance(usd, int | float) or not 0 <= usd * 1_000_000 <= _MAX_MICROS:
        return None
    return math.ceil(usd * 1_000_000)


def _to_count(value: Any) -> int | None:
    return value if type(value) is int and 0 <= value < 2**62 else None
