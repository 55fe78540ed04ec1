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

export function toStatus(state, pauseReason = null) {
  const [tone, word] = STATES[state] ?? ["idle", String(state)];
  return { tone, shape: state === "cancelled" ? "stopped" : tone, word: (state === "paused" && PAUSES[pauseReason]) || word };
}

// The path of each shape in a box of 16.
const DISC = "M8 1a7 7 0 1 0 0 14A7 7 0 0 0 8 1z";
const RING = `${DISC}m0 1.8a5.2 5.2 0 1 1 0 10.4A5.2 5.2 0 0 1 8 2.8z`;
export const SHAPES = {
  good: `${DISC}m-1 10.4L3.7 8.1l1.2-1.2L7 9l4.1-4.1 1.2 1.2z`,
  bad: "M5.1 1h5.8L15 5.1v5.8L10.9 15H5.1L1 10.9V5.1zM5.9 4.7 4.7 5.9 6.8 8l-2.1 2.1 1.2 1.2L8 9.2l2.1 2.1 1.2-1.2L9.2 8l2.1-2.1-1.2-1.2L8 6.8z",
  busy: "M8 1a7 7 0 1 0 7 7h-2a5 5 0 1 1-5-5z",
  waiting: `${RING}M8 4v4h4a4 4 0 0 1-4 4 4 4 0 0 1 0-8z`,
  idle: RING,
  stopped: `${RING}M5 7.1h6v1.8H5z`,
};
