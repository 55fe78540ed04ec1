// What somebody has looked at here: by run, or file of a difference, what the look was at. Kept in this browser alone.
const KEY = "hf-seen";
const MOST = 2000;

function read() {
	try {
		return new Map(JSON.parse(localStorage.getItem(KEY) ?? "[]"));
	} catch {
		return new Map();
	}
}

export const isSeen = ({ run_id: runId, until }) => Boolean(until) && read().get(runId) === until;

export function markSeen(runId, until) {
	const seen = read();
	seen.delete(runId);
	seen.set(runId, until);
	try {
		localStorage.setItem(KEY, JSON.stringify([...seen].slice(-MOST)));
	} catch {
		// Not kept; it is shown again.
	}
}
