"""What the server works out for the pages: the graph of a workflow, its words, differences."""

import random
import re

from tests.support.engine_world import phase, template

from holdfast.presentation.diff import compare, parse_patch, to_pairs
from holdfast.presentation.graph import BOX, Layout, lay_out, to_layers
from holdfast.presentation.workflow import summarize_workflow, wrap

WIDTH, HEIGHT = BOX


def overlaps(layout: Layout) -> list[tuple[str, str]]:
    nodes = layout.nodes
    return [
        (a.key, b.key)
        for index, a in enumerate(nodes)
        for b in nodes[index + 1 :]
        if abs(a.x - b.x) < WIDTH and abs(a.y - b.y) < HEIGHT
    ]


def test_a_chain_stands_in_one_line() -> None:
    layout = lay_out([("a", ()), ("b", ["a"]), ("c", ["b"])])

    assert [(node.x, node.y) for node in layout.nodes] == [(0, 0), (220, 0), (440, 0)]
    assert (layout.width, layout.height) == (624, HEIGHT)
    assert layout.edges[0] == "M184 33C202 33 202 33 220 33"


def test_branches_stand_side_by_side_and_a_join_after_the_longest_of_them() -> None:
    needs = {"a": [], "b": ["a"], "c": ["a"], "d": ["c"], "e": ["b", "d"]}

    assert list(to_layers(needs).values()) == [0, 1, 1, 2, 3]
    assert overlaps(lay_out(list(needs.items()))) == []


def test_an_edge_over_several_layers_has_a_place_of_its_own_in_each() -> None:
    layout = lay_out([("a", ()), ("b", ["a"]), ("c", ["b", "a"])])

    assert sorted(edge.count("C") for edge in layout.edges) == [1, 1, 2]
    assert layout.height > HEIGHT
    assert all(0 <= node.y <= layout.height - HEIGHT for node in layout.nodes)


def test_downwards_the_same_graph_is_as_long_as_it_was_wide() -> None:
    down = lay_out([("a", ()), ("b", ["a"]), ("c", ["a"])], is_down=True)

    assert (down.width, down.height) == (2 * WIDTH + 16, 2 * HEIGHT + 26)
    assert overlaps(down) == []


def test_many_graphs_and_none_with_boxes_on_top_of_each_other() -> None:
    dice = random.Random(7)
    for _ in range(200):
        keys = [f"p{index}" for index in range(1 + dice.randrange(9))]
        phases = [(key, [need for need in keys[:index] if not dice.randrange(3)]) for index, key in enumerate(keys)]
        for is_down in (False, True):
            layout = lay_out(phases, is_down=is_down)
            assert overlaps(layout) == [], phases
            assert len(layout.edges) == sum(len(needs) for _, needs in phases)


def test_what_no_workflow_can_be_still_ends() -> None:
    assert len(lay_out([("a", ["b"]), ("b", ["a"])]).nodes) == 2
    assert lay_out([("a", ["ghost", "ghost"])]).edges == []
    assert lay_out([]).nodes == []


def test_people_are_asked_by_risk_unless_the_workflow_says_otherwise() -> None:
    made = template(
        phase("a", risk="low"),
        phase("b", risk="medium"),
        phase("c", risk="high", approval="never", checks=[["make", "test"]]),
        phase("d", risk="critical", title="Deploy"),
        phase("e", risk="low", approval="always"),
    )

    found = summarize_workflow(made)

    assert [each.people for each in found.phases] == [0, 1, 0, 2, 1]
    assert [each.tone for each in found.phases] == ["good", "busy", "waiting", "bad", "good"]
    assert found.phases[4].approval == "A person approves the result: this workflow always asks here."
    assert found.phases[0].approval == "Goes on by itself: its risk is low."
    assert found.summary == "5 phases · 3 approvals · risk up to critical"
    text = " ".join(found.cautions)
    for part in ("own branch", "“Deploy”: critical", "nobody is asked", "Runs 1 command of its own: make test"):
        assert part in text
    assert ("Must pass", "make test") in found.phases[2].facts


def test_a_workflow_that_only_reads_says_so() -> None:
    assert summarize_workflow(template(phase("a", read_only=True))).cautions == ["No phase may change files."]


def test_a_difference_says_which_lines_went_and_which_came_and_folds_the_rest() -> None:
    before = "\n".join("abcdefghij")

    found = compare("x", before, before.replace("h", "H"))

    assert [(line.type, line.text) for line in found.lines if line.type in ("add", "del")] == [
        ("del", "h"),
        ("add", "H"),
    ]
    assert [line.type for line in found.lines] == ["gap", "same", "same", "same", "del", "add", "same", "same"]
    assert found.lines[0].text == "⋯ 4 lines the same"
    assert [(line.a, line.b) for line in found.lines[3:6]] == [(7, 7), (8, None), (None, 8)]
    pair = next(pair for pair in to_pairs(found.lines) if pair.left and pair.left.type == "del")
    assert pair.right is not None
    assert pair.right.text == "H"
    assert compare("x", before, before).lines == []


def test_texts_too_long_to_compare_are_shown_as_replaced() -> None:
    old, new = ("\n".join(f"{mark}{n}" for n in range(3000)) for mark in "ab")

    found = compare("x", f"same\n{old}\nend", f"same\n{new}\nend")

    assert (found.added, found.removed) == (3000, 3000)
    assert [found.lines[0].text, found.lines[-1].text] == ["same", "end"]


def test_a_patch_is_taken_apart_also_where_its_lines_look_like_headers() -> None:
    patch = (
        "diff --git a/.holdfast/x b/.holdfast/x\nnew file mode 100644\n--- /dev/null\n+++ b/.holdfast/x\n"
        "@@ -0,0 +1 @@\n+one\n\\ No newline at end of file\n"
        "diff --git a/x.md b/x.md\nindex 1..2 100644\n--- a/x.md\n+++ b/x.md\n@@ -1,2 +1,2 @@ top\n"
        "--- not a header\n+++ not one either\n same\n@@ -9 +9 @@\n-a\n+b\n"
        "diff --git a/old b/old\ndeleted file mode 100644\nBinary files a/old and /dev/null differ\n"
        "diff --git a/from b/to\nsimilarity index 90%\nrename from from\nrename to to\n"
    )

    files = parse_patch(patch)

    assert [(file.path, file.kind, file.added, file.removed, file.is_binary, file.is_own) for file in files] == [
        ("x.md", "changed", 2, 2, False, False),
        ("old", "deleted", 0, 0, True, False),
        ("to", "renamed", 0, 0, False, False),
        (".holdfast/x", "added", 1, 0, False, True),
    ]
    texts = [line.text for line in files[0].lines]
    assert texts == ["⋯ top", "-- not a header", "++ not one either", "same", "⋯ ", "a", "b"]
    assert (files[0].lines[1].a, files[0].lines[2].b, files[2].was) == (1, 1, "from")
    assert parse_patch("") == parse_patch("no patch at all") == []
    assert re.sub(r"\s", "", "".join(line.text for line in files[3].lines)) == "one"


def test_files_that_fit_a_glob_are_the_engines_own_and_come_last() -> None:
    def added(path: str) -> str:
        return f"diff --git a/{path} b/{path}\nnew file mode 100644\n--- /dev/null\n+++ b/{path}\n@@ -0,0 +1 @@\n+x\n"

    files = parse_patch(added("change.json") + added("docs/change.json") + added("z.py"), ["change.json"])

    assert [(file.path, file.is_own) for file in files] == [
        ("docs/change.json", False),
        ("z.py", False),
        ("change.json", True),
    ]


def test_titles_are_wrapped_and_cut() -> None:
    assert wrap("Write the specification", 14) == ["Write the", "specification"]
    assert wrap("Review", 14) == ["Review"]
    assert wrap("one two three four five six", 9)[1].endswith("…")
    assert all(len(line) <= 10 for line in wrap("x" * 50, 10))
