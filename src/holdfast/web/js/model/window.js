// Pure: which rows of a long list need to exist.

// The rows `first` … `last` (exclusive) of equal height that lie in view, with `spare` more on both sides.
export function windowOf({ count, rowHeight, top, height, spare = 12 }) {
  if (count === 0 || rowHeight <= 0) return { first: 0, last: 0, before: 0, after: 0 };
  const first = clamp(Math.floor(top / rowHeight) - spare, 0, count);
  const last = clamp(Math.ceil((top + height) / rowHeight) + spare, first, count);
  return { first, last, before: first * rowHeight, after: (count - last) * rowHeight };
}

const clamp = (n, low, high) => Math.min(Math.max(n, low), high);
