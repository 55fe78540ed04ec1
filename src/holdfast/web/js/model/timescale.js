// Pure: time to pixels, with the hours in which nobody worked folded away.

// Working intervals of all attempts, joined, in order.
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

// A piecewise scale; long gaps without work get the width of a few seconds: `{ toX(ts), folds: [{ from, to, x, width, seconds }], width }`.
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
    pieces.push({ from: at, to: until, seconds, weight: isFolded ? folded : seconds, isFolded });
    at = until;
  };
  for (const [a, b] of busy) {
    put(Math.min(a, to), true);
    put(Math.min(b, to), false);
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
  return { width, folds: pieces.filter((piece) => piece.isFolded), toX };
}

// Seconds per kind of time.
export function timeSpent(attempts, now) {
  const spent = { working: 0, waiting: 0, queued: 0, down: 0 };
  for (const { type, from, to } of attempts.flatMap((attempt) => attempt.segments)) spent[type] += Math.max(0, (to ?? now) - from);
  return spent;
}
