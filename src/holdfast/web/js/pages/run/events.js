// Events: the journal itself, any length of it.
import { clock, count, exact, firstLine, plural } from "../../format.js";
import { fill, h } from "../../h.js";
import { empty } from "../../parts/ui.js";
import { raw } from "../../parts/text.js";
import { WindowedRows } from "../../parts/windowed.js";
import { setQuery } from "../../router.js";

export default function eventsTab(panel, view) {
  const filter = h("input", { class: "input search", type: "search", placeholder: "Filter by kind, lane or content", "aria-label": "Filter events", value: view.query.get("filter") ?? "", oninput: () => setQuery({ filter: filter.value }) });
  const box = h("input", { type: "checkbox", onchange: () => box.checked && rows.scrollToEnd() });
  const told = h("span", { class: "soft small", role: "status" });
  const body = h("tbody", {});
  const table = h("table", { class: "table events" }, h("thead", {}, h("tr", {}, ["No.", "Time", "Kind", "Lane", "Content"].map((name) => h("th", { scope: "col" }, name)))), body);
  const scroller = h("div", { class: "events-frame", tabindex: "0", role: "region", "aria-label": "Events" }, table);
  const detail = h("div", { class: "event-detail" });
  panel.append(h("div", { class: "panel-bar" }, filter, h("label", { class: "toggle" }, box, " Follow what is new"), told), h("div", { class: "card" }, scroller), detail);
  let shown = view.events;
  let chosen = Number(view.query.get("seq")) || 0;
  let isPlaced = false;
  const rows = new WindowedRows(body, {
    scroller,
    columns: 5,
    signal: view.signal,
    keyOf: (index) => shown[index].seq,
    stampOf: (index) => shown[index].seq === chosen,
    draw: (index) => row(shown[index]),
  });

  function row(event) {
    const href = `/runs/${encodeURIComponent(view.runId)}/events?${new URLSearchParams({ ...(filter.value ? { filter: filter.value } : {}), seq: event.seq })}`;
    return h(
      "tr",
      { class: `${event.seq === chosen ? "selected " : ""}${/\.(?:error|failed|unknown)$/.test(event.kind) ? "bad-row" : ""}` },
      h("td", { class: "num" }, h("a", { class: "row-link", href }, event.seq)),
      h("td", { class: "num soft", title: exact(event.ts) }, clock(event.ts, true)),
      h("td", {}, h("code", { class: "foreign" }, event.kind)),
      h("td", { class: "soft" }, h("div", { class: "clip foreign" }, event.lane_id)),
      h("td", { class: "soft" }, h("div", { class: "clip foreign mono" }, brief(event))),
    );
  }

  function update() {
    const wanted = filter.value.trim().toLowerCase();
    shown = wanted ? view.events.filter((event) => fits(event, wanted)) : view.events;
    fill(told, wanted ? `${count(shown.length)} of ${plural(view.events.length, "event")}` : plural(view.events.length, "event"));
    rows.update(shown.length);
    if (box.checked) rows.scrollToEnd();
    if (shown.length === 0 && wanted) fill(detail, empty("No event fits", "Take the filter away to see all of them."));
    else if (!isPlaced) place();
  }

  function place() {
    const index = shown.findIndex((event) => event.seq === chosen);
    if (chosen && index === -1) return;
    isPlaced = true;
    if (index >= 0) rows.show(index);
    showDetail(shown[index]);
  }

  function showDetail(event) {
    fill(detail, event && h("section", { class: "card padded", "aria-label": `Event ${event.seq}` }, h("h2", {}, `${event.seq} `, h("code", { class: "foreign" }, event.kind)), h("p", { class: "facts small" }, h("span", {}, exact(event.ts)), h("span", { class: "foreign" }, event.lane_id), h("span", { class: "mono" }, event.span_id)), raw(event.payload ?? {}, { lines: 60, chars: 12_000 })));
  }

  update();
  return {
    update: () => update(),
    query(query) {
      chosen = Number(query.get("seq")) || 0;
      if (document.activeElement !== filter) filter.value = query.get("filter") ?? "";
      isPlaced = false;
      update();
      if (chosen) detail.scrollIntoView({ block: "nearest" });
    },
    follow() {
      box.checked = !box.checked;
      rows.scrollToEnd();
    },
  };
}

const fits = (event, wanted) => event.kind.includes(wanted) || String(event.lane_id).toLowerCase().includes(wanted) || JSON.stringify(event.payload ?? {}).toLowerCase().includes(wanted);

function brief(event) {
  const { key, phase, tool, model, message, text, error, action, reason } = event.payload ?? {};
  const told = [tool ?? model, key ?? phase, action ?? reason, typeof error === "object" ? error?.message : error, message, text].filter((each) => typeof each === "string" && each);
  return firstLine(told.length ? told.join(" · ") : JSON.stringify(event.payload ?? {}).slice(0, 300), 200);
}
