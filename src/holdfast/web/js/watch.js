// "Something happened to runs": from the stream over all runs where the server has one, else by asking now and then.
import { getWithEtag } from "./api.js";
import { follow, liveness, pause } from "./live.js";

const POLL_MS = 3000;
const watchers = new Set();
let controller = null;

/** `onChange(runIds)` after events of these runs; null where it is not known which. Until `signal` ends it. */
export function watchRuns({ signal, onChange }) {
  watchers.add(onChange);
  signal.addEventListener("abort", () => {
    watchers.delete(onChange);
    if (watchers.size === 0) {
      controller?.abort();
      controller = null;
    }
  });
  if (!controller) {
    controller = new AbortController();
    listen(controller.signal);
  }
}

function tell(runIds) {
  for (const watcher of watchers) watcher(runIds);
}

async function listen(signal) {
  await follow("/api/events", {
    signal,
    onMessages: (messages) => tell(new Set(messages.map((message) => message.data?.run_id).filter(Boolean))),
    onRefused: (error) => (error.status === 401 ? null : poll(signal)),
  });
}

async function poll(signal) {
  let known = "";
  while (!signal.aborted) {
    await pause(POLL_MS, signal);
    if (signal.aborted || document.hidden) continue;
    try {
      const { data } = await getWithEtag("/api/runs?limit=50", { signal });
      const now = JSON.stringify(data.items.map((run) => [run.run_id, run.state, run.updated_at, run.waiting_for]));
      liveness.set(null);
      if (known && now !== known) tell(null);
      known = now;
    } catch (error) {
      if (signal.aborted) return;
      if (error.isOffline) liveness.set(liveness.since ?? Date.now());
    }
  }
}
