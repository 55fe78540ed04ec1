// Pure: recent runs as dots, start against duration. Durations differ by thousands, so their scale is logarithmic.
import { clock, day, duration } from "../format.js";
import { tookSeconds } from "./now.js";

const STEPS_S = [1, 10, 60, 600, 3600, 21600, 86400, 604800];

/** `{ points: [{ run, x, y, seconds }], xTicks, yTicks }` in a box of `width` × `height`. */
export function plotRuns(runs, { width, height, nowMs }) {
  const timed = runs.map((run) => ({ run, at: Date.parse(run.started_at ?? run.created_at), seconds: tookSeconds(run, nowMs) })).filter((each) => !Number.isNaN(each.at));
  if (timed.length === 0) return { points: [], xTicks: [], yTicks: [] };
  const to = Math.max(nowMs, ...timed.map((each) => each.at));
  const from = Math.min(...timed.map((each) => each.at), to - 20_000);
  const longest = Math.max(10, ...timed.map((each) => each.seconds)) * 1.3;
  const toX = (ms) => ((ms - from) / (to - from)) * width;
  const toY = (seconds) => height - (Math.log(Math.max(0.5, seconds) / 0.5) / Math.log(longest / 0.5)) * height;
  return {
    points: timed.map(({ run, at, seconds }) => ({ run, x: toX(at), y: toY(seconds), seconds })),
    xTicks: timeTicks(from, to).filter((ms) => toX(ms) < width - 30).map((ms) => ({ x: toX(ms), label: to - from > 172_800_000 ? day(ms, nowMs) : clock(ms / 1000, to - from < 300_000) })),
    yTicks: STEPS_S.filter((s) => s < longest).map((s) => ({ y: toY(s), label: duration(s).replace(".0", "") })),
  };
}

const SPANS_MS = [10, 30, 60, 300, 900, 1800, 3600, 10800, 21600, 43200, 86400, 172800, 604800, 2592000].map((s) => s * 1000);

export function timeTicks(from, to, about = 5) {
  const span = SPANS_MS.find((ms) => (to - from) / ms <= about) ?? SPANS_MS.at(-1) * Math.ceil((to - from) / SPANS_MS.at(-1) / about);
  const shift = new Date(to).getTimezoneOffset() * 60_000;
  const ticks = [];
  for (let ms = Math.ceil((from - shift) / span) * span + shift; ms <= to; ms += span) ticks.push(ms);
  return ticks;
}
