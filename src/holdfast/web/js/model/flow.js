// What the pages show of a flow run: pure functions of what /api/flows answers.
import { duration, toMs } from "../format.js";

export const OVER = new Set(["completed", "failed", "cancelled"]);

export const toText = (value) => (typeof value === "string" ? value : JSON.stringify(value, null, 1) ?? "");

export function describeCall({ flow, args = [], kwargs = {} }) {
	const named = Object.entries(kwargs).map(([name, value]) => `${name}=${JSON.stringify(value)}`);
	return `${flow}(${[...args.map((value) => JSON.stringify(value)), ...named].join(", ")})`;
}

// As Python prints it.
const describeFailure = ({ type, message }) => `${String(type).replace(/^builtins\./, "")}: ${message}`;

const STEP_STATES = { completed: ["good", "completed"], failed: ["bad", "failed"], waiting: ["waiting", "waiting"], open: ["busy", "under way"] };

// How a step stands: what is open in a run that is over has failed with it, or was never ended; what has begun in one that
// nobody drives is not under way.
function toStepStatus({ state, type, error, retry_at: retryAt }, { state: runState, is_driven: isDriven = true }) {
	const isOpen = state === "open" || state === "started";
	if (isOpen && OVER.has(runState)) return error ? STEP_STATES.failed : ["idle", "not ended"];
	if (isOpen && type === "timer") return ["waiting", "sleeping"];
	if (state === "started") return isDriven ? STEP_STATES.open : ["idle", "interrupted"];
	if (state === "waiting" && retryAt) return ["waiting", "to be retried"];
	return STEP_STATES[state] ?? ["idle", state];
}

// Where in the time of its run a step lies, in percent.
function toSpan({ started_at: start, ended_at: end }, { created_at: from, ended_at: to }, nowMs) {
	const [first, last] = [toMs(from), toMs(to) ?? nowMs];
	const at = (ms) => Math.min(100, Math.max(0, (100 * (ms - first)) / Math.max(1, last - first)));
	const left = start ? at(toMs(start)) : 0;
	return { left, width: start ? Math.max(1, at(toMs(end) ?? last) - left) : 0 };
}

// The row of one step: what it is, how it stands, what came of it, and how long that took.
export function toStepRow(step, run = {}, nowMs = Date.now()) {
	const [tone, state] = toStepStatus(step, run);
	const isFailed = step.error && (tone === "bad" || step.state === "waiting");
	return {
		key: step.key,
		childRunId: step.child_run_id,
		depth: step.lane === "main" ? 0 : step.lane.split("/").length,
		type: step.type,
		tone,
		state,
		span: toSpan(step, run, nowMs),
		value: isFailed ? describeFailure(step.error) : step.result === null ? "" : toText(step.result),
		attempts: step.attempts,
		nextAt: step.ended_at ? null : step.wake_at ?? step.retry_at,
		startedAt: step.started_at,
		took: step.started_at && step.ended_at ? duration((toMs(step.ended_at) - toMs(step.started_at)) / 1000) : "",
	};
}

// One line of what a flow has told its watchers.
export function describeNote({ kind, text, value }) {
	const data = value === null || value === undefined ? "" : JSON.stringify(value);
	if (kind === "partial.emitted") return `partial result ${data}`;
	return kind === "status.set" ? `status: ${text}` : `${text} ${data}`.trim();
}
