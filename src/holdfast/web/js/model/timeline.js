// Pure: the rows of the timeline and what stands in each, from the plan, the rows of the run and its events.
import { duration } from "../format.js";
import { toStatus } from "./status.js";
import { timeSpent } from "./timescale.js";

const MAX_STEPS = 300;
const SPENT = [["worked", "working"], ["waited", "waiting"], ["queued", "queued"], ["was down", "down"]];
const TICK_STEPS = [0.5, 1, 2, 5, 10, 30, 60, 120, 300, 600, 1800, 3600, 7200, 21600, 86400, 604800];

// One row per phase, and under an opened phase one per step: `{ type, key, label, status, bars, ends, took, told }`.
export function timelineRows({ run, plan, fold, opened, now }) {
  return run.phases.flatMap((phase) => {
    const isOpen = opened.has(phase.key);
    return [phaseRow(phase, { run, plan, fold, now, isOpen }), ...(isOpen ? stepRows(phase.key, fold, now) : [])];
  });
}

function phaseRow({ key, state }, { run, plan, fold, now, isOpen }) {
  const attempts = fold.attemptsOf(key);
  const bars = attempts.flatMap((attempt) => attempt.segments.map(({ type, from, to }) => ({ type, from, to: to ?? now, isLive: to === null, state: attempt.state, n: attempt.n })));
  const queued = queuedBefore(key, attempts[0], plan, fold);
  if (queued) bars.unshift({ type: "queued", ...queued, n: 0 });
  const ends = attempts.filter((attempt) => ["failed", "changes", "aborted"].includes(attempt.state)).map((attempt) => ({ ts: attempt.to, type: attempt.state }));
  const status = statusOf(state, run);
  const spent = timeSpent(attempts, now);
  const parts = SPENT.filter(([, type]) => spent[type] > 0.05).map(([word, type]) => `${word} ${duration(spent[type])}`);
  const told = [`${key}: ${status.word.toLowerCase()}`, attempts.length > 1 && `${attempts.length} attempts`, ...parts].filter(Boolean).join(", ");
  const took = attempts.length ? duration(spent.working + spent.waiting + spent.down + spent.queued) : "";
  return { type: "phase", key, label: key, state, status, attempts: attempts.length, bars, ends, isOpen, hasSteps: fold.stepsOf(key).length > 0, took, told };
}

// A phase under way stands still when its run does.
function statusOf(state, run) {
  if (state === "pending") return { tone: "idle", shape: "idle", word: "Not started" };
  if (state !== "running" || run.state === "running") return toStatus(state);
  return run.state === "paused" ? toStatus("paused", run.pause_reason) : { tone: "idle", shape: "stopped", word: "Stopped" };
}

// From when all it needs was there until it began.
function queuedBefore(key, first, plan, fold) {
  const planned = plan?.phases.find((phase) => phase.key === key);
  if (!first || !planned) return null;
  const ends = planned.needs.map((need) => fold.attemptsOf(need).at(-1)?.to).filter(Number.isFinite);
  const from = ends.length ? Math.max(...ends) : fold.firstTs;
  return first.from - from > 0.15 ? { from, to: first.from } : null;
}

function stepRows(phase, fold, now) {
  const steps = fold.stepsOf(phase);
  const rows = steps.slice(0, MAX_STEPS).map((step) => {
    const { key, label, state, from, isUnknown } = step;
    const to = step.to ?? now;
    const took = duration(to - from);
    const bars = [{ type: step.type === "model" ? "model" : "tool", from, to, isLive: state === "open", state }];
    const ends = state === "failed" || isUnknown ? [{ ts: step.to ?? from, type: isUnknown ? "unknown" : "failed" }] : [];
    return { type: "step", key, label, step, took, bars, ends, told: `${label}: ${state}, ${took}` };
  });
  if (steps.length > MAX_STEPS) rows.push({ type: "rest", key: `${phase}/rest`, label: `${steps.length - MAX_STEPS} more: see Activity`, bars: [], ends: [], took: "", told: "" });
  return rows;
}

// Labels along the top, in seconds since the start, none inside a fold and none too near to another.
export function axisTicks(scale, { from, to, apart = 70 }) {
  const worked = to - from - scale.folds.reduce((sum, fold) => sum + fold.seconds, 0);
  const step = TICK_STEPS.find((each) => (worked / each) * apart <= scale.width) ?? TICK_STEPS.at(-1);
  const ticks = [];
  for (let s = 0, n = 0; s <= to - from && n < 20_000; s += step, n++) {
    const x = scale.toX(from + s);
    const isFolded = scale.folds.some((fold) => from + s > fold.from && from + s < fold.to);
    if (!isFolded && x - (ticks.at(-1)?.x ?? -apart) >= apart && x < scale.width - 20) ticks.push({ x, label: s < 60 ? `${Number(s.toFixed(1))} s` : duration(s) });
  }
  return ticks;
}
