// Pure: which verbs a run takes now (null), and why not where it does not. The server has the last word.
export function actionsOf({ state, approvals }, whyNot) {
  const role = whyNot("operator");
  const ended = ["completed", "failed", "cancelled"].includes(state) ? `The run is ${state === "cancelled" ? "aborted" : state}.` : null;
  const isAsked = approvals?.some((approval) => approval.state === "pending");
  const whyNotResume = {
    failed: "It failed: retry it instead.",
    running: "It is running.",
    pending: "It is queued and starts by itself.",
    paused: isAsked ? "It waits for a decision, and goes on by itself after it." : null,
  };
  return {
    resume: role ?? whyNotResume[state] ?? ended,
    pause: role ?? ended ?? (state === "paused" ? "It is paused already." : null),
    retry: role ?? (state === "failed" ? null : "Only a failed run is retried."),
    abort: role ?? ended,
    fork: role,
    topUp: role ?? ended,
  };
}
