// Pure: the five tones. A state has a tone, and a tone has a shape and a word, so that colour is never alone.

const STATES = {
  pending: ["idle", "Queued"],
  running: ["busy", "Running"],
  paused: ["waiting", "Waiting"],
  awaiting_approval: ["waiting", "Waiting for approval"],
  completed: ["good", "Completed"],
  failed: ["bad", "Failed"],
  cancelled: ["idle", "Aborted"],
  skipped: ["idle", "Skipped"],
};
const PAUSES = { approval: "Waiting for you", budget: "Out of budget", person: "Paused", outcome: "Outcome unknown", stalled: "Stalled" };

/** `{ tone, shape, word }` of a run's or phase's state; a phase that is pending has not begun. */
export function toStatus(state, pauseReason = null) {
  const [tone, word] = STATES[state] ?? ["idle", String(state)];
  const shape = state === "cancelled" ? "stopped" : tone;
  return { tone, shape, word: state === "paused" ? PAUSES[pauseReason] ?? word : word };
}

/** The path of each shape in a box of 16. */
export const SHAPES = {
  good: "M8 1a7 7 0 1 0 0 14A7 7 0 0 0 8 1zm-1 10.4L3.700 8.100l1.200-1.200L7 9l4.100-4.100 1.200 1.200z",
  bad: "M5.100 1h5.800L15 5.100v5.800L10.900 15H5.100L1 10.900V5.100zM5.900 4.700 4.700 5.900 6.800 8l-2.100 2.100 1.200 1.200L8 9.200l2.100 2.100 1.200-1.200L9.200 8l2.100-2.100-1.200-1.200L8 6.800z",
  busy: "M8 1a7 7 0 1 0 7 7h-2a5 5 0 1 1-5-5z",
  waiting: "M8 1a7 7 0 1 0 0 14A7 7 0 0 0 8 1zm0 1.800a5.200 5.200 0 1 1 0 10.400A5.200 5.200 0 0 1 8 2.800zM8 4v4h4a4 4 0 0 1-4 4 4 4 0 0 1 0-8z",
  idle: "M8 1a7 7 0 1 0 0 14A7 7 0 0 0 8 1zm0 1.800a5.200 5.200 0 1 1 0 10.400A5.200 5.200 0 0 1 8 2.800z",
  stopped: "M8 1a7 7 0 1 0 0 14A7 7 0 0 0 8 1zm0 1.800a5.200 5.200 0 1 1 0 10.400A5.200 5.200 0 0 1 8 2.800zM5 7.100h6v1.800H5z",
};
