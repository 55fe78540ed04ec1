// What the pages show of a flow run: pure functions of what /api/flows answers.
import { duration, toMs } from "../format.js";

export const OVER = new Set(["completed", "failed", "cancelled"]);

// What it is doing now, in a few words; the same as `holdfast runs list` prints.
export function describeFlow({ state, is_driven: isDriven, waits_for: waitsFor, wake_at: wakeAt }) {
	if (OVER.has(state)) return "";
	if (state === "pending") return "is to be started";
	if (state === "paused" || (waitsFor && !isDriven)) return waitsFor ? `waits for ${waitsFor}` : "paused";
	if (isDriven) return "runs";
	return wakeAt ? "sleeps" : "interrupted";
}

export const toText = (value) => (typeof value === "string" ? value : JSON.stringify(value, null, 1) ?? "");

export function describeCall({ flow, args = [], kwargs = {} }) {
	const named = Object.entries(kwargs).map(([name, value]) => `${name}=${JSON.stringify(value)}`);
	return `${flow}(${[...args.map((value) => JSON.stringify(value)), ...named].join(", ")})`;
}

// As Python prints it.
export const describeFailure = ({ type, message }) => `${String(type).replace(/^builtins\./, "")}: ${message}`;

// The row of one step: what it is, how it stands, what came of it, and how long that took.
export function toStepRow(step) {
	const isFailed = step.error && ["failed", "waiting"].includes(step.state);
	return {
		key: step.key,
		depth: step.lane === "main" ? 0 : step.lane.split("/").length,
		type: step.type,
		state: step.state === "waiting" && step.retry_at ? "to be retried" : step.state,
		value: isFailed ? describeFailure(step.error) : step.result === null ? "" : toText(step.result),
		isFailed: Boolean(isFailed),
		attempts: step.attempts,
		nextAt: step.ended_at ? null : step.wake_at ?? step.retry_at,
		startedAt: step.started_at,
		took: step.started_at && step.ended_at ? duration((toMs(step.ended_at) - toMs(step.started_at)) / 1000) : "",
	};
}

// The answers there are to a question, each with what it does.
export const answersTo = (question) =>
	question.about === "outcome"
		? [["rerun", "Run it again"], ["reject", "Count it as failed"], ["abort", "Cancel the run"]]
		: [["approve", "Approve"], ["request_changes", "Request changes"], ["reject", "Reject"], ["abort", "Cancel the run"]];
