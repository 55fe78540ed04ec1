import assert from "node:assert/strict";
import { test } from "node:test";
import { actionsOf } from "../../src/holdfast/web/js/model/actions.js";
import { Activity } from "../../src/holdfast/web/js/model/activity.js";
import { diffLines, parsePatch, sideBySide, withContext } from "../../src/holdfast/web/js/model/diff.js";
import { parseInline, parseMarkdown } from "../../src/holdfast/web/js/model/markdown.js";
import { consequences, nowLine, sentence } from "../../src/holdfast/web/js/model/now.js";
import { matchPath } from "../../src/holdfast/web/js/model/paths.js";
import { RunList } from "../../src/holdfast/web/js/model/run-list.js";
import { SseParser } from "../../src/holdfast/web/js/model/sse.js";
import { windowOf } from "../../src/holdfast/web/js/model/window.js";
import { ago, duration, money, showable } from "../../src/holdfast/web/js/format.js";

test("control and direction characters become visible, colours go", () => {
  assert.equal(showable("plain \n\ttext"), "plain \n\ttext");
  assert.equal(showable("\x1b[31mred\x1b[0m \x07 \u202eabc"), "red \u2407 ⟨U+202E⟩abc");
  assert.equal(showable("a\r\nb"), "a\nb");
});

test("quantities are said as people say them", () => {
  assert.deepEqual([0.0042, 9.96, 61, 840, 7500, 273_600].map(duration), ["4 ms", "10 s", "1 min 1 s", "14 min", "2 h 5 min", "3 d 4 h"]);
  assert.deepEqual([0, 0.00001, 0.0042, 1.1249, 1204].map(money), ["$0", "<$0.0001", "$0.0042", "$1.12", "$1,204.00"]);
  assert.deepEqual([0, 12, 400].map((s) => ago(1_000_000 - s, 1_000_000_000)), ["just now", "12 s ago", "6 min ago"]);
});

test("server-sent events are the same in whatever pieces they come", () => {
  const text = ': hello\n\nid: 1\nevent: run.started\ndata: {"a":1}\n\nid: 2\r\ndata: x\r\ndata: y\r\n\r\n';
  const whole = new SseParser().feed(text);
  const parser = new SseParser();
  const pieces = [...text].flatMap((character) => parser.feed(character));

  assert.deepEqual(whole, [{ id: "1", event: "run.started", data: '{"a":1}' }, { id: "2", event: "message", data: "x\ny" }]);
  assert.deepEqual(pieces, whole);
});

test("only the rows in view exist, and the rest is height", () => {
  const range = windowOf({ count: 10_000, rowHeight: 40, top: 4000, height: 800, spare: 5 });

  assert.deepEqual(range, { first: 95, last: 125, before: 3800, after: 395_000 });
  assert.deepEqual(windowOf({ count: 0, rowHeight: 40, top: 0, height: 800 }), { first: 0, last: 0, before: 0, after: 0 });
  assert.equal(windowOf({ count: 3, rowHeight: 40, top: 90_000, height: 800 }).last, 3);
});

test("paths are decoded, and what does not fit does not match", () => {
  assert.deepEqual(matchPath("/runs/:runId/:tab?", "/runs/a%2Fb/events"), { runId: "a/b", tab: "events" });
  assert.deepEqual(matchPath("/runs/:runId/:tab?", "/runs/x"), { runId: "x" });
  assert.equal(matchPath("/runs/:runId", "/runs"), null);
  assert.equal(matchPath("/runs/:runId", "/runs/%ff"), null);
});

test("a difference says which lines went and which came, and folds the rest", () => {
  const before = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j"].join("\n");
  const lines = diffLines(before, before.replace("h", "H"));

  assert.deepEqual(lines.filter((line) => line.type !== "same").map((line) => [line.type, line.text]), [["del", "h"], ["add", "H"]]);
  assert.deepEqual(withContext(lines, 1).map((line) => line.type), ["gap", "same", "del", "add", "same", "gap"]);
  assert.deepEqual(sideBySide(lines).find((row) => row.left?.type === "del").right.text, "H");
});

test("a patch is taken apart, also where its lines look like headers", () => {
  const patch = 'diff --git a/x.md b/x.md\nindex 1..2 100644\n--- a/x.md\n+++ b/x.md\n@@ -1,2 +1,2 @@ top\n--- not a header\n+++ not one either\n same\ndiff --git a/new b/new\nnew file mode 100644\n--- /dev/null\n+++ b/new\n@@ -0,0 +1 @@\n+one\n\\ No newline at end of file\ndiff --git a/old b/old\ndeleted file mode 100644\nBinary files a/old and /dev/null differ\n';
  const files = parsePatch(patch);

  assert.deepEqual(files.map((file) => [file.path, file.kind, file.added, file.removed, file.isBinary]), [["x.md", "changed", 1, 1, false], ["new", "added", 1, 0, false], ["old", "deleted", 0, 0, true]]);
  assert.deepEqual(files[0].lines.map((line) => line.text), ["top", "-- not a header", "++ not one either", "same"]);
});

test("the list stays still: known runs change in place, new ones wait to be let in", () => {
  const list = new RunList();
  const run = (id, state, created) => ({ run_id: id, state, created_at: created, updated_at: created, cost_usd: 0 });
  list.reset({ items: [run("b", "running", "2"), run("a", "running", "1")], next_cursor: "more" });

  list.refresh({ items: [run("c", "pending", "3"), { ...run("b", "completed", "2"), updated_at: "4" }] });

  assert.deepEqual(list.items.map((each) => [each.run_id, each.state]), [["b", "completed"], ["a", "running"]]);
  assert.deepEqual(list.fresh.map((each) => each.run_id), ["c"]);
  list.admit();
  list.append({ items: [run("a", "running", "1"), run("z", "failed", "0")], next_cursor: null });
  assert.deepEqual(list.items.map((each) => each.run_id), ["c", "b", "a", "z"]);
});

test("live text grows until the answer replaces it", () => {
  const activity = new Activity();
  const at = (seq, kind, payload) => activity.add({ seq, ts: seq, kind, lane_id: "plan/1/turn1", payload });
  at(1, "model.request", { key: "k", model: "m" });
  at(2, "text.delta", { key: "k", text: "Hel" });
  at(3, "text.delta", { key: "k", text: "lo" });
  assert.deepEqual([activity.entries[0].text, activity.entries[0].state], ["Hello", "open"]);

  at(4, "model.response", { key: "k", result: { value: { $mr: { result: [{ $msg: ["AIMessage", { content: [{ text: "Hello." }] }] }] } } } });
  at(5, "tool.result", { key: "k.t0", tool: "ls", args: { path: "/" }, result: { value: { $msg: ["ToolMessage", { content: "out" }] } } });
  at(6, "from.the.future", {});

  assert.deepEqual(activity.entries.map((entry) => [entry.type, entry.text ?? entry.output]), [["message", "Hello."], ["tool", undefined ?? "out"]]);
});

const RUN = { run_id: "r", state: "paused", pause_reason: "approval", phases: [{ key: "plan", state: "awaiting_approval", attempts: 2 }, { key: "build", state: "pending", attempts: 0 }], approvals: [{ approval_id: "q", state: "pending", phase_key: "plan", attempt: 2, requested_at: "2026-01-01T00:00:00Z", shown: {} }], updated_at: "2026-01-01T00:00:00Z", created_at: "2026-01-01T00:00:00Z" };
const PLAN = { phases: [{ key: "plan", needs: [], risk: "medium" }, { key: "build", needs: ["plan"], risk: "low" }] };

test("the sentence says what is happening and why", () => {
  assert.equal(sentence(RUN).text, "Waiting for approval of “plan”.");
  assert.equal(sentence({ ...RUN, state: "running", phases: [{ key: "plan", state: "running", attempts: 2 }] }).text, "Working on “plan”, attempt 2.");
  assert.equal(sentence({ ...RUN, state: "running", waiting_for: "No worker is taking runs." }).text, "No worker is taking runs.");
  assert.equal(sentence({ ...RUN, state: "failed", error: { message: "It broke." }, phases: [{ key: "plan", state: "failed" }] }).text, "Phase “plan” failed: It broke.");
  assert.equal(nowLine({ state: "failed", error: null }, { phases: [{ key: "plan", state: "failed", error: "It broke." }] }), "plan: It broke.");
});

test("each answer says what it will cause", () => {
  const causes = consequences(RUN.approvals[0], PLAN, RUN);

  assert.equal(causes.approve, "Phase “build” starts.");
  assert.equal(causes.request_changes, "“plan” runs again with your comment, as attempt 3.");
  const critical = { phases: [{ ...PLAN.phases[0], risk: "critical" }, PLAN.phases[1]] };
  assert.equal(consequences(RUN.approvals[0], critical, RUN).approve, "A second person must approve too; then phase “build” starts.");
  assert.match(consequences({ ...RUN.approvals[0], shown: { key: "plan/1/turn1/m0.t0" } }, PLAN, RUN).approve, /happens twice/);
});

test("an action that is not possible says why", () => {
  const all = () => null;
  assert.equal(actionsOf(RUN, all).abort, null);
  assert.equal(actionsOf(RUN, all).resume, "It waits for a decision, and goes on by itself after it.");
  assert.equal(actionsOf({ ...RUN, state: "completed" }, all).abort, "The run is completed.");
  assert.equal(actionsOf({ ...RUN, state: "failed" }, all).retry, null);
  assert.equal(actionsOf(RUN, () => "This needs the role operator; you are viewer.").abort, "This needs the role operator; you are viewer.");
});

test("markdown is blocks of text and never more than text", () => {
  assert.deepEqual(parseMarkdown("# A\n\ntext\nmore\n\n- one\n  - two\n\n```js\n<b>\n```").map((block) => block.type), ["heading", "text", "list", "code"]);
  assert.deepEqual(parseInline("a `b` **c** *d* [e](javascript:f)").map((part) => part.type), ["text", "code", "text", "strong", "text", "em", "text"]);
  assert.equal(parseMarkdown("```\nnever closed").length, 1);
  const long = "*".repeat(20_000) + "`".repeat(20_000);
  const started = performance.now();
  parseInline(long);
  assert.ok(performance.now() - started < 2000);
});
