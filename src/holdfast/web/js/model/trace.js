// Pure: which rows of a trace are wanted, where each lies, and how far a view of it is zoomed and moved.

export const ROW_HEIGHTS = { phase: 34, step: 24, rest: 24 };
const MAX_ZOOM = 4096;

const isError = ({ status, bars }) => status?.tone === "bad" || ["denied", "unknown"].includes(bars[0]?.look);
const KINDS = {
	errors: isError,
	tools: (row) => row.bars[0]?.type === "tool",
	models: (row) => row.bars[0]?.type === "model",
	retried: (row) => row.attempts > 1,
};

// The rows of calls that fit, under their phases; `textOf(row)` is all that was said in a call, in lower case.
export function filterRows(rows, { only, text, textOf }) {
	if (!only && !text) return rows;
	const query = text.trim().toLowerCase();
	const fits = (row) => row.type === "step" && (KINDS[only]?.(row) ?? true) && (!query || textOf(row).includes(query));
	const found = [];
	let phase = null;
	for (const row of rows) {
		if (row.type === "phase") phase = row;
		else if (fits(row)) {
			if (phase) found.push(phase);
			phase = null;
			found.push(row);
		}
	}
	return found;
}

// Where the rows begin; one more than there are rows, so that the last is the height of all.
export function rowTops(rows) {
	const tops = [0];
	for (const row of rows) tops.push(tops.at(-1) + ROW_HEIGHTS[row.type]);
	return tops;
}

// The rows `first` … `last` (exclusive) between two heights.
export function rowsBetween(tops, from, to) {
	const find = (y) => {
		let [low, high] = [0, tops.length - 1];
		while (low < high) {
			const middle = (low + high + 1) >> 1;
			if (tops[middle] <= y) low = middle;
			else high = middle - 1;
		}
		return low;
	};
	return { first: find(Math.max(0, from)), last: Math.min(tops.length - 1, find(to) + 1) };
}

// Zoomed by a factor with the place under the pointer staying where it is: `{ zoom, left }`.
export function zoomAt({ zoom, left }, { factor, x, width }) {
	const next = Math.min(MAX_ZOOM, Math.max(1, zoom * factor));
	return moveTo({ zoom: next, left: ((left + x) * next) / zoom - x }, width);
}

export const moveTo = ({ zoom, left }, width) => ({ zoom, left: Math.min(Math.max(0, left), width * (zoom - 1)) });
