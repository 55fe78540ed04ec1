import assert from "node:assert/strict";
import { test } from "node:test";
import { RunFold } from "../../src/holdfast/web/js/model/run-fold.js";
import { busyIntervals, foldedScale, timeSpent } from "../../src/holdfast/web/js/model/timescale.js";
import { timelineRows } from "../../src/holdfast/web/js/model/timeline.js";

let seq = 0;
const event = (ts, kind, lane, payload = {}) => ({ seq: ++seq, ts, kind, lane_id: lane, payload });

function fold(...events) {
  seq = 0;
  const made = new RunFold();
  for (const make of events) made.add(make());
  return made;
}

test("an attempt that waits for a person is told apart from work", () => {
  const made = fold(
    () => event(0, "run.created", "main"),
    () => event(1, "phase.started", "plan/1"),
    () => event(5, "human.approval.requested", "plan/1"),
    () => event(5.1, "run.paused", "main", { reason: "approval" }),
    () => event(100, "human.approval.received", "plan/1", { action: "approve" }),
    () => event(101, "run.resumed", "main", { after: "paused" }),
    () => event(102, "phase.completed", "plan/1"),
  );

  const [attempt] = made.attemptsOf("plan");

  assert.deepEqual(attempt.segments.map((each) => [each.type, each.from, each.to]), [["working", 1, 5], ["waiting", 5, 100], ["queued", 100, 101], ["working", 101, 102]]);
  assert.equal(attempt.state, "completed");
  assert.deepEqual(timeSpent([attempt], 200), { working: 5, waiting: 95, queued: 1, down: 0 });
});

test("a crash is marked where the last event was, and a first start is no return", () => {
  const made = fold(
    () => event(0, "run.resumed", "main", { after: "pending" }),
    () => event(1, "phase.started", "plan/1"),
    () => event(2, "model.request", "plan/1/turn1", { key: "plan/1/turn1/m0", model: "m" }),
    () => event(60, "run.resumed", "main", { after: "running" }),
    () => event(61, "model.response", "plan/1/turn1", { key: "plan/1/turn1/m0", result: {} }),
  );

  assert.deepEqual(made.marks.map((each) => [each.type, each.ts]), [["crash", 2], ["resumed", 60]]);
  assert.deepEqual(made.attemptsOf("plan")[0].segments.map((each) => each.type), ["working", "down", "working"]);
  assert.equal(made.lastOpenStep(), null);
});

test("a tool result without a start knows when it began by how long it took", () => {
  const made = fold(() => event(10, "tool.result", "plan/1/turn1", { key: "k", tool: "ls", args: {}, result: { took_s: 2 } }));

  assert.deepEqual([made.steps.get("k").from, made.steps.get("k").to, made.steps.get("k").state], [8, 10, "done"]);
});

test("money is counted by phase and model, and what was never answered stays reserved", () => {
  const made = fold(
    () => event(1, "model.request", "plan/1/turn1", { key: "a", model: "big" }),
    () => event(1, "budget.reserved", "plan/1", { entry: "1", step: "a", amount_micros: 500 }),
    () => event(2, "budget.settled", "plan/1", { entry: "1", step: "a", amount_micros: 40, input_tokens: 7, output_tokens: 3 }),
    () => event(3, "budget.reserved", "plan/1", { entry: "2", step: "b", amount_micros: 500 }),
  );

  assert.equal(made.money.micros, 40);
  assert.equal(made.reservedMicros, 500);
  assert.equal(made.money.byPhase.get("plan").micros, 40);
  assert.deepEqual(made.money.byModel.get("big"), { micros: 40, calls: 1, input: 7, output: 3 });
});

test("an event that was seen is not counted again, and garbage does no harm", () => {
  const made = new RunFold();
  const one = { seq: 5, ts: 1, kind: "phase.started", lane_id: "plan/1", payload: {} };

  assert.equal(made.add(one), true);
  assert.equal(made.add(one), false);
  for (const kind of ["phase.completed", "tool.result", "budget.settled", "run.resumed", "human.approval.received", "from.the.future"]) {
    made.add({ seq: made.lastSeq + 1, ts: 2, kind, lane_id: 7, payload: null });
  }
  assert.equal(made.attempts.size, 1);
});

test("hours without work are folded, and the order of times stays", () => {
  const attempts = [{ segments: [{ type: "working", from: 0, to: 10 }, { type: "waiting", from: 10, to: 10_000 }, { type: "working", from: 10_000, to: 10_010 }] }];
  const scale = foldedScale({ from: 0, to: 10_010, busy: busyIntervals(attempts, 10_010), width: 1000 });

  assert.equal(scale.folds.length, 1);
  assert.ok(scale.folds[0].width < 100);
  assert.ok(scale.toX(10) > 400);
  assert.equal(scale.toX(0), 0);
  assert.equal(scale.toX(99_999), 1000);
  const xs = [0, 5, 10, 5000, 10_000, 10_005, 10_010].map(scale.toX);
  assert.deepEqual(xs, [...xs].sort((a, b) => a - b));
});

test("ten thousand steps make at most three hundred rows", () => {
  const made = new RunFold();
  made.add({ seq: 1, ts: 0, kind: "phase.started", lane_id: "plan/1", payload: {} });
  for (let n = 2; n < 10_002; n++) made.add({ seq: n, ts: n, kind: "tool.result", lane_id: "plan/1/turn1", payload: { key: `k${n}`, tool: "ls" } });

  const rows = timelineRows({ run: { phases: [{ key: "plan", state: "running" }] }, plan: null, fold: made, opened: new Set(["plan"]), now: 10_002 });

  assert.equal(rows.length, 302);
  assert.equal(rows.at(-1).label, "9700 more: see Activity");
});
