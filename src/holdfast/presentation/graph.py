"""Where the phases of a workflow stand when it is drawn.

Layers by the longest way from a beginning; an edge over several layers gets a place in each, so that no line runs
through a box; two sweeps bring neighbours beside each other.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

BOX = (184, 66)
_GAP_ACROSS = 16
_GAP_ALONG = {False: 36, True: 26}


@dataclass(frozen=True)
class Node:
    """A phase's box by its top left corner."""

    key: str
    x: float
    y: float


@dataclass(frozen=True)
class Layout:
    """Boxes in the order of the phases, and edges as SVG paths."""

    width: float
    height: float
    nodes: Sequence[Node]
    edges: Sequence[str]


@dataclass(eq=False)
class _GraphCell:
    before: list["_GraphCell"] = field(default_factory=list)
    after: list["_GraphCell"] = field(default_factory=list)
    row: float = 0.0
    x: float = 0.0
    y: float = 0.0


def lay_out(phases: Sequence[tuple[str, Iterable[str]]], *, is_down: bool = False) -> Layout:
    """Place phases, as keys with the keys each needs, left to right or downwards."""
    keys = [key for key, _ in phases]
    needs = {key: [need for need in dict.fromkeys(needed) if need in keys] for key, needed in phases}
    layers = to_layers(needs)
    places: list[list[_GraphCell]] = [[] for _ in range(1 + max(layers.values(), default=-1))]
    by_key = {key: _put(places, layers[key]) for key in keys}
    chains = [_chain(need, key, by_key, layers, places) for key in keys for need in needs[key]]
    _order(places)
    width, height = _put_in_place(places, is_down=is_down)
    nodes = [Node(key, by_key[key].x, by_key[key].y) for key in keys]
    return Layout(width, height, nodes, [_to_path(chain, is_down=is_down) for chain in chains])


def to_layers(needs: dict[str, list[str]]) -> dict[str, int]:
    """Find the layer of each phase. What waits in a circle (no valid workflow does) stands after the rest."""
    layers: dict[str, int] = {}
    left = list(needs)
    while left:
        ready = [key for key in left if all(need in layers for need in needs[key])] or left
        layers |= {key: 1 + max((layers.get(need, -1) for need in needs[key]), default=-1) for key in ready}
        left = [key for key in left if key not in layers]
    return layers


def _put(places: list[list[_GraphCell]], layer: int) -> _GraphCell:
    place = _GraphCell()
    places[layer].append(place)
    return place


def _chain(
    start: str, end: str, by_key: dict[str, _GraphCell], layers: dict[str, int], places: list[list[_GraphCell]]
) -> list[_GraphCell]:
    """Make the places that an edge runs through, and join them."""
    between = [_put(places, layer) for layer in range(layers[start] + 1, layers[end])]
    chain = [by_key[start], *between, by_key[end]]
    for before, after in pairwise(chain):
        after.before.append(before)
        before.after.append(after)
    return chain


def _order(places: list[list[_GraphCell]]) -> None:
    def number(layer: list[_GraphCell]) -> None:
        for row, place in enumerate(layer):
            place.row = row - (len(layer) - 1) / 2

    def wish(place: _GraphCell, beside: list[_GraphCell]) -> tuple[float, float]:
        return (sum(each.row for each in beside) / len(beside) if beside else place.row), place.row

    for layer in places:
        number(layer)
    for layer in places[1:]:
        layer.sort(key=lambda place: wish(place, place.before))
        number(layer)
    for layer in reversed(places[:-1]):
        layer.sort(key=lambda place: wish(place, place.after))
        number(layer)


def _put_in_place(places: list[list[_GraphCell]], *, is_down: bool) -> tuple[float, float]:
    across, along = BOX if is_down else BOX[::-1]
    gap = _GAP_ALONG[is_down]

    def extent(count: int, size: int, between: int) -> int:
        return max(size, count * (size + between) - between)

    span = max((extent(len(layer), across, _GAP_ACROSS) for layer in places), default=across)
    for index, layer in enumerate(places):
        start = (span - extent(len(layer), across, _GAP_ACROSS)) / 2
        for row, place in enumerate(layer):
            spot = (start + row * (across + _GAP_ACROSS), index * (along + gap))
            place.x, place.y = spot if is_down else spot[::-1]
    length = extent(len(places), along, gap)
    return (span, length) if is_down else (length, span)


def _to_path(chain: Sequence[_GraphCell], *, is_down: bool) -> str:
    width, height = BOX
    path = ""
    for before, place in pairwise(chain):
        if is_down:
            ax, ay, bx, by = before.x + width / 2, before.y + height, place.x + width / 2, place.y
            bend = f"{ax:g} {(ay + by) / 2:g} {bx:g} {(ay + by) / 2:g}"
        else:
            ax, ay, bx, by = before.x + width, before.y + height / 2, place.x, place.y + height / 2
            bend = f"{(ax + bx) / 2:g} {ay:g} {(ax + bx) / 2:g} {by:g}"
        path += f"{'L' if path else 'M'}{ax:g} {ay:g}C{bend} {bx:g} {by:g}"
    return path
