// Runs: what needs me, what is wrong, and everything else in a list that stays still.
import { getJson, withQuery } from "../api.js";
import { count, duration, firstLine, money, plural, runTitle } from "../format.js";
import { fill, h } from "../h.js";
import { nowLine, tookSeconds } from "../model/now.js";
import { RunList, stampOf } from "../model/run-list.js";
import { toStatus } from "../model/status.js";
import { definePage } from "../page.js";
import { button, empty, loading, problemNote, problemState, shape, statusMark, time } from "../parts/ui.js";
import { dotPlot } from "../parts/dot-plot.js";
import { inbox } from "../parts/inbox.js";
import { WindowedRows } from "../parts/windowed.js";
import { navigate, setQuery } from "../router.js";
import { say } from "../say.js";
import { whyNot } from "../session.js";
import { waiting } from "../waiting.js";
import { watchRuns } from "../watch.js";

const PAGE = 100;
const STATES = ["running", "paused", "failed", "pending", "completed", "cancelled"];

export default definePage({
  title: "Runs",
  async render(main, context) {
    const view = new RunsView(main, context);
    await view.load();
    return { update: (next) => view.filter(next.query), leave: () => view.leave() };
  },
});

class RunsView {
  #list = new RunList();
  #standings = new Map();
  #overview = { counts: {}, workflows: [] };
  #selected = -1;
  #isLoadingMore = false;
  #timer = 0;

  constructor(main, { query, signal, setKeys }) {
    Object.assign(this, { query, signal, main });
    this.chips = h("div", { class: "chips", role: "group", "aria-label": "Filter by state" });
    this.search = h("input", { class: "input search", type: "search", name: "text", placeholder: "Search titles and requirements", "aria-label": "Search runs", value: query.get("text") ?? "", oninput: () => this.#searchLater() });
    this.workflow = h("select", { class: "input", "aria-label": "Workflow", onchange: () => setQuery({ workflow: this.workflow.value }) });
    this.inbox = h("div", {});
    this.plot = h("div", { class: "plot" });
    this.fresh = h("div", { class: "fresh" });
    this.trouble = h("div", {});
    this.body = h("tbody", {});
    this.table = h("table", { class: "table runs" }, headRow(), this.body);
    this.after = h("div", {}, loading("Loading the runs…"));
    this.rows = new WindowedRows(this.body, {
      columns: 7,
      signal,
      keyOf: (index) => this.#list.items[index].run_id,
      stampOf: (index) => this.#stamp(index),
      draw: (index) => this.#row(index),
      onEnd: () => this.#loadMore(),
    });
    main.append(
      h("div", { class: "page-head" }, h("h1", { tabindex: "-1" }, "Runs")),
      this.inbox,
      h("div", { class: "filters" }, this.chips, h("div", { class: "filter-fields" }, this.workflow, this.search)),
      h("div", { class: "card" }, this.plot, this.trouble, this.fresh, h("div", { class: "table-frame" }, this.table), this.after),
    );
    this.table.hidden = true;
    setKeys({
      "/": ["Search", () => this.search.focus()],
      j: ["Next run", () => this.#move(1)],
      k: ["Previous run", () => this.#move(-1)],
      Enter: ["Open the run", () => this.#openSelected()],
      ".": ["Show new runs", () => this.#admit()],
    });
    waiting.listeners.add(this.#drawInbox);
    this.#drawInbox();
    watchRuns({ signal, onChange: (runIds) => this.#refreshLater(runIds) });
    this.ticking = setInterval(() => this.#tick(), 1000);
    window.addEventListener("resize", () => this.#drawPlot(), { signal });
  }

  leave() {
    waiting.listeners.delete(this.#drawInbox);
    clearInterval(this.ticking);
    clearTimeout(this.#timer);
  }

  async load() {
    try {
      const [page, overview] = await Promise.all([this.#fetch(), getJson("/api/overview", { signal: this.signal })]);
      this.#overview = overview;
      this.#list.reset(page);
      fill(this.trouble);
    } catch (error) {
      if (this.signal.aborted) return;
      // What was there stays; without anything the whole place says what is wrong.
      if (this.#list.items.length > 0) fill(this.trouble, problemNote(error));
      else fill(this.after, problemState(error, () => this.load()));
      return;
    }
    this.#draw();
    await this.#loadStandings(this.#list.items);
  }

  /** Filters changed in the address: the old list stays until the new one is there. */
  filter(query) {
    this.query = query;
    if (document.activeElement !== this.search) this.search.value = query.get("text") ?? "";
    this.#selected = -1;
    this.load();
    return true;
  }

  #fetch(cursor = null) {
    const { query } = this;
    const asked = { limit: PAGE, state: query.get("state"), workflow: query.get("workflow"), text: query.get("text"), cursor };
    return getJson(withQuery("/api/runs", asked), { signal: this.signal });
  }

  async #loadMore() {
    if (this.#isLoadingMore || !this.#list.cursor) return;
    this.#isLoadingMore = true;
    try {
      const page = await this.#fetch(this.#list.cursor);
      this.#list.append(page);
      this.#drawRows();
      await this.#loadStandings(page.items);
    } catch (error) {
      if (!this.signal.aborted) fill(this.after, problemNote(error));
    } finally {
      this.#isLoadingMore = false;
    }
  }

  async #loadStandings(runs) {
    if (runs.length === 0) return;
    const query = new URLSearchParams(runs.map((run) => ["run_id", run.run_id]));
    const found = await getJson(`/api/standings?${query}`, { signal: this.signal }).catch(() => ({ items: [] }));
    for (const standing of found.items) this.#standings.set(standing.run_id, standing);
    this.#drawRows();
  }

  #searchLater() {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => setQuery({ text: this.search.value.trim() }), 250);
  }

  #refreshLater(runIds) {
    for (const id of runIds ?? []) (this.changed ??= new Set()).add(id);
    this.refreshing ??= setTimeout(() => {
      this.refreshing = null;
      this.#refresh();
    }, 300);
  }

  async #refresh() {
    if (this.signal.aborted) return;
    try {
      const [page, overview] = await Promise.all([this.#fetch(), getJson("/api/overview", { signal: this.signal })]);
      this.#overview = overview;
      this.#list.refresh(page);
      const inPage = new Set(page.items.map((run) => run.run_id));
      const others = [...(this.changed ?? [])].filter((id) => this.#list.has(id) && !inPage.has(id)).slice(0, 20);
      this.changed = null;
      for (const id of others) this.#list.replace(await getJson(`/api/runs/${encodeURIComponent(id)}`, { signal: this.signal }));
      if (scrollY < 40 && !this.body.contains(document.activeElement)) this.#list.admit();
      this.#draw();
      await this.#loadStandings(this.#list.items.slice(0, PAGE));
    } catch {
      // The bar says that the page is not live; the next change asks again.
    }
  }

  #admit() {
    const n = this.#list.fresh.length;
    this.#list.admit();
    this.#draw();
    this.#loadStandings(this.#list.items.slice(0, PAGE));
    scrollTo({ top: 0 });
    say(`${plural(n, "new run")} shown`);
  }

  // -- drawing ----------------------------------------------------------------------------------------------------

  #draw() {
    this.#drawChips();
    this.#drawPlot();
    this.#drawRows();
    this.#drawState();
  }

  #drawInbox = () => fill(this.inbox, inbox(waiting.items, this.#standings));

  #drawChips() {
    const { counts, workflows } = this.#overview;
    const chosen = this.query.get("state") ?? "";
    const total = Object.values(counts).reduce((sum, n) => sum + n, 0);
    const chip = (state, word, n) => {
      const status = state && toStatus(state);
      return h("button", { class: `chip${status ? ` tone-${status.tone}` : ""}`, type: "button", "aria-pressed": String(chosen === state), onclick: () => setQuery({ state: chosen === state ? "" : state }) }, status && shape(status.shape), word, " ", h("span", { class: "n" }, count(n)));
    };
    fill(this.chips, chip("", "All", total), STATES.filter((state) => counts[state] || chosen === state).map((state) => chip(state, toStatus(state).word, counts[state] ?? 0)));
    const workflow = this.query.get("workflow") ?? "";
    fill(this.workflow, h("option", { value: "" }, "All workflows"), [...new Set([...workflows, workflow])].filter(Boolean).map((name) => h("option", { value: name, selected: name === workflow }, name)));
    this.workflow.hidden = workflows.length < 2 && !workflow;
  }

  #drawPlot() {
    const runs = this.#list.items.slice(0, 200);
    this.plot.hidden = runs.length < 3;
    if (!this.plot.hidden) fill(this.plot, dotPlot(runs, { width: this.plot.clientWidth || 600, summaryOf: (run) => this.#title(run) }));
  }

  #drawRows() {
    this.table.hidden = this.#list.items.length === 0;
    this.table.setAttribute("aria-rowcount", this.#list.cursor ? -1 : this.#list.items.length + 1);
    this.rows.update(this.#list.items.length);
    const n = this.#list.fresh.length;
    fill(this.fresh, n > 0 && button(`Show ${plural(n, "new run")}`, () => this.#admit(), { kind: "tiny" }));
  }

  #drawState() {
    if (this.#list.items.length > 0) return fill(this.after, this.#list.cursor && loading("More below…"));
    const isFiltered = ["state", "workflow", "text"].some((name) => this.query.get(name));
    if (isFiltered) {
      const clear = button("Clear the filters", () => ((this.search.value = ""), setQuery({ state: "", workflow: "", text: "" })));
      return fill(this.after, empty("No run fits these filters", "There are runs, but none like this.", clear));
    }
    const why = whyNot("operator");
    const first = why ? h("p", {}, why) : h("a", { class: "button main", href: "/new" }, "Start the first run");
    return fill(this.after, empty("No runs yet", "A run works on a repository, phase by phase, and asks you where it matters. It can be rehearsed with a simulated model: no key, no cost.", first));
  }

  #title(run) {
    return runTitle({ ...run, requirements_md: this.#standings.get(run.run_id)?.summary });
  }

  #stamp(index) {
    const run = this.#list.items[index];
    const standing = this.#standings.get(run.run_id);
    return `${stampOf(run)} ${index === this.#selected} ${standing ? standing.phases.map((phase) => phase.state + phase.attempts).join() : "?"}`;
  }

  #row(index) {
    const run = this.#list.items[index];
    const isOpen = run.state === "running" || run.state === "paused" || run.state === "pending";
    return h(
      "tr",
      { class: index === this.#selected ? "selected" : null },
      h("td", { class: "c-status" }, statusMark(run.state, { pauseReason: run.pause_reason })),
      h("td", { class: "c-title" }, h("div", { class: "clip" }, h("a", { class: "row-link foreign", href: `/runs/${encodeURIComponent(run.run_id)}` }, this.#title(run)))),
      h("td", { class: "c-now soft" }, h("div", { class: `clip foreign${run.state === "failed" ? " bad-text" : ""}` }, firstLine(nowLine(run, this.#standings.get(run.run_id))))),
      h("td", { class: "c-workflow soft" }, h("div", { class: "clip foreign" }, run.workflow, run.is_simulated && " · rehearsal")),
      h("td", { class: "c-started soft num" }, time(run.started_at ?? run.created_at)),
      h("td", { class: "c-took num", dataset: isOpen ? { since: run.started_at ?? run.created_at } : {} }, duration(tookSeconds(run, Date.now()))),
      h("td", { class: "c-cost num" }, money(run.cost_usd)),
    );
  }

  #tick() {
    if (document.hidden) return;
    for (const cell of this.body.querySelectorAll("[data-since]")) cell.textContent = duration(Math.max(0, (Date.now() - Date.parse(cell.dataset.since)) / 1000));
  }

  // -- keys -------------------------------------------------------------------------------------------------------

  #move(by) {
    const last = this.#list.items.length - 1;
    if (last < 0) return;
    this.#selected = Math.min(Math.max(this.#selected + by, 0), last);
    this.rows.update(this.#list.items.length);
    this.rows.show(this.#selected)?.querySelector("a")?.focus({ preventScroll: true });
  }

  #openSelected() {
    const run = this.#list.items[this.#selected];
    if (run) navigate(`/runs/${encodeURIComponent(run.run_id)}`);
  }
}

function headRow() {
  const names = [["Status", ""], ["Run", ""], ["Now", "c-now"], ["Workflow", "c-workflow"], ["Started", "num c-started"], ["Took", "num"], ["Cost", "num"]];
  return h("thead", {}, h("tr", {}, names.map(([name, kind]) => h("th", { scope: "col", class: kind || null }, name))));
}

