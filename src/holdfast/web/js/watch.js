// "Something happened to runs": from the stream over all runs where the server has one, else by asking now and then.
import { getJson } from "./api.js";
import { follow, liveness, pause } from "./live.js";

const POLL_MS = 3000;
const watchers = new Set();
let controller = null;

// `onChange(runIds)` after events of these runs; null where it is not known which. Until `signal` ends it.
export function watchRuns({ signal, onChange }) {
  watchers.add(onChange);
  signal.addEventListener("abort", () => {
    watchers.delete(onChange);
    if (watchers.size) return;
    controller?.abort();
    controller = null;
  });
  if (controller) return;
  controller = new AbortController();
  const own = controller.signal;
  follow("/api/events", {
    signal: own,
    onMessages: (messages) => tell(new Set(messages.map((message) => message.data?.run_id).filter(Boolean))),
    onRefused: (error) => error.status !== 401 && poll(own),
  });
}

function tell(runIds) {
  for (const watcher of watchers) watcher(runIds);
}

async function poll(signal) {
  let known = "";
  while (!signal.aborted) {
    await pause(POLL_MS, signal);
    if (signal.aborted || document.hidden) continue;
    try {
      const { items } = await getJson("/api/runs?limit=50", { signal });
      const now = JSON.stringify(items.map((run) => [run.run_id, run.state, run.updated_at, run.waiting_for]));
      liveness.set(true);
      if (known && now !== known) tell(null);
      known = now;
    } catch (error) {
      if (error.isOffline) liveness.set(false);
    }
  }
}
