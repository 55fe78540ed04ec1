// Pure: days and amounts for the bars of the budget page.

// Every day up to `today` ("2026-11-16"), also those on which nothing was spent.
export function toDays(spent, today, count) {
  const known = new Map(spent.map(({ name, spent_usd: usd }) => [name, usd]));
  const last = Date.parse(`${today}T00:00:00Z`);
  return Array.from({ length: count }, (_, index) => {
    const day = new Date(last - (count - 1 - index) * 86_400_000).toISOString().slice(0, 10);
    return { day, usd: known.get(day) ?? 0 };
  });
}

// A round number at or above the largest amount, and the lines to draw below it.
export function toScale(largest) {
  if (!(largest > 0)) return { top: 1, lines: [0, 0.5, 1] };
  const power = 10 ** Math.floor(Math.log10(largest));
  const step = [0.2, 0.5, 1, 2, 5].map((each) => each * power).find((each) => largest / each <= 4) ?? 5 * power;
  const steps = Math.ceil(largest / step - 1e-9);
  return { top: steps * step, lines: Array.from({ length: steps + 1 }, (_, index) => Number((index * step).toPrecision(6))) };
}

// The dearest first, with each one's share of the whole.
export function toShares(spent) {
  const whole = total(spent) || 1;
  return [...spent].sort((a, b) => b.spent_usd - a.spent_usd || a.name.localeCompare(b.name)).map(({ name, spent_usd: usd }) => ({ name, usd, share: usd / whole }));
}

export const total = (spent) => spent.reduce((sum, each) => sum + (each.spent_usd ?? each.usd), 0);
