// Runs: what needs me, what is wrong, and everything else in a list that stays still.
import { getJson, runPath, withQuery } from "../api.js";
import { count, duration, firstLine, money, plural, runTitle } from "../format.js";
import { fill, h } from "../h.js";
import { nowLine, tookSeconds } from "../model/now.js";
import { RunList, stampOf } from "../model/run-list.js";
import { toStatus } from "../model/status.js";
import { definePage } from "../page.js";
import { dotPlot } from "../parts/dot-plot.js";
import { inbox } from "../parts/inbox.js";
import { button, chip, empty, loading, pageHead, problemNote, problemState, shape, statusMark, time } from "../parts/ui.js";
import { WindowedRows } from "../parts/windowed.js";
import { navigate, setQuery } from "../router.js";
import { say } from "../say.js";
import { whyNot } from "../session.js";
import { waiting } from "../waiting.js";
import { watchRuns } from "../watch.js";

const PAGE = 100;
const STATES = ["running", "paused", "failed", "pending", "completed", "cancelled"];
const FILTERS = ["state", "workflow", "text"];
const HEADS = [["Status"], ["Run"], ["Now", ".c-now"], ["Workflow", ".c-workflow"], ["Started", ".num.c-started"], ["Took", ".num"], ["Cost", ".num"]];
const urlOf = (run) => `/runs/${encodeURIComponent(run.run_id)}`;
const startOf = (run) => run.started_at ?? run.created_at;

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
  #changed = new Set();
  #selected = -1;
  #isLoadingMore = false;
  #timer;

  constructor(main, { query, signal, setKeys }) {
    Object.assign(this, { query, signal });
    this.chips = h("div.chips", { role: "group", "aria-label": "Filter by state" });
    this.search = h("input.input.search", { type: "search", name: "text", placeholder: "Search titles and requirements", "aria-label": "Search runs", value: query.get("text") ?? "", oninput: () => this.#searchLater() });
    this.workflow = h("select.input", { "aria-label": "Workflow", onchange: () => setQuery({ workflow: this.workflow.value }) });
    this.inbox = h("div");
    this.plot = h("div.plot");
    this.fresh = h("div.fresh");
    this.trouble = h("div");
    this.body = h("tbody");
    this.table = h("table.table.runs", { hidden: true }, h("thead", h("tr", HEADS.map(([name, look = ""]) => h(`th${look}`, { scope: "col" }, name)))), this.body);
    this.after = h("div", loading("Loading the runs…"));
    this.rows = new WindowedRows(this.body, {
      columns: HEADS.length,
      signal,
      keyOf: (index) => this.#list.items[index].run_id,
      stampOf: (index) => this.#stamp(index),
      draw: (index) => this.#row(index),
      onEnd: () => this.#loadMore(),
    });
    main.append(
      pageHead("Runs"),
      this.inbox,
      h("div.filters", this.chips, h("div.filter-fields", this.workflow, this.search)),
      h("div.card", this.plot, this.trouble, this.fresh, h("div.table-frame", this.table), this.after),
    );
    setKeys({
      "/": ["Search", () => this.search.focus()],
      j: ["Next run", () => this.#move(1)],
      k: ["Previous run", () => this.#move(-1)],
      Enter: ["Open the run", () => this.#selected >= 0 && navigate(urlOf(this.#list.items[this.#selected]))],
      ".": ["Show new runs", () => this.#admit()],
    });
    waiting.listeners.add(this.#drawInbox);
    this.#drawInbox();
    watchRuns({ signal, onChange: (runIds) => this.#refreshLater(runIds) });
    this.ticking = setInterval(() => this.#tick(), 1000);
    addEventListener("resize", () => this.#drawPlot(), { signal });
  }

  leave() {
    waiting.listeners.delete(this.#drawInbox);
    clearInterval(this.ticking);
    clearTimeout(this.#timer);
  }

  #get = (path) => getJson(path, { signal: this.signal });

  #fetch(cursor) {
    const filters = Object.fromEntries(FILTERS.map((name) => [name, this.query.get(name)]));
    return this.#get(withQuery("/api/runs", { limit: PAGE, ...filters, cursor }));
  }

  async #fetchFirst() {
    const [page, overview] = await Promise.all([this.#fetch(), this.#get("/api/overview")]);
    this.#overview = overview;
    return page;
  }

  async load() {
    try {
      this.#list.reset(await this.#fetchFirst());
      fill(this.trouble);
    } catch (error) {
      if (this.signal.aborted) return;
      // What was there stays; without anything the whole place says what is wrong.
      if (this.#list.items.length) fill(this.trouble, problemNote(error));
      else fill(this.after, problemState(error, () => this.load()));
      return;
    }
    await this.#show(this.#list.items);
  }

  // Filters changed in the address: the old list stays until the new one is there.
  filter(query) {
    this.query = query;
    if (document.activeElement !== this.search) this.search.value = query.get("text") ?? "";
    this.#selected = -1;
    this.load();
    return true;
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
    if (!runs.length) return;
    const { items } = await this.#get(`/api/standings?${new URLSearchParams(runs.map((run) => ["run_id", run.run_id]))}`).catch(() => ({ items: [] }));
    for (const standing of items) this.#standings.set(standing.run_id, standing);
    this.#drawRows();
  }

  #searchLater() {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => setQuery({ text: this.search.value.trim() }), 250);
  }

  #refreshLater(runIds) {
    for (const id of runIds ?? []) this.#changed.add(id);
    this.refreshing ??= setTimeout(() => ((this.refreshing = null), this.#refresh()), 300);
  }

  async #refresh() {
    if (this.signal.aborted) return;
    try {
      const page = await this.#fetchFirst();
      this.#list.refresh(page);
      for (const run of page.items) this.#changed.delete(run.run_id);
      const others = [...this.#changed].filter((id) => this.#list.has(id)).slice(0, 20);
      this.#changed.clear();
      for (const id of others) this.#list.replace(await this.#get(runPath(id)));
      if (scrollY < 40 && !this.body.contains(document.activeElement)) this.#list.admit();
      await this.#show();
    } catch {
      // The bar says that the page is not live; the next change asks again.
    }
  }

  #admit() {
    say(`${plural(this.#list.fresh.length, "new run")} shown`);
    this.#list.admit();
    this.#show();
    scrollTo({ top: 0 });
  }

  // -- drawing

  #show(runs = this.#list.items.slice(0, PAGE)) {
    this.#drawFilters();
    this.#drawPlot();
    this.#drawRows();
    fill(this.after, this.#list.items.length ? this.#list.cursor && loading("More below…") : this.#nothing());
    return this.#loadStandings(runs);
  }

  #drawInbox = () => fill(this.inbox, inbox(waiting.items));

  #drawFilters() {
    const { counts, workflows } = this.#overview;
    const chosen = this.query.get("state") ?? "";
    const total = Object.values(counts).reduce((sum, n) => sum + n, 0);
    const stateChip = (state) => {
      const { tone, shape: shapeName, word } = toStatus(state);
      const made = chip(state ? [shape(shapeName), word] : "All", chosen === state, () => setQuery({ state: chosen === state ? "" : state }), " ", h("span.n", count(state ? counts[state] ?? 0 : total)));
      if (state) made.classList.add(`tone-${tone}`);
      return made;
    };
    fill(this.chips, ["", ...STATES.filter((state) => counts[state] || chosen === state)].map(stateChip));
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
    const { items, cursor, fresh } = this.#list;
    this.table.hidden = !items.length;
    this.table.setAttribute("aria-rowcount", cursor ? -1 : items.length + 1);
    this.rows.update(items.length);
    fill(this.fresh, fresh.length > 0 && button(`Show ${plural(fresh.length, "new run")}`, () => this.#admit(), { kind: "tiny" }));
  }

  #nothing() {
    if (FILTERS.some((name) => this.query.get(name))) {
      const clear = () => {
        this.search.value = "";
        setQuery({ state: "", workflow: "", text: "" });
      };
      return empty("No run fits these filters", "There are runs, but none like this.", button("Clear the filters", clear));
    }
    const why = whyNot("operator");
    const first = why ? h("p", why) : h("a.button.main", { href: "/new" }, "Start the first run");
    return empty("No runs yet", "A run works on a repository, phase by phase, and asks you where it matters. It can be rehearsed with a simulated model: no key, no cost.", first);
  }

  #title = (run) => runTitle({ ...run, requirements_md: this.#standings.get(run.run_id)?.summary });

  #stamp(index) {
    const run = this.#list.items[index];
    const phases = this.#standings.get(run.run_id)?.phases;
    return `${stampOf(run)} ${index === this.#selected} ${phases?.map((phase) => phase.state + phase.attempts)}`;
  }

  #row(index) {
    const run = this.#list.items[index];
    const { state } = run;
    const isOpen = ["running", "paused", "pending"].includes(state);
    return h(
      "tr",
      { class: index === this.#selected ? "selected" : null },
      h("td.c-status", statusMark(state, { pauseReason: run.pause_reason })),
      h("td.c-title", h("div.clip", h("a.row-link.foreign", { href: urlOf(run) }, this.#title(run)))),
      h("td.c-now.soft", h(`div.clip.foreign${state === "failed" ? ".bad-text" : ""}`, firstLine(nowLine(run, this.#standings.get(run.run_id))))),
      h("td.c-workflow.soft", h("div.clip.foreign", run.workflow, run.is_simulated && " · rehearsal")),
      h("td.c-started.soft.num", time(startOf(run))),
      h("td.c-took.num", { dataset: isOpen ? { since: startOf(run) } : {} }, duration(tookSeconds(run, Date.now()))),
      h("td.c-cost.num", money(run.cost_usd)),
    );
  }

  #tick() {
    if (document.hidden) return;
    for (const cell of this.body.querySelectorAll("[data-since]")) cell.textContent = duration(tookSeconds({ started_at: cell.dataset.since }, Date.now()));
  }

  #move(by) {
    const { length } = this.#list.items;
    if (!length) return;
    this.#selected = Math.min(Math.max(this.#selected + by, 0), length - 1);
    this.rows.update(length);
    this.rows.show(this.#selected)?.querySelector("a")?.focus({ preventScroll: true });
  }
}
