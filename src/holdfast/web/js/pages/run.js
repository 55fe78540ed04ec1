// Run: what is happening and why, what must be decided, and everything it did, live.
import { getJson, getWithEtag, runPath } from "../api.js";
import { count, firstLine, runTitle } from "../format.js";
import { fill, h } from "../h.js";
import { follow } from "../live.js";
import { Activity } from "../model/activity.js";
import { factsOf, sentence } from "../model/now.js";
import { RunFold } from "../model/run-fold.js";
import { definePage } from "../page.js";
import { button, empty, loading, notFound, problemNote, shape, time } from "../parts/ui.js";
import { markdown } from "../parts/text.js";
import { navigate } from "../router.js";
import { say } from "../say.js";
import { watchRuns } from "../watch.js";
import { actionBar } from "./run/actions.js";
import { approvalCard } from "./run/approval.js";

const TABS = {
  timeline: ["Timeline", () => import("./run/timeline.js")],
  activity: ["Activity", () => import("./run/activity.js")],
  artifacts: ["Artifacts", () => import("./run/artifacts.js")],
  changes: ["Changes", () => import("./run/changes.js")],
  cost: ["Cost", () => import("./run/cost.js")],
  events: ["Events", () => import("./run/events.js")],
};
const OVER = new Set(["completed", "failed", "cancelled"]);
const CHANGES_ROWS = /^(?:run|phase|human|artifact|budget\.(?:raised|exhausted))\b/;

export default definePage({
  title: "Run",
  async render(main, context) {
    const view = new RunView(main, context);
    if (!(await view.load())) return {};
    view.start();
    return { update: (next) => view.turnTo(next), leave: () => view.leave() };
  },
});

class RunView {
  run = null;
  plan = null;
  events = [];
  fold = new RunFold();
  activity = new Activity();
  #etag = null;
  #tab = null;
  #tabName = "";
  #frame = 0;
  #drawnApprovals = "";
  #following = false;

  constructor(main, { params, query, signal, setTitle, setKeys }) {
    Object.assign(this, { runId: params.runId, params, query, signal, setTitle, setKeys, main });
  }

  async load() {
    fill(this.main, loading("Loading the run…"));
    try {
      await this.#fetch();
    } catch (error) {
      if (error.status !== 404) throw error;
      fill(this.main, h("h1", { tabindex: "-1", class: "unseen" }, "Not found"), notFound("There is no run of this id. It may be in another database."));
      return false;
    }
    this.plan = await getJson(runPath(this.runId, "/plan"), { signal: this.signal }).catch(() => null);
    this.#build();
    return true;
  }

  start() {
    this.turnTo({ params: this.params, query: this.query });
    this.#follow();
    watchRuns({ signal: this.signal, onChange: (ids) => (!ids || ids.has(this.runId)) && this.#woken() });
    this.ticking = setInterval(() => !document.hidden && this.#drawHead(), 1000);
    const names = Object.keys(TABS);
    this.setKeys({
      ...Object.fromEntries(names.map((name, index) => [String(index + 1), [TABS[name][0], () => this.#goTo(name)]])),
      f: ["Follow what is new", () => this.#tab?.follow?.()],
      a: ["Go to the decision", () => this.approvals.querySelector("section button, textarea")?.focus()],
    });
  }

  leave() {
    clearInterval(this.ticking);
    this.#tab?.leave?.();
  }

  /** Ask for the run anew; the tabs that show rows draw them again. */
  async refresh() {
    try {
      if (await this.#fetch()) this.#draw();
    } catch (error) {
      if (!this.signal.aborted && !error.isOffline) this.notice(error);
    }
  }

  /** Something to be read: an answer that came too late, a refusal. It stays until the next one. */
  notice(error) {
    fill(this.notices, problemNote(error));
    say(error.message);
  }

  async #fetch() {
    const { etag, data } = await getWithEtag(runPath(this.runId), { signal: this.signal });
    if (etag && etag === this.#etag) return false;
    this.#etag = etag;
    this.run = data;
    return true;
  }

  // -- live -------------------------------------------------------------------------------------------------------

  async #follow() {
    if (this.#following) return;
    this.#following = true;
    await follow(runPath(this.runId, "/events"), {
      signal: this.signal,
      lastId: this.fold.lastSeq ? String(this.fold.lastSeq) : "",
      onMessages: (messages) => this.#take(messages.map((message) => message.data).filter(Boolean)),
      onRefused: (error) => this.notice(error),
    });
    this.#following = false;
    if (!this.signal.aborted) await this.refresh();
  }

  /** Events of this run were seen elsewhere: after its end that means that it was opened again. */
  async #woken() {
    if (this.#following) return;
    await this.refresh();
    if (!OVER.has(this.run.state)) this.#follow();
  }

  #take(events) {
    let changesRows = false;
    for (const event of events) {
      if (!this.fold.add(event)) continue;
      this.events.push(event);
      this.activity.add(event);
      changesRows ||= event.seq > this.run.seq && CHANGES_ROWS.test(event.kind);
    }
    if (changesRows) this.refreshing ??= setTimeout(() => ((this.refreshing = null), this.refresh()), 150);
    this.#drawSoon();
  }

  #drawSoon() {
    // Many events, few drawings: a long journal comes in hundreds of pieces.
    const wait = this.events.length > 2000 ? 400 : 80;
    this.#frame ||= setTimeout(() => {
      this.#frame = 0;
      if (this.signal.aborted) return;
      this.#drawHead();
      this.#drawTabs();
      this.#tab?.update?.();
    }, wait);
  }

  // -- drawing ----------------------------------------------------------------------------------------------------

  #build() {
    this.crumbs = h("nav", { class: "crumbs small", "aria-label": "Where you are" }, h("a", { href: "/" }, "Runs"), " › ", h("span", { class: "soft mono" }, this.run.run_id.slice(0, 8)));
    this.title = h("h1", { tabindex: "-1", class: "foreign" });
    this.buttons = h("div", { class: "run-actions" });
    this.status = h("p", { class: "run-status" });
    this.facts = h("div", { class: "facts small" });
    this.wanted = h("div", {});
    this.notices = h("div", {});
    this.approvals = h("div", { class: "stack" });
    this.tabs = h("nav", { class: "tabs", "aria-label": "Parts of this run" });
    this.panel = h("div", { class: "panel" });
    fill(this.main, h("div", { class: "run-head" }, this.crumbs, h("div", { class: "page-head" }, this.title, this.buttons), this.status, this.facts, this.wanted), this.notices, this.approvals, this.tabs, this.panel);
    this.#draw();
  }

  #draw() {
    const { run } = this;
    const title = runTitle(run);
    if (this.title.textContent !== title) fill(this.title, title);
    this.setTitle(title);
    if (!this.buttons.contains(document.activeElement) || !this.buttons.querySelector(".menu[open]")) this.#drawActions();
    this.#drawWanted();
    this.#drawApprovals();
    this.#drawHead();
    this.#drawTabs();
    this.#tab?.update?.(true);
  }

  #drawActions() {
    const stamp = `${this.run.state} ${this.run.pause_reason} ${this.run.approvals.filter((each) => each.state === "pending").length}`;
    if (stamp === this.actionStamp) return;
    this.actionStamp = stamp;
    fill(this.buttons, actionBar(this));
  }

  #drawHead() {
    const told = sentence(this.run, { fold: this.fold, nowMs: Date.now() });
    const stamp = `${told.tone} ${told.text} ${told.since}`;
    if (stamp !== this.headStamp) {
      if (this.headStamp && told.text.split(":")[0] !== this.headText) say(told.text);
      this.headStamp = stamp;
      this.headText = told.text.split(":")[0];
      const since = told.since && h("span", { class: "soft" }, " ", time(told.since, { focusable: true }));
      fill(this.status, h("span", { class: `mark tone-${told.tone}` }, shape(told.tone)), h("span", {}, h("span", { class: "foreign" }, told.text), since));
      this.status.className = `run-status tone-${told.tone}`;
    }
    this.#drawFacts();
  }

  #drawFacts() {
    const { run } = this;
    const { started, took, spent } = factsOf(run, Date.now());
    const isOver = OVER.has(run.state);
    const stamp = `${started} ${took} ${spent} ${run.started_by}`;
    if (stamp === this.factStamp) return;
    this.factStamp = stamp;
    fill(
      this.facts,
      h("a", { href: `/workflows/${encodeURIComponent(run.workflow)}`, class: "foreign" }, `${run.workflow}${this.plan ? ` v${this.plan.version}` : ""}`),
      run.is_simulated && h("span", { class: "tag" }, "rehearsal with the simulated model"),
      h("span", {}, `started ${started}`, run.started_by && [" by ", h("span", { class: "foreign" }, run.started_by)]),
      h("span", { class: "num" }, isOver ? `took ${took}` : `${took} so far`),
      h("span", { class: "num" }, `cost ${spent}`),
      run.forked_from && h("span", {}, "forked from ", h("a", { href: `/runs/${encodeURIComponent(run.forked_from)}`, class: "mono" }, run.forked_from.slice(0, 8))),
      h("span", { class: "foreign clip", title: run.repo_path }, `${run.repo_path.split("/").at(-1)} @ ${run.base_branch}`),
    );
  }

  #drawWanted() {
    const text = this.run.requirements_md;
    if (!text || this.wanted.childElementCount) return;
    const isTitle = firstLine(text, 120) === runTitle(this.run) && text.trim().split("\n").length === 1;
    if (!isTitle) fill(this.wanted, h("details", { class: "wanted" }, h("summary", { class: "small" }, "What is wanted"), h("div", { class: "card padded" }, markdown(text))));
  }

  #drawApprovals() {
    const open = OVER.has(this.run.state) ? [] : this.run.approvals.filter((each) => each.state === "pending");
    const stamp = open.map((each) => `${each.approval_id} ${each.first_by}`).join();
    if (stamp === this.#drawnApprovals) return; // what someone is typing must not be drawn away
    this.#drawnApprovals = stamp;
    fill(this.approvals, open.map((approval) => approvalCard(approval, this)));
    if (open.length) say(`${open.length} decision${open.length > 1 ? "s" : ""} to make`);
  }

  #drawTabs() {
    const { run } = this;
    const artifacts = new Set(run.artifacts.map((each) => each.phase_key)).size;
    const counts = { artifacts: artifacts || null, events: this.events.length ? count(this.events.length) : null };
    const stamp = `${this.#tabName} ${counts.artifacts} ${counts.events}`;
    if (stamp === this.tabStamp) return;
    this.tabStamp = stamp;
    const focused = this.tabs.contains(document.activeElement) ? document.activeElement.dataset.tab : null;
    fill(this.tabs, Object.entries(TABS).map(([name, [label]]) => h("a", { href: this.#tabUrl(name), dataset: { tab: name }, "aria-current": name === this.#tabName ? "page" : null }, label, counts[name] && [" ", h("span", { class: "n" }, counts[name])])));
    if (focused) this.tabs.querySelector(`[data-tab="${focused}"]`)?.focus();
  }

  #tabUrl(name) {
    return `/runs/${encodeURIComponent(this.runId)}${name === "timeline" ? "" : `/${name}`}`;
  }

  #goTo(name) {
    navigate(this.#tabUrl(name), { replace: true });
  }

  /** Show the tab that the address names. False if the address is another run's. */
  turnTo({ params, query }) {
    if (params.runId !== this.runId) return false;
    this.query = query;
    const name = Object.hasOwn(TABS, params.tab ?? "") ? params.tab : "timeline";
    if (name === this.#tabName && this.#tab?.query) this.#tab.query(query);
    else if (name !== this.#tabName) this.#open(name);
    this.#drawTabs();
    return true;
  }

  async #open(name) {
    this.#tab?.leave?.();
    this.#tab = null;
    this.#tabName = name;
    const module = await TABS[name][1]().catch(() => null); // the server is away, or another version now
    if (this.#tabName !== name || this.signal.aborted) return;
    this.panel.replaceChildren();
    if (module) this.#tab = module.default(this.panel, this) ?? {};
    else this.panel.append(empty("This part could not be loaded", "The server did not answer. Nothing is lost.", button("Try again", () => location.reload())));
    this.#fetchOthers();
  }

  /** The other tabs, before they are wanted: a browser never asks again for a module it once failed to get. */
  #fetchOthers() {
    this.fetching ??= setTimeout(() => {
      for (const [, load] of Object.values(TABS)) load().catch(() => null);
    }, 300);
  }
}
