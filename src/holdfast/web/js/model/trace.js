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

// The rows that are not inside a call that was folded.
export function unfoldRows(rows, folded) {
	if (!folded.size) return rows;
	let hidden = Infinity; // rows deeper than this are inside a folded one
	return rows.filter((row) => {
		const depth = row.type === "step" ? row.depth : -1;
		if (depth > hidden) return false;
		hidden = folded.has(row.key) ? depth : Infinity;
		return true;
	});
}

// Whether the row of a call fits; `textOf(row)` is all that was said in it, in lower case. Nothing is asked for: null.
export function rowFilter({ only, text, textOf }) {
	const query = text.trim().toLowerCase();
	if (!only && !query) return null;
	return (row) => row.type === "step" && (KINDS[only]?.(row) ?? true) && (!query || textOf(row).includes(query));
}

// The rows of calls that fit, under their phases and the calls they are inside of.
export function filterRows(rows, fits) {
	const found = [];
	let above = []; // the phase and the calls that a row is inside of, as far as they are not in the list yet
	for (const row of rows) {
		const depth = row.type === "phase" ? -1 : row.depth;
		above = above.filter((each) => each.depth < depth);
		above.push({ row, depth });
		if (!fits(row)) continue;
		found.push(...above.filter((each) => !each.isFound).map((each) => each.row));
		for (const each of above) each.isFound = true;
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
