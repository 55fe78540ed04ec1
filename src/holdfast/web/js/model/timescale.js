// Pure: time to pixels, with the hours in which nobody worked folded away, and the labels along it.
import { duration } from "../format.js";

const TICK_STEPS = [0.01, 0.05, 0.1, 0.5, 1, 2, 5, 10, 30, 60, 120, 300, 600, 1800, 3600, 7200, 21600, 86400, 604800];

// A piecewise scale; long gaps without work get the width of a few seconds: `{ toX(ts), toTime(x), folds: [{ from, to, x, width, seconds }], width }`.
export function foldedScale({ from, to, busy, width, isFolding = true }) {
	const worked = busy.reduce((sum, [a, b]) => sum + ((b ?? to) - a), 0);
	const longest = Math.max(5, worked * 0.25);
	const folded = Math.max(1, worked * 0.06);
	const pieces = [];
	let at = from;
	const put = (until, isGap) => {
		if (until <= at) return;
		const seconds = until - at;
		const isFolded = isFolding && isGap && seconds > longest;
		pieces.push({ from: at, to: until, seconds, weight: isFolded ? folded : seconds, isFolded });
		at = until;
	};
	for (const [a, b] of busy) {
		put(Math.min(a, to), true);
		put(Math.min(b ?? to, to), false);
	}
	put(to, true);
	const total = pieces.reduce((sum, piece) => sum + piece.weight, 0);
	let x = 0;
	for (const piece of pieces) {
		Object.assign(piece, { x, width: (piece.weight / total) * width });
		x += piece.width;
	}
	const toX = (ts) => {
		const piece = pieces.findLast((each) => each.from <= ts);
		return piece ? Math.min(width, piece.x + ((Math.min(ts, piece.to) - piece.from) / piece.seconds) * piece.width) : 0;
	};
	const toTime = (x) => {
		const piece = pieces.findLast((each) => each.x <= x) ?? pieces[0];
		return piece ? piece.from + (Math.min(x - piece.x, piece.width) / piece.width) * piece.seconds : from;
	};
	return { from, to, width, folds: pieces.filter((piece) => piece.isFolded), toX, toTime };
}

const FOLD_LABEL = 64;

// A label over each fold that has room for one: `[{ x, label }]`, in their middle and within the width.
export function foldLabels({ folds, width }) {
	const labels = [];
	for (const { x, width: wide, seconds } of folds) {
		const middle = Math.min(width - FOLD_LABEL / 2, Math.max(FOLD_LABEL / 2, x + wide / 2));
		if (middle - (labels.at(-1)?.x ?? -FOLD_LABEL) >= FOLD_LABEL) labels.push({ x: middle, label: `⋯ ${duration(seconds)}` });
	}
	return labels;
}

// Where signs of these places are drawn so that none lies on another: as near as can be, in their order.
export function spread(places, { width, apart = 13 }) {
	const drawn = [];
	for (const x of places) drawn.push(Math.max(x, (drawn.at(-1) ?? -apart) + apart));
	for (let index = drawn.length - 1, most = width - apart / 2; index >= 0; index--, most -= apart) drawn[index] = Math.max(apart / 2, Math.min(drawn[index], most));
	return drawn;
}

// The ticks between two places, `left` and `right`, of a scale that may be far wider than what is seen of it.
export function axisTicks({ from, to, width, folds, toX, toTime }, { left = 0, right = width, apart = 70 } = {}) {
	const taken = foldLabels({ folds, width });
	const worked = to - from - folds.reduce((sum, fold) => sum + fold.seconds, 0);
	const step = TICK_STEPS.find((each) => (worked / each) * apart <= width) ?? TICK_STEPS.at(-1);
	const ticks = [];
	const first = Math.max(0, Math.floor((toTime(left) - from) / step) - 1) * step;
	for (let s = first, n = 0; s <= to - from && n < 20_000; s += step, n++) {
		const x = toX(from + s);
		if (x > right) break;
		const isFolded = folds.some((fold) => from + s > fold.from && from + s < fold.to);
		const isTaken = taken.some((each) => x + apart * 0.7 > each.x - FOLD_LABEL / 2 && x < each.x + FOLD_LABEL / 2);
		if (isFolded || isTaken || x < left || x - (ticks.at(-1)?.x ?? -apart) < apart || x >= right - 50) continue;
		ticks.push({ x, label: s < 60 ? `${Number(s.toFixed(2))} s` : duration(s) });
	}
	return ticks;
}
