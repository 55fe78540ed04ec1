// What is spent: today against the limit, day by day, and on what.
import { getJson } from "../api.js";
import { day as shortDay, money } from "../format.js";
import { fill, h } from "../h.js";
import { toDays, total, toScale, toShares } from "../model/spending.js";
import { empty, kept, pageHead, table } from "../parts/ui.js";

const RANGES = [7, 30, 90];

export default {
  title: "Budget",
  render(main, { query, signal }) {
    let range;
    const chips = h("div.chips", { role: "group", "aria-label": "How many days" });
    const { element, refresh } = kept({ signal, load: () => getJson(`/api/budget?days=${range}`, { signal }), draw: (report) => draw(report, range) });
    const update = ({ query: asked }) => {
      range = RANGES.find((days) => String(days) === asked.get("days")) ?? 30;
      fill(chips, RANGES.map((days) => h("a.chip", { href: `/budget?days=${days}`, "aria-current": days === range && "true" }, `${days} days`)));
      refresh();
      return true;
    };
    main.append(pageHead("Budget", chips), element);
    update({ query });
    return { update };
  },
};

function draw(report, range) {
  const days = toDays(report.days, report.day, range);
  const spent = total(days);
  const part = (...figures) => h("section.card.padded.stack", head(`The last ${range} days`, money(spent)), figures);
  if (!spent) return [today(report), part(empty("Nothing was spent", `No model call was paid in the last ${range} days.`))];
  const rows = days.filter((each) => each.usd > 0).reverse().map(({ day, usd }) => [day, money(usd)]);
  return [
    today(report),
    part(chart(days, report.day_limit_usd), h("details", h("summary.small", "As a table"), table(["Day", ">Spent"], rows))),
    h("div.thirds", shares("By workflow", report.by_workflow, "/workflows/"), shares("By persona", report.by_persona, "/personas/"), shares("By model", report.by_model)),
  ];
}

const head = (title, ...amount) => h("div.page-head.flat", h("h2", title), h("p.big.num", amount));

function today({ spent_today_usd: spent, day_limit_usd: limit, run_limit_usd: runLimit }) {
  const share = limit ? spent / limit : 0;
  const tone = share >= 1 ? "bad" : share >= 0.8 ? "waiting" : "good";
  const left = share >= 1 ? "The day's limit is used up: runs wait until tomorrow (UTC), or until day_budget_usd is raised." : limit === null ? "There is no limit per day; set day_budget_usd to have one." : `${money(limit - spent)} is left until midnight UTC.`;
  return h(
    `section.card.padded.stack.tight.tone-${tone}`,
    head("Today", money(spent), limit !== null && h("span.soft", ` of ${money(limit)}`)),
    limit !== null && h("div.meter", { role: "meter", "aria-label": "Spent today", "aria-valuemin": 0, "aria-valuemax": limit, "aria-valuenow": Math.min(spent, limit), "aria-valuetext": `${money(spent)} of ${money(limit)}` }, h("i", { style: { width: `${Math.min(100, share * 100)}%` } })),
    h("p.soft", left, " ", runLimit === null ? "A run has no limit unless it is started with one." : `A run may spend ${money(runLimit)} unless it is started with another limit.`),
  );
}

// Drawn for the width there is, so that its letters stay as large as the others.
function chart(days, limit) {
  const place = h("div.bars");
  new ResizeObserver(([{ contentRect }]) => fill(place, bars(days, limit, Math.max(240, Math.round(contentRect.width))))).observe(place);
  return place;
}

function bars(days, limit, width) {
  const [left, right, top, deep] = [54, 18, 20, 170];
  const largest = Math.max(...days.map((each) => each.usd));
  const hasLimit = limit !== null && limit <= largest * 2.5;
  const scale = toScale(Math.max(largest, hasLimit ? limit : 0));
  const y = (usd) => top + deep * (1 - usd / scale.top);
  const step = (width - left - right) / days.length;
  const every = Math.ceil(64 / step);
  const line = (usd, name) => h(`svg:line.${name}`, { x1: left, x2: width - right, y1: y(usd), y2: y(usd) });
  const text = (x, at, name, words) => h(`svg:text.axis.${name}`, { x, y: at }, words);
  const bar = ({ day, usd }, index) => {
    const x = left + index * step;
    const date = shortDay(`${day}T12:00:00Z`, Date.now());
    const isOver = limit !== null && usd >= limit;
    const high = Math.max(2, top + deep - y(usd));
    return h(
      `svg:g.tone-${isOver ? "bad" : "busy"}`,
      h("svg:rect.bar-hit", { x, y: top, width: step, height: deep }, h("svg:title", `${date}: ${money(usd)}${isOver ? ", the limit was reached" : ""}`)),
      usd > 0 && h("svg:rect.bar-fill", { x: x + step * 0.14, y: top + deep - high, width: step * 0.72, height: high, rx: Math.min(3, step * 0.2) }),
      (days.length - 1 - index) % every === 0 && text(x + step / 2, top + deep + 18, "middle", date),
    );
  };
  return h(
    "svg:svg", { viewBox: `0 0 ${width} ${top + deep + 26}`, role: "img", "aria-label": `Spent per day, at most ${money(largest)}; the table below has the figures` },
    scale.lines.map((usd) => [line(usd, "grid"), text(left - 8, y(usd) + 4, "end", money(usd))]),
    days.map(bar),
    hasLimit && h("svg:g.tone-bad", line(limit, "limit"), text(width - right, y(limit) - 6, "end.limit-text", `limit ${money(limit)}`)),
  );
}

function shares(title, spent, path) {
  const all = toShares(spent);
  const toName = (name) => (path && name ? h("a.foreign", { href: path + encodeURIComponent(name) }, name) : h("span.foreign", name || "not told"));
  const row = ({ name, usd, share }) => h("li", toName(name), h("span.num", money(usd), h("span.soft", ` ${Math.round(share * 100)} %`)), h("i.share", { style: { width: `${share * 100}%` } }));
  return h("section.card.padded.stack.tight", h("h2", title), h("ul.shares", all.slice(0, 12).map(row)), all.length > 12 && h("p.small.soft", `and ${all.length - 12} more`));
}
