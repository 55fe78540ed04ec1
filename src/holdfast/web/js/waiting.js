// What waits for a person: one list for the header and the inbox, asked for anew when something happens.
import { getJson } from "./api.js";
import { runTitle } from "./format.js";
import { watchRuns } from "./watch.js";

const QUESTIONS = { budget: "Out of budget: give it more?", stalled: "The agent made no progress: go on?" };

export const waiting = { items: [], listeners: new Set() };

let controller = null;
let timer = 0;

export function startWaiting(onChange) {
  waiting.listeners.add(onChange);
  controller?.abort();
  controller = new AbortController();
  watchRuns({ signal: controller.signal, onChange: () => (timer ||= setTimeout(refresh, 250)) });
  refresh();
}

async function refresh() {
  timer = 0;
  try {
    const [approvals, paused] = await Promise.all([getJson("/api/approvals"), getJson("/api/runs?state=paused&limit=200")]);
    const wanted = await readWanted(paused.items.filter((run) => !run.title));
    const titles = new Map(paused.items.map((run) => [run.run_id, runTitle({ ...run, requirements_md: wanted.get(run.run_id) })]));
    const stopped = paused.items
      .filter((run) => QUESTIONS[run.pause_reason])
      .map((run) => ({ kind: "run", run_id: run.run_id, requested_at: run.updated_at, question: QUESTIONS[run.pause_reason] }));
    waiting.items = [...approvals.items, ...stopped].map((item) => ({ ...item, run_title: titles.get(item.run_id) ?? null })).sort((a, b) => (a.requested_at < b.requested_at ? -1 : 1));
    for (const listener of waiting.listeners) listener(waiting.items);
  } catch {
    // Whoever shows a list says that it is old; the number stays until the next change.
  }
}

async function readWanted(runs) {
  if (runs.length === 0) return new Map();
  const { items } = await getJson(`/api/standings?${new URLSearchParams(runs.map((run) => ["run_id", run.run_id]))}`);
  return new Map(items.map((item) => [item.run_id, item.summary]));
}
