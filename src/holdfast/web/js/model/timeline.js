// Pure: the rows of the timeline and what stands in each, from the plan, the rows of the run and its events.
import { duration } from "../format.js";
import { toStatus } from "./status.js";
import { timeSpent } from "./timescale.js";

const MAX_STEPS = 300;

/** One row per phase, and under an opened phase one per step. `{ type, key, label, status, bars, marks, told }` */
export function timelineRows({ run, plan, fold, opened, now }) {
  const rows = [];
  for (const phase of run.phases) {
    const attempts = fold.attemptsOf(phase.key);
    rows.push(phaseRow(phase, attempts, { run, plan, fold, now, isOpen: opened.has(phase.key) }));
    if (opened.has(phase.key)) rows.push(...stepRows(phase.key, fold, now));
  }
  return rows;
}

function phaseRow(phase, attempts, { run, plan, fold, now, isOpen }) {
  const spent = timeSpent(attempts, now);
  const bars = attempts.flatMap((attempt) => attempt.segments.map((segment) => ({ type: segment.type, from: segment.from, to: segment.to ?? now, isLive: segment.to === null, state: attempt.state, n: attempt.n })));
  const queued = queuedBefore(phase.key, attempts[0], { run, plan, fold });
  if (queued) bars.unshift({ type: "queued", ...queued, n: 0 });
  const ends = attempts.filter((attempt) => attempt.state === "failed" || attempt.state === "changes" || attempt.state === "aborted").map((attempt) => ({ ts: attempt.to, type: attempt.state }));
  const status = statusOf(phase, run);
  return { type: "phase", key: phase.key, label: phase.key, state: phase.state, status, attempts: attempts.length, bars, ends, isOpen, hasSteps: fold.stepsOf(phase.key).length > 0, took: took(spent, attempts), told: tell(phase, status, spent, attempts.length) };
}

/** A phase under way stands still when its run does. */
function statusOf(phase, run) {
  if (phase.state === "pending") return { tone: "idle", shape: "idle", word: "Not started" };
  if (phase.state !== "running" || run.state === "running") return toStatus(phase.state);
  return run.state === "paused" ? toStatus("paused", run.pause_reason) : { tone: "idle", shape: "stopped", word: "Stopped" };
}

function took(spent, attempts) {
  if (attempts.length === 0) return "";
  return duration(spent.working + spent.waiting + spent.down + spent.queued);
}

function tell(phase, status, spent, attempts) {
  const parts = [["worked", spent.working], ["waited", spent.waiting], ["queued", spent.queued], ["was down", spent.down]].filter(([, seconds]) => seconds > 0.05).map(([word, seconds]) => `${word} ${duration(seconds)}`);
  return [`${phase.key}: ${status.word.toLowerCase()}`, attempts > 1 && `${attempts} attempts`, ...parts].filter(Boolean).join(", ");
}

/** From when all it needs was there until it began. */
function queuedBefore(key, first, { plan, fold }) {
  const planned = plan?.phases.find((phase) => phase.key === key);
  if (!first || !planned) return null;
  const ends = planned.needs.map((need) => fold.attemptsOf(need).at(-1)?.to).filter(Number.isFinite);
  const from = ends.length ? Math.max(...ends) : fold.firstTs;
  return first.from - from > 0.15 ? { from, to: first.from } : null;
}

function stepRows(phase, fold, now) {
  const steps = fold.stepsOf(phase);
  const rows = steps.slice(0, MAX_STEPS).map((step) => ({
    type: "step",
    key: step.key,
    label: step.label,
    step,
    took: duration((step.to ?? now) - step.from),
    bars: [{ type: step.type === "model" ? "model" : "tool", from: step.from, to: step.to ?? now, isLive: step.state === "open", state: step.state }],
    ends: step.state === "failed" || step.isUnknown ? [{ ts: step.to ?? step.from, type: step.isUnknown ? "unknown" : "failed" }] : [],
    told: `${step.label}: ${step.state}, ${duration((step.to ?? now) - step.from)}`,
  }));
  if (steps.length > MAX_STEPS) rows.push({ type: "rest", key: `${phase}/rest`, label: `${steps.length - MAX_STEPS} more: see Activity`, bars: [], ends: [], took: "", told: "" });
  return rows;
}

/** Labels along the top, in seconds since the start, none inside a fold and none too near to another. */
export function axisTicks(scale, { from, to, apart = 70 }) {
  const steps = [0.5, 1, 2, 5, 10, 30, 60, 120, 300, 600, 1800, 3600, 7200, 21600, 86400, 604800];
  const worked = to - from - scale.folds.reduce((sum, fold) => sum + fold.seconds, 0);
  const step = steps.find((each) => (worked / each) * apart <= scale.width) ?? steps.at(-1);
  const ticks = [];
  for (let s = 0, n = 0; s <= to - from && n < 20_000; s += step, n++) {
    const x = scale.toX(from + s);
    const isFolded = scale.folds.some((fold) => from + s > fold.from && from + s < fold.to);
    if (!isFolded && (ticks.length === 0 || x - ticks.at(-1).x >= apart) && x < scale.width - 20) ticks.push({ x, label: s < 60 ? `${Number(s.toFixed(1))} s` : duration(s) });
  }
  return ticks;
}
