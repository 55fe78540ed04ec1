// Run: what is happening and why, what must be decided, and everything it did, live.
import { getJson, getText, getWithEtag, runPath } from "../api.js";
import { count, firstLine, plural, runTitle } from "../format.js";
import { fill, h } from "../h.js";
import { follow } from "../live.js";
import { Activity } from "../model/activity.js";
import { factsOf, sentence } from "../model/now.js";
import { RunFold } from "../model/run-fold.js";
import { definePage } from "../page.js";
import { markdown } from "../parts/text.js";
import { button, empty, loading, mark, notFound, problemNote, time } from "../parts/ui.js";
import { navigate } from "../router.js";
import { say } from "../say.js";
import { watchRuns } from "../watch.js";
import { actionBar } from "./run/actions.js";
import { approvalCard } from "./run/approval.js";

// Each tab, and the module that exports it by its name.
const TABS = { timeline: "timeline", activity: "journal", artifacts: "results", changes: "results", cost: "cost", events: "journal" };
const CHANGES_ROWS = /^(?:run|phase|human|artifact|budget\.(?:raised|exhausted))\b/;
const titleOf = (name) => name[0].toUpperCase() + name.slice(1);
const load = (name) => import(`./run/${TABS[name]}.js`).catch(() => null); // the server is away, or another version now

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
  plan = null;
  events = [];
  fold = new RunFold();
  activity = new Activity();
  #etag;
  #tab;
  #tabName;
  #frame;
  #isFollowing = false;
  #stamps = {};

  constructor(main, { params, query, signal, setTitle, setKeys }) {
    Object.assign(this, { runId: params.runId, params, query, signal, setTitle, setKeys, main });
  }

  get isOver() {
    return ["completed", "failed", "cancelled"].includes(this.run.state);
  }

  get pending() {
    return this.run.approvals.filter((each) => each.state === "pending");
  }

  url = (rest = "") => `/runs/${encodeURIComponent(this.runId)}${rest}`;
  api = (rest = "") => runPath(this.runId, rest);
  text = (rest) => getText(this.api(rest), { signal: this.signal });

  async load() {
    fill(this.main, loading("Loading the run…"));
    try {
      await this.#fetch();
    } catch (error) {
      if (error.status !== 404) throw error;
      fill(this.main, h("h1.unseen", { tabindex: "-1" }, "Not found"), notFound("There is no run of this id. It may be in another database."));
      return false;
    }
    this.plan = await getJson(this.api("/plan"), { signal: this.signal }).catch(() => null);
    this.#build();
    return true;
  }

  start() {
    this.turnTo(this);
    this.#follow();
    watchRuns({ signal: this.signal, onChange: (ids) => (!ids || ids.has(this.runId)) && this.#woken() });
    this.ticking = setInterval(() => !document.hidden && this.#drawHead(), 1000);
    this.setKeys({
      ...Object.fromEntries(Object.keys(TABS).map((name, index) => [index + 1, [titleOf(name), () => navigate(this.#tabUrl(name), { replace: true })]])),
      f: ["Follow what is new", () => this.#tab?.follow?.()],
      a: ["Go to the decision", () => this.approvals.querySelector("section button, textarea")?.focus()],
    });
  }

  leave() {
    clearInterval(this.ticking);
    this.#tab?.leave?.();
  }

  async refresh() {
    try {
      if (await this.#fetch()) this.#draw();
    } catch (error) {
      if (!this.signal.aborted && !error.isOffline) this.notice(error);
    }
  }

  // An answer that came too late, a refusal: it stays until the next one.
  notice(error) {
    fill(this.notices, problemNote(error));
    say(error.message);
  }

  async #fetch() {
    const { etag, data } = await getWithEtag(this.api(), { signal: this.signal });
    if (etag && etag === this.#etag) return false;
    this.#etag = etag;
    this.run = data;
    return true;
  }

  // -- live

  async #follow() {
    if (this.#isFollowing) return;
    this.#isFollowing = true;
    await follow(this.api("/events"), {
      signal: this.signal,
      lastId: String(this.fold.lastSeq || ""),
      onMessages: (messages) => this.#take(messages.map((message) => message.data).filter(Boolean)),
      onRefused: (error) => this.notice(error),
    });
    this.#isFollowing = false;
    if (!this.signal.aborted) await this.refresh();
  }

  // Events of this run were seen elsewhere: after its end that means that it was opened again.
  async #woken() {
    if (this.#isFollowing) return;
    await this.refresh();
    if (!this.isOver) this.#follow();
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
    // Many events, few drawings: a long journal comes in hundreds of pieces.
    this.#frame ||= setTimeout(() => {
      this.#frame = 0;
      if (this.signal.aborted) return;
      this.#drawHead();
      this.#drawTabs();
      this.#tab?.update?.();
    }, this.events.length > 2000 ? 400 : 80);
  }

  // -- drawing

  #build() {
    this.title = h("h1.foreign", { tabindex: "-1" });
    this.buttons = h("div.run-actions");
    this.status = h("p");
    this.facts = h("div.facts.small");
    this.wanted = h("div");
    this.notices = h("div");
    this.approvals = h("div.stack");
    this.tabs = h("nav.tabs", { "aria-label": "Parts of this run" });
    this.panel = h("div.panel");
    const crumbs = h("nav.crumbs.small", { "aria-label": "Where you are" }, h("a", { href: "/" }, "Runs"), " › ", h("span.soft.mono", this.run.run_id.slice(0, 8)));
    const head = h("div.run-head", crumbs, h("div.page-head", this.title, this.buttons), this.status, this.facts, this.wanted);
    fill(this.main, head, this.notices, this.approvals, this.tabs, this.panel);
    this.#draw();
  }

  // Whether something is to be drawn anew; what someone types in or points at must not be drawn away.
  #isNew(what, ...facts) {
    const stamp = facts.join(" ");
    const isNew = stamp !== this.#stamps[what];
    this.#stamps[what] = stamp;
    return isNew;
  }

  #draw() {
    const { run } = this;
    const title = runTitle(run);
    if (this.#isNew("title", title)) fill(this.title, title);
    this.setTitle(title);
    const isInMenu = this.buttons.contains(document.activeElement) && this.buttons.querySelector(".menu[open]");
    if (!isInMenu && this.#isNew("actions", run.state, run.pause_reason, this.pending.length)) fill(this.buttons, actionBar(this));
    this.#drawWanted(title);
    this.#drawApprovals();
    this.#drawHead();
    this.#drawTabs();
    this.#tab?.update?.(true);
  }

  #drawHead() {
    const { tone, text, since } = sentence(this.run, { fold: this.fold, nowMs: Date.now() });
    if (this.#isNew("head", tone, text, since)) {
      const isFirst = !this.status.childElementCount;
      if (this.#isNew("said", text.split(":")[0]) && !isFirst) say(text);
      fill(this.status, mark(tone), h("span", h("span.foreign", text), since && h("span.soft", " ", time(since, { focusable: true }))));
      this.status.className = `run-status tone-${tone}`;
    }
    this.#drawFacts();
  }

  #drawFacts() {
    const { workflow, is_simulated: isSimulated, started_by: by, forked_from: origin, repo_path: repo, base_branch: branch } = this.run;
    const { started, took, spent } = factsOf(this.run, Date.now());
    if (!this.#isNew("facts", started, took, spent, by, this.isOver)) return;
    fill(
      this.facts,
      h("a.foreign", { href: `/workflows/${encodeURIComponent(workflow)}` }, workflow, this.plan && ` v${this.plan.version}`),
      isSimulated && h("span.tag", "rehearsal with the simulated model"),
      h("span", `started ${started}`, by && [" by ", h("span.foreign", by)]),
      h("span.num", this.isOver ? `took ${took}` : `${took} so far`),
      h("span.num", `cost ${spent}`),
      origin && h("span", "forked from ", h("a.mono", { href: `/runs/${encodeURIComponent(origin)}` }, origin.slice(0, 8))),
      h("span.foreign.clip", { title: repo }, `${repo.split("/").at(-1)} @ ${branch}`),
    );
  }

  #drawWanted(title) {
    const text = this.run.requirements_md?.trim();
    if (!text || this.wanted.childElementCount) return;
    if (text.includes("\n") || firstLine(text, 120) !== title) fill(this.wanted, h("details.wanted", h("summary.small", "What is wanted"), h("div.card.padded", markdown(text))));
  }

  #drawApprovals() {
    const open = this.isOver ? [] : this.pending;
    if (!this.#isNew("approvals", ...open.map((each) => `${each.approval_id} ${each.first_by}`))) return;
    fill(this.approvals, open.map((approval) => approvalCard(approval, this)));
    if (open.length) say(`${plural(open.length, "decision")} to make`);
  }

  #drawTabs() {
    const artifacts = new Set(this.run.artifacts.map((each) => each.phase_key)).size;
    const counts = { artifacts, events: this.events.length };
    if (!this.#isNew("tabs", this.#tabName, artifacts, counts.events)) return;
    const focused = this.tabs.contains(document.activeElement) && document.activeElement.dataset.tab;
    const link = (name) => h("a", { href: this.#tabUrl(name), dataset: { tab: name }, "aria-current": name === this.#tabName ? "page" : null }, titleOf(name), counts[name] > 0 && [" ", h("span.n", count(counts[name]))]);
    fill(this.tabs, Object.keys(TABS).map(link));
    if (focused) this.tabs.querySelector(`[data-tab="${focused}"]`)?.focus();
  }

  #tabUrl = (name) => this.url(name === "timeline" ? "" : `/${name}`);

  // Show the tab that the address names. False if the address is another run's.
  turnTo({ params, query }) {
    if (params.runId !== this.runId) return false;
    this.query = query;
    const name = Object.hasOwn(TABS, params.tab ?? "") ? params.tab : "timeline";
    if (name === this.#tabName) this.#tab?.query?.(query);
    else this.#open(name);
    this.#drawTabs();
    return true;
  }

  async #open(name) {
    this.#tab?.leave?.();
    this.#tab = null;
    this.#tabName = name;
    const module = await load(name);
    if (this.#tabName !== name || this.signal.aborted) return;
    this.panel.replaceChildren();
    if (module) this.#tab = module[name](this.panel, this);
    else this.panel.append(empty("This part could not be loaded", "The server did not answer. Nothing is lost.", button("Try again", () => location.reload())));
    // The other tabs, before they are wanted: a browser never asks again for a module it once failed to get.
    this.fetching ??= setTimeout(() => Object.keys(TABS).forEach(load), 300);
  }
}
