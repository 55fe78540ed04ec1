// Pure: which verbs a run takes now, and why not where it does not. The server has the last word.

const OVER = new Set(["completed", "failed", "cancelled"]);

/** `{ resume: null | reason, … }`: null means it can be asked for. */
export function actionsOf(run, whyNot) {
  const role = whyNot("operator");
  const isOver = OVER.has(run.state);
  const ended = `The run is ${run.state === "cancelled" ? "aborted" : run.state}.`;
  return {
    resume: role ?? whyNotResume(run, isOver, ended),
    pause: role ?? (isOver ? ended : run.state === "paused" ? "It is paused already." : null),
    retry: role ?? (run.state === "failed" ? null : "Only a failed run is retried."),
    abort: role ?? (isOver ? ended : null),
    fork: role,
    topUp: role ?? (isOver ? ended : null),
  };
}

function whyNotResume(run, isOver, ended) {
  if (isOver) return run.state === "failed" ? "It failed: retry it instead." : ended;
  if (run.state === "running") return "It is running.";
  if (run.state === "pending") return "It is queued and starts by itself.";
  if (run.approvals?.some((approval) => approval.state === "pending")) return "It waits for a decision, and goes on by itself after it.";
  return null;
}
