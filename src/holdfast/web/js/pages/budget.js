// What is spent: today against the limit, day by day, and on what.
import { getJson } from "../api.js";
import { day as shortDay, money } from "../format.js";
import { fill, h } from "../h.js";
import { toDays, total, toScale, toShares } from "../model/spending.js";
import { definePage } from "../page.js";
import { kept } from "../parts/kept.js";
import { table } from "../parts/layout.js";
import { empty } from "../parts/states.js";

const RANGES = [7, 30, 90];

export default definePage({
  title: "Budget",
  async render(main, { query, signal }) {
    const toRange = (from) => RANGES.find((days) => String(days) === from.get("days")) ?? 30;
    let range = toRange(query);
    const chips = h("div", { class: "chips", role: "group", "aria-label": "How many days" });
    const drawChips = () => fill(chips, RANGES.map((days) => h("a", { class: "chip", href: `/budget?days=${days}`, "aria-current": days === range ? "true" : null }, `${days} days`)));
    const { element, refresh } = kept({ signal, load: async () => ({ days: range, ...(await getJson(`/api/budget?days=${range}`, { signal })) }), draw: (report) => draw(report, range) });
    main.append(h("div", { class: "page-head" }, h("h1", { tabindex: "-1" }, "Budget"), chips), element);
    drawChips();
    refresh();
    return {
      update({ query: next }) {
        range = toRange(next);
        drawChips();
        refresh();
        return true;
      },
    };
  },
});

function draw(report, range) {
  const days = toDays(report.days, report.day, range);
  const spent = total(days);
  const nothing = empty("Nothing was spent", `No model call was paid in the last ${range} days.`);
  const figures = spent > 0 ? [chart(days, report.day_limit_usd), h("details", {}, h("summary", { class: "small" }, "As a table"), table(["Day", ">Spent"], days.filter((each) => each.usd > 0).reverse().map(({ day, usd }) => [day, money(usd)])))] : nothing;
  return [
    today(report),
    h("section", { class: "card padded stack" }, head(`The last ${range} days`, money(spent)), figures),
    spent > 0 && h("div", { class: "thirds" }, shares("By workflow", report.by_workflow, "/workflows/"), shares("By persona", report.by_persona, "/personas/"), shares("By model", report.by_model)),
  ];
}

const head = (title, ...amount) => h("div", { class: "page-head flat" }, h("h2", {}, title), h("p", { class: "big num" }, amount));

function today({ spent_today_usd: spent, day_limit_usd: limit, run_limit_usd: runLimit }) {
  const share = limit ? spent / limit : 0;
  const tone = share >= 1 ? "bad" : share >= 0.8 ? "waiting" : "good";
  const left = limit === null ? "There is no limit per day; set day_budget_usd to have one." : share >= 1 ? "The day's limit is used up: runs wait until tomorrow (UTC), or until day_budget_usd is raised." : `${money(limit - spent)} is left until midnight UTC.`;
  return h(
    "section",
    { class: `card padded stack tight tone-${tone}` },
    head("Today", money(spent), limit !== null && h("span", { class: "soft" }, ` of ${money(limit)}`)),
    limit !== null && h("div", { class: "meter", role: "meter", "aria-label": "Spent today", "aria-valuemin": 0, "aria-valuemax": limit, "aria-valuenow": Math.min(spent, limit), "aria-valuetext": `${money(spent)} of ${money(limit)}` }, h("i", { style: { width: `${Math.min(100, share * 100)}%` } })),
    h("p", { class: "soft" }, left, " ", runLimit === null ? "A run has no limit unless it is started with one." : `A run may spend ${money(runLimit)} unless it is started with another limit.`),
  );
}

/** Drawn for the width there is, so that its letters stay as large as the others. */
function chart(days, limit) {
  const place = h("div", { class: "bars" });
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
  const line = (usd, name) => h("svg:line", { x1: left, x2: width - right, y1: y(usd), y2: y(usd), class: name });
  const text = (x, at, name, words) => h("svg:text", { x, y: at, class: `axis ${name}` }, words);
  const bar = ({ day, usd }, index) => {
    const x = left + index * step;
    const date = shortDay(`${day}T12:00:00Z`, Date.now());
    const isOver = limit !== null && usd >= limit;
    const high = Math.max(2, top + deep - y(usd));
    return h(
      "svg:g",
      { class: isOver ? "tone-bad" : "tone-busy" },
      h("svg:rect", { x, y: top, width: step, height: deep, class: "bar-hit" }, h("svg:title", {}, `${date}: ${money(usd)}${isOver ? ", the limit was reached" : ""}`)),
      usd > 0 && h("svg:rect", { x: x + step * 0.14, y: top + deep - high, width: step * 0.72, height: high, rx: Math.min(3, step * 0.2), class: "bar-fill" }),
      (days.length - 1 - index) % every === 0 && text(x + step / 2, top + deep + 18, "middle", date),
    );
  };
  return h(
    "svg:svg",
    { viewBox: `0 0 ${width} ${top + deep + 26}`, role: "img", "aria-label": `Spent per day, at most ${money(largest)}; the table below has the figures` },
    scale.lines.map((usd) => [line(usd, "grid"), text(left - 8, y(usd) + 4, "end", money(usd))]),
    days.map(bar),
    hasLimit && h("svg:g", { class: "tone-bad" }, line(limit, "limit"), text(width - right, y(limit) - 6, "end limit-text", `limit ${money(limit)}`)),
  );
}

function shares(title, spent, path = null) {
  const all = toShares(spent);
  const name = (each) => (path && each.name ? h("a", { href: path + encodeURIComponent(each.name), class: "foreign" }, each.name) : h("span", { class: "foreign" }, each.name || "not told"));
  const row = (each) => h("li", {}, name(each), h("span", { class: "num" }, money(each.usd), h("span", { class: "soft" }, ` ${Math.round(each.share * 100)} %`)), h("i", { class: "share", style: { width: `${each.share * 100}%` } }));
  return h("section", { class: "card padded stack tight" }, h("h2", {}, title), h("ul", { class: "shares" }, all.slice(0, 12).map(row)), all.length > 12 && h("p", { class: "small soft" }, `and ${all.length - 12} more`));
}
