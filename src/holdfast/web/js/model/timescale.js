// Pure: time to pixels, with the hours in which nobody worked folded away.

/** Working intervals of all attempts, joined, in order. */
export function busyIntervals(attempts, now) {
  const all = attempts
    .flatMap((attempt) => attempt.segments)
    .filter((segment) => segment.type === "working")
    .map((segment) => [segment.from, segment.to ?? now])
    .sort((a, b) => a[0] - b[0]);
  const joined = [];
  for (const [from, to] of all) {
    const last = joined.at(-1);
    if (last && from <= last[1]) last[1] = Math.max(last[1], to);
    else joined.push([from, to]);
  }
  return joined;
}

/**
 * A piecewise scale over `from` … `to`. A gap without work longer than `longest` seconds gets the width of `folded` seconds.
 * Returns `{ toX(ts), folds: [{ from, to, x, width, seconds }], width }`.
 */
export function foldedScale({ from, to, busy, width, isFolding = true }) {
  const worked = busy.reduce((sum, [a, b]) => sum + (b - a), 0);
  const longest = Math.max(5, worked * 0.25);
  const folded = Math.max(1, worked * 0.06);
  const pieces = [];
  let at = from;
  const put = (until, isGap) => {
    if (until <= at) return;
    const seconds = until - at;
    const isFolded = isFolding && isGap && seconds > longest;
    pieces.push({ from: at, to: until, weight: isFolded ? folded : seconds, isFolded });
    at = until;
  };
  for (const [a, b] of busy) {
    put(Math.min(a, to), true);
    put(Math.min(b, to), false);
  }
  put(to, true);
  const total = pieces.reduce((sum, piece) => sum + piece.weight, 0) || 1;
  let x = 0;
  for (const piece of pieces) {
    piece.x = x;
    piece.width = (piece.weight / total) * width;
    x += piece.width;
  }
  return { width, folds: pieces.filter((piece) => piece.isFolded).map((piece) => ({ ...piece, seconds: piece.to - piece.from })), toX: (ts) => toX(pieces, ts, width) };
}

function toX(pieces, ts, width) {
  if (pieces.length === 0 || ts <= pieces[0].from) return 0;
  let [low, high] = [0, pieces.length - 1];
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (pieces[middle].from <= ts) low = middle;
    else high = middle - 1;
  }
  const piece = pieces[low];
  return Math.min(width, piece.x + (Math.min(ts, piece.to) - piece.from) / (piece.to - piece.from) * piece.width);
}

/** Seconds per kind of time in a list of attempts: `{ working, waiting, queued, down }`. */
export function timeSpent(attempts, now) {
  const spent = { working: 0, waiting: 0, queued: 0, down: 0 };
  for (const segment of attempts.flatMap((attempt) => attempt.segments)) spent[segment.type] += Math.max(0, (segment.to ?? now) - segment.from);
  return spent;
}
