import assert from "node:assert/strict";
import { test } from "node:test";
import { filterRows, rowFilter, unfoldRows } from "../../src/holdfast/web/js/model/trace.js";
import { Activity, brief, outcomeOf } from "../../src/holdfast/web/js/model/activity.js";
import { describeCall, describeNote, toStepRow } from "../../src/holdfast/web/js/model/flow.js";
import { readComments, withComment } from "../../src/holdfast/web/js/model/line-comments.js";
import { parseInline, parseMarkdown } from "../../src/holdfast/web/js/model/markdown.js";
import { findRoute, matchPath, toOwnPath } from "../../src/holdfast/web/js/model/routes.js";
import { RunList } from "../../src/holdfast/web/js/model/run-list.js";
import { axisTicks, foldedScale, foldLabels, spread } from "../../src/holdfast/web/js/model/timescale.js";
import { SseParser } from "../../src/holdfast/web/js/stream.js";
import { windowOf } from "../../src/holdfast/web/js/parts/windowed.js";
import { ago, duration, money, showable, toStatus } from "../../src/holdfast/web/js/format.js";

test("control and direction characters become visible, colours go", () => {
  assert.equal(showable("plain \n\ttext"), "plain \n\ttext");
  assert.equal(showable("\x1b[31mred\x1b[0m \x07 \u202eabc"), "red \u2407 ⟨U+202E⟩abc");
  assert.equal(showable("a\r\nb"), "a\nb");
  assert.equal(showable("ad\u200bmin so\u00adft \u2060\u{e0041}"), "ad⟨U+200B⟩min so⟨U+00AD⟩ft ⟨U+2060⟩⟨U+E0041⟩");
  assert.equal(showable("👩‍💻 نمی‌خواهم"), "👩‍💻 نمی‌خواهم"); // joiners are a part of words and pictures
});

test("quantities are said as people say them", () => {
  assert.deepEqual([0.0042, 9.96, 61, 840, 7500, 273_600].map(duration), ["4 ms", "10 s", "1 min 1 s", "14 min", "2 h 5 min", "3 d 4 h"]);
  assert.deepEqual([0, 0.00001, 0.0042, 1.1249, 1204].map(money), ["$0", "<$0.0001", "$0.0042", "$1.12", "$1,204.00"]);
  assert.deepEqual([0, 12, 400].map((s) => ago(1_000_000 - s, 1_000_000_000)), ["just now", "12 s ago", "6 min ago"]);
});

test("server-sent events are the same in whatever pieces they come", () => {
  const text = ': hello\n\nid: 1\nevent: run.started\ndata: {"a":1}\n\nid: 2\r\ndata: {\r\ndata: }\r\n\r\ndata: no JSON\n\n';
  const whole = new SseParser().feed(text);
  const parser = new SseParser();
  const pieces = [...text].flatMap((character) => parser.feed(character));

  assert.deepEqual(whole, [{ id: "1", event: "run.started", data: { a: 1 } }, { id: "2", event: "message", data: {} }, { id: "", event: "message", data: null }]);
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

test("only pages of ours are led to, also after a login", () => {
  assert.equal(findRoute("/runs/x/cost").route.file, "run");
  assert.equal(findRoute("/nowhere"), null);
  assert.deepEqual(["/budget?days=7", "//evil.example", "/\\evil", "https://evil.example", "/sign-in", null, "/\t/evil.example"].map((next) => toOwnPath(next, "http://here.example")), ["/budget?days=7", "/", "/", "/", "/", "/", "/"]);
});

test("hours without work are folded, and the order of times stays", () => {
  const scale = foldedScale({ from: 0, to: 10_010, busy: [[0, 10], [10_000, null]], width: 1000 });

  assert.equal(scale.folds.length, 1);
  assert.ok(scale.folds[0].width < 100);
  assert.ok(scale.toX(10) > 400);
  assert.equal(scale.toX(0), 0);
  assert.equal(scale.toX(99_999), 1000);
  const xs = [0, 5, 10, 5000, 10_000, 10_005, 10_010].map(scale.toX);
  assert.deepEqual(xs, [...xs].sort((a, b) => a - b));
  const ticks = axisTicks(scale);
  assert.ok(ticks.length > 2 && ticks.every((tick, index) => index === 0 || tick.x - ticks[index - 1].x >= 70));
});

test("a state has a tone, a shape and a word, also one that is not known", () => {
  assert.deepEqual(toStatus("paused", "budget"), { tone: "waiting", shape: "waiting", word: "Out of budget" });
  assert.deepEqual(toStatus("cancelled").shape, "stopped");
  assert.deepEqual(toStatus("from the future"), { tone: "idle", shape: "idle", word: "from the future" });
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

test("an answer stands once, also where its last piece was written behind it", () => {
  const activity = new Activity();
  const at = (seq, kind, payload) => activity.add({ seq, ts: seq, kind, lane_id: "plan/1/turn1", payload });
  at(1, "model.request", { key: "k" });
  at(2, "text.delta", { key: "k", text: "Hello " });
  at(3, "model.response", { key: "k", result: { value: { $msg: ["AIMessage", { content: "Hello world." }] } } });
  at(4, "text.delta", { key: "k", text: "world." });

  assert.deepEqual(activity.entries.map((entry) => entry.text), ["Hello world."]);
});

test("the outcome of a call is read from its result", () => {
  const message = (content, more) => ({ value: { $msg: ["ToolMessage", { content, ...more }] } });
  const results = [
    { ...message("Denied: no", { status: "error" }), refused: true },
    message("no such tool", { status: "error" }),
    message("x\n[Command failed with exit code 3]"),
    message("x", { artifact: { exit_code: 1 } }),
    message("fine", { artifact: { exit_code: 0 } }),
    null,
    "text",
  ];

  assert.deepEqual(results.map(outcomeOf), ["denied", "failed", "exit 3", "exit 1", "", "", ""]);
});

const answered = (...calls) => ({ value: { $mr: { result: [{ $msg: ["AIMessage", { content: "", tool_calls: calls }] }] } } });

test("what a subagent does stands inside the call that began it, with its name, while it works too", () => {
  const activity = new Activity();
  const lane = "plan/1/turn1";
  const task = `${lane}/m0.t1`;
  const args = { description: "Read it", subagent_type: "reader" };
  const at = (seq, kind, lane_id, payload) => activity.add({ seq, ts: seq, kind, lane_id, payload });
  at(1, "model.request", lane, { key: `${lane}/m0` });
  at(2, "model.response", lane, { key: `${lane}/m0`, result: answered({ name: "ls" }, { name: "task", args }) });
  at(3, "model.request", task, { key: `${task}/m0` });
  at(4, "model.response", task, { key: `${task}/m0`, result: answered({ name: "task", args: { subagent_type: "inner" } }) });
  at(5, "text.delta", `${task}/m0.t0`, { key: `${task}/m0.t0/m0`, text: "Deep" });

  const [silent, agent] = activity.entries;
  assert.equal(silent.isSilent, true);
  assert.deepEqual([agent.type, agent.state, agent.args, agent.entries.length], ["agent", "open", args, 2]);
  assert.deepEqual([agent.entries[1].args.subagent_type, agent.entries[1].entries[0].text], ["inner", "Deep"]);
  const { version } = agent;

  at(6, "text.delta", `${task}/m0.t0`, { key: `${task}/m0.t0/m0`, text: "er" });
  assert.ok(agent.version > version);
  at(7, "tool.result", lane, { key: task, tool: "task", args, result: { took_s: 2, value: "read" } });
  assert.deepEqual([agent.type, agent.state, agent.took, agent.output], ["agent", "done", 2, "read"]);
  at(8, "run.failed", "main", {});
  assert.equal(agent.entries[1].state, "cut");
  assert.deepEqual(activity.entries.map((entry) => entry.type), ["message", "agent", "note"]);
});

test("tries that failed stand with the answer, a call that is made again where the run went on", () => {
  const activity = new Activity();
  const at = (seq, kind, payload) => activity.add({ seq, ts: seq, kind, lane_id: "plan/1/turn1", payload });
  at(1, "model.request", { key: "k" });
  at(2, "model.error", { key: "k", error: { message: "429" }, retry_at: 3 });
  at(3, "run.resumed", { after: "running" });
  at(4, "tool.unknown", { key: "plan/1/turn1", resolution: "rerun" });
  at(5, "model.request", { key: "k" });
  at(6, "model.request", { key: "k" });
  at(7, "run.cancelled", {});

  assert.deepEqual(activity.entries.map((entry) => [entry.type, entry.state, entry.failures]), [["note", undefined, undefined], ["message", "cut", ["429"]], ["note", undefined, undefined]]);
});

test("every kind of event can be told, whatever it holds", (t) => {
  const reported = t.mock.method(console, "error", () => {});
  const kinds = "run.created run.started run.paused run.completed run.failed run.cancelled run.cancel.requested run.changed phase.started phase.completed phase.failed phase.reopened artifact.accepted artifact.rejected human.approval.requested human.approval.received human.approval.first budget.exhausted budget.raised agent.error model.request model.response model.error run.error text.delta message.received step.completed reasoning.summary tool.started tool.result tool.error run.resumed tool.unknown".split(" ");
  const payloads = [undefined, {}, { reason: "approval" }, { error: 5, key: 7, result: "x", show: { tool: "t" }, args: null, images: 3 }, { result: { value: { $msg: [1] } }, key: "a/m0", args: 4 }];
  const activity = new Activity();
  let seq = 0;
  for (const kind of kinds) for (const payload of payloads) activity.add({ seq: ++seq, ts: seq, kind, lane_id: seq % 2 ? "p/1/turn1/m0.t0" : null, payload });

  assert.deepEqual(reported.mock.calls.map((call) => call.arguments[0].stack), []);
  assert.ok(activity.entries.length > 10);
});

test("only a crash is an alarm", () => {
  const tonesAfter = (after, resolution, hasDied = false) => {
    const activity = new Activity();
    activity.add({ seq: 1, ts: 1, kind: "run.resumed", lane_id: "main", payload: { after, taken_over: hasDied } });
    activity.add({ seq: 2, ts: 2, kind: "tool.unknown", lane_id: "plan/1", payload: { key: "plan/1/turn1/m0", resolution } });
    return activity.entries.map((entry) => entry.tone);
  };

  assert.deepEqual(tonesAfter("paused", "rerun"), ["idle"]);
  assert.deepEqual(tonesAfter("running", "reattached"), ["idle", "idle"]);
  assert.deepEqual(tonesAfter("running", "ask"), ["idle", "waiting"]);
  assert.deepEqual(tonesAfter("running", "rerun"), ["idle", "idle"]);
  assert.deepEqual(tonesAfter("running", "rerun", true), ["idle", "waiting"]);
});

test("calls of a subagent are folded, and found ones stand under what they are inside of", () => {
  const step = (key, depth, label = key) => ({ type: "step", key, depth, label, bars: [{ type: "tool", look: "done" }] });
  const rows = [{ type: "phase", key: "p" }, step("a", 0), step("a1", 1), step("a2", 2, "found"), step("a3", 1), step("b", 0), { type: "phase", key: "q" }, step("c", 0)];
  const keys = (found) => found.map((row) => row.key).join(" ");

  assert.equal(keys(unfoldRows(rows, new Set(["a"]))), "p a b q c");
  assert.equal(keys(unfoldRows(rows, new Set(["a1"]))), "p a a1 a3 b q c");
  const textOf = (row) => row.label;
  assert.equal(keys(filterRows(rows, rowFilter({ text: "Found ", textOf }))), "p a a1 a2");
  assert.equal(keys(filterRows(rows, rowFilter({ text: "b", textOf }))), "p b");
  assert.equal(keys(filterRows(rows, rowFilter({ only: "models", text: "", textOf }))), "");
  assert.equal(rowFilter({ only: "", text: " ", textOf }), null);
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

test("labels and signs along the time never lie on each other", () => {
  const scale = foldedScale({ from: 0, to: 4000, busy: [[0, 10], [1000, 1010], [1990, 2000], [3900, null]], width: 600 });
  const labels = foldLabels(scale).map((label) => label.x);
  const ticks = axisTicks(scale).map((tick) => tick.x);

  assert.ok(labels.length > 0);
  assert.ok(labels.every((x, index) => index === 0 || x - labels[index - 1] >= 64));
  assert.ok(ticks.every((x) => labels.every((label) => x < label - 64 || x >= label + 32)));
  const signs = spread([10, 11, 12, 300, 598, 599, 600], { width: 600 });
  assert.ok(signs.every((x, index) => x >= 6 && x <= 594 && (index === 0 || x - signs[index - 1] >= 13)));
  assert.equal(signs[3], 300);
});

test("a flow's run is told from what the server knows of it", () => {
  assert.equal(describeCall({ flow: "order", args: [7, "x"], kwargs: { by: null } }), 'order(7, "x", by=null)');

  const step = { key: "g1.2/charge", lane: "g1.2", type: "step", attempts: 2, result: null, wake_at: null };
  const times = { started_at: "2026-11-18T00:00:00Z", ended_at: "2026-11-18T00:00:02Z", retry_at: null };
  const failed = toStepRow({ ...step, ...times, state: "failed", error: { type: "builtins.OSError", message: "gone" } });
  assert.deepEqual([failed.depth, failed.value, failed.tone, failed.took], [1, "OSError: gone", "bad", "2.0 s"]);
  const retried = toStepRow({ ...step, ...times, state: "waiting", ended_at: null, retry_at: "2026-11-18T00:01:00Z", error: null });
  assert.deepEqual([retried.state, retried.nextAt, retried.took], ["to be retried", "2026-11-18T00:01:00Z", ""]);
  const run = { state: "failed", created_at: "2026-11-18T00:00:00Z", ended_at: "2026-11-18T00:00:04Z" };
  const open = { ...step, ...times, ended_at: null, state: "open", error: null };
  assert.deepEqual([toStepRow(open, run), toStepRow({ ...open, error: { type: "E", message: "x" } }, run)].map(({ state }) => state), ["not ended", "failed"]);
  assert.deepEqual(toStepRow({ ...open, ...times }, run).span, { left: 0, width: 50 });
  const begun = { ...open, state: "started" };
  const words = [[begun, run], [begun, { state: "running", is_driven: true }], [begun, { state: "running", is_driven: false }], [{ ...begun, type: "timer" }, { state: "running", is_driven: false }]];
  assert.deepEqual(words.map(([each, of]) => toStepRow(each, of).state), ["not ended", "under way", "interrupted", "sleeping"]);
  assert.equal(toStepRow({ ...open, type: "child", child_run_id: "r.1" }, run).childRunId, "r.1");
});

test("what a flow has told its watchers is a line", () => {
  const lines = [
    { kind: "log.written", text: "paid", value: { cents: 5 } },
    { kind: "log.written", text: "paid", value: null },
    { kind: "status.set", text: "packing", value: null },
    { kind: "partial.emitted", text: "", value: [1] },
  ].map(describeNote);
  assert.deepEqual(lines, ['paid {"cents":5}', "paid", "status: packing", "partial result [1]"]);
});

test("comments on lines are a part of the text, which may say more", () => {
	const first = withComment("Good so far.", "a b/c.py:7", "Name it.\n\nAnd test it.\n");
	assert.equal(first, "Good so far.\na b/c.py:7: Name it.\n  \n  And test it.\n");
	const both = withComment(first, "c.py:1 before", "Why?");
	assert.deepEqual([...readComments(both)], [["a b/c.py:7", "Name it.\n\nAnd test it."], ["c.py:1 before", "Why?"]]);
	assert.equal(withComment(both, "a b/c.py:7", "Fine."), "Good so far.\na b/c.py:7: Fine.\nc.py:1 before: Why?\n");
	assert.equal(withComment(withComment("", "a:1", "x"), "a:1", " "), "");
	assert.equal(withComment("Good.\n\nMore.", "a:1", ""), "Good.\n\nMore.\n");
	assert.deepEqual([...readComments("No comment: at 10:30 it was late.\nAt 10:30: late.")], [["At 10:30", "late."]]);
});

test("an argument that the tool does not heed hides none that it does", () => {
  assert.equal(brief("write_file", { command: "README.md", file_path: "/Makefile", content: "x" }), "/Makefile … (+1 argument)");
  assert.equal(brief("read_file", { file_path: "/a", offset: 5 }), "/a");
  assert.equal(brief("deploy", { path: "/docs", target: "production", force: true }), "path: /docs, target: production, force: true");
  assert.equal(brief("deploy", { path: "a, target: b", "x: y": 1 }), 'path: "a, target: b", "x: y": 1');
  assert.equal(brief("deploy", Object.fromEntries([1, 2, 3, 4].map((n) => [`n${n}`, "x".repeat(40)]))).endsWith(" … (+2 arguments)"), true);
  assert.equal(brief("ls", undefined), "");
});
