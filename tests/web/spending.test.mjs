import assert from "node:assert/strict";
import { test } from "node:test";
import { toDays, toScale, toShares, total } from "../../src/holdfast/web/js/model/spending.js";

test("days without spending are there too, over the ends of months", () => {
  const days = toDays([{ name: "2026-02-28", spent_usd: 2 }], "2026-03-01", 3);
  assert.deepEqual(days, [{ day: "2026-02-27", usd: 0 }, { day: "2026-02-28", usd: 2 }, { day: "2026-03-01", usd: 0 }]);
});

test("scales are round and hold the largest amount", () => {
  for (const largest of [0.0003, 0.07, 0.9, 1, 3.4, 12, 99, 1234.5]) {
    const { top, lines } = toScale(largest);
    assert.ok(top >= largest && top <= largest * 2, `${largest} → ${top}`);
    assert.ok(lines.length >= 2 && lines.length <= 6, `${lines}`);
    assert.equal(lines[0], 0);
  }
  assert.deepEqual(toScale(0).top, 1);
});

test("shares add up, the dearest first", () => {
  const shares = toShares([{ name: "a", spent_usd: 1 }, { name: "b", spent_usd: 3 }, { name: "c", spent_usd: 0 }]);
  assert.deepEqual(shares.map(({ name, share }) => [name, share]), [["b", 0.75], ["a", 0.25], ["c", 0]]);
  assert.equal(toShares([{ name: "a", spent_usd: 0 }])[0].share, 0);
  assert.equal(total([{ spent_usd: 1 }, { usd: 2 }]), 3);
});
