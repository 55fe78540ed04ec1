// Pure: recent runs as dots, start against duration. Durations differ by thousands, so their scale is logarithmic.
import { clock, day, duration } from "../format.js";
import { tookSeconds } from "./now.js";

const STEPS_S = [1, 10, 60, 600, 3600, 21600, 86400, 604800];
const SPANS_S = [10, 30, 60, 300, 900, 1800, 3600, 10800, 21600, 43200, 86400, 172800, 604800, 2592000];

// `{ points: [{ run, x, y, seconds }], xTicks, yTicks }` in a box of `width` × `height`.
export function plotRuns(runs, { width, height, nowMs }) {
  const timed = runs.map((run) => ({ run, at: Date.parse(run.started_at ?? run.created_at), seconds: tookSeconds(run, nowMs) })).filter((each) => !Number.isNaN(each.at));
  if (timed.length === 0) return { points: [], xTicks: [], yTicks: [] };
  const starts = timed.map((each) => each.at);
  const to = Math.max(nowMs, ...starts);
  const from = Math.min(...starts, to - 20_000);
  const longest = Math.max(10, ...timed.map((each) => each.seconds)) * 1.3;
  const toX = (ms) => ((ms - from) / (to - from)) * width;
  const toY = (seconds) => height * (1 - Math.log(Math.max(1, seconds * 2)) / Math.log(longest * 2));
  const label = (ms) => (to - from > 172_800_000 ? day(ms / 1000, nowMs) : clock(ms / 1000, to - from < 300_000));
  return {
    points: timed.map(({ run, at, seconds }) => ({ run, x: toX(at), y: toY(seconds), seconds })),
    xTicks: timeTicks(from, to).filter((ms) => toX(ms) < width - 30).map((ms) => ({ x: toX(ms), label: label(ms) })),
    yTicks: STEPS_S.filter((s) => s < longest).map((s) => ({ y: toY(s), label: duration(s).replace(".0", "") })),
  };
}

function timeTicks(from, to) {
  const last = SPANS_S.at(-1);
  const span = 1000 * (SPANS_S.find((s) => (to - from) / s <= 5000) ?? last * Math.ceil((to - from) / last / 5000));
  const shift = new Date(to).getTimezoneOffset() * 60_000;
  const ticks = [];
  for (let ms = Math.ceil((from - shift) / span) * span + shift; ms <= to; ms += span) ticks.push(ms);
  return ticks;
}
