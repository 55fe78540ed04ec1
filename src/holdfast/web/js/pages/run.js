import { ApiError, getJson, getText, OFFLINE, pageUrl, readLines, runUrl, withQuery } from "../api.js";
import { clock, count, duration, firstLine, money, plural, tookSeconds } from "../format.js";
import { fill, h } from "../h.js";
import { isTurn, listen, Throttle } from "../live.js";
import { markSeen } from "../model/seen.js";
import { markdown } from "../parts/text.js";
import { leadOn, loading, mark, notFound, note, problemNote, problemState, say, shape, time } from "../parts/ui.js";
import { navigate, reload } from "../router.js";
import { actionBar } from "./run/actions.js";

// The file of each tab. The one that is looked at is loaded at once; the others soon after, so that a server that goes
// away leaves every tab usable.
const TABS = { outcome: "outcome", timeline: "timeline", activity: "journal", artifacts: "results", changes: "results", cost: "cost", events: "journal" };
const FILES = new Set([...Object.values(TABS), "approval", "call-detail"]);
const loaded = {};

const load = async (file) => (loaded[file] ??= await import(`./run/${file}.js`));
(globalThis.requestIdleCallback ?? setTimeout)(() => FILES.forEach((file) => load(file).catch(() => {})));

const titleOf = (name) => name[0].toUpperCase() + name.slice(1);

export const title = "Run";

export async function render(main, context) {
	const view = new RunView(main, context);
	if (Object.hasOwn(TABS, context.params.tab ?? "")) load(TABS[context.params.tab]).catch(() => {}); // beside the run's own data
	if (!(await view.load())) return {};
	view.start();
	return { update: (next) => view.turnTo(next), leave: () => view.leave() };
}

const lost = () => problemState(new ApiError(OFFLINE), reload);

class RunView {
	events = [];
	activity = null; // made by the first tab that shows it
	#tab;
	#tabName;
	#home;
	#frame;
	#drawnAt = 0;
	#refreshing = new Throttle(() => this.refresh());
	#ahead = null; // what came while the history was read
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

	url = (rest) => runUrl(this.runId, rest);
	api = (rest) => `/api${this.url(rest)}`;
	get = (rest) => getJson(this.api(rest), this.signal);
	text = (rest) => getText(this.api(rest), this.signal);

	event(seq) {
		let [low, high] = [0, this.events.length - 1];
		while (low < high) {
			const middle = (low + high) >> 1;
			if (this.events[middle].seq < seq) low = middle + 1;
			else high = middle;
		}
		return this.events[low]?.seq === seq ? this.events[low] : undefined;
	}

	async load() {
		fill(this.main, loading("Loading the run…"));
		try {
			this.run = await this.get();
			this.loadedSeq = this.run.seq; // what is older had happened before one came
		} catch (error) {
			if (error.status !== 404) throw error;
			fill(this.main, h("h1.unseen", { tabindex: "-1" }, "Not found"), notFound("There is no run of this id. It may be in another database."));
			return false;
		}
		if (this.run.kind === "flow") {
			navigate(pageUrl(this.run), { replace: true });
			return false;
		}
		this.#build();
		return true;
	}

	start() {
		this.turnTo(this);
		const { run_id: runId } = this.run;
		const onEvents = (events) => this.#hear(events.filter((event) => event.run_id === runId));
		listen({ runId, signal: this.signal, onEvents, onJoined: () => this.#catchUp() });
		this.#catchUp();
		this.ticking = setInterval(() => !document.hidden && this.#drawHead(), 1000);
		const tabKey = (name, index) => [index + 1, [titleOf(name), () => navigate(this.#tabUrl(name), { replace: true })]];
		this.setKeys({
			...Object.fromEntries(Object.keys(TABS).filter((name) => name !== "outcome").map(tabKey)),
			o: ["Outcome", () => navigate(this.#tabUrl("outcome"), { replace: true })],
			f: ["Follow what is new", () => this.#tab?.follow?.()],
			a: ["Go to the decision", () => this.approvals.querySelector("section button, textarea")?.focus()],
		});
	}

	leave() {
		clearInterval(this.ticking);
		this.#refreshing.stop();
		this.#tab?.leave?.();
	}

	async refresh() {
		try {
			this.run = await this.get();
			this.#draw();
		} catch (error) {
			if (!this.signal.aborted && !error.isOffline) this.notice(error);
		}
	}

	// To what is next: another decision, what one says next, else the head of the run.
	leadOn() {
		leadOn(this.approvals.querySelector("h2") ?? this.panel.querySelector(".composer:not([hidden]) textarea") ?? this.title);
	}

	// An answer that came too late, a refusal: it stays until the next one.
	notice(error) {
		fill(this.notices, problemNote(error));
		say(error.message);
	}

	tell(text, more) {
		fill(this.notices, note("good", text, more));
		say(text);
	}

	get #last() {
		return this.events.at(-1)?.seq ?? 0;
	}

	// Reads what is not known yet; what the stream tells meanwhile waits, so that nothing is read twice.
	async #catchUp() {
		if (this.#ahead) return;
		this.#ahead = [];
		try {
			await readLines(this.api(withQuery("/history", { after: this.#last })), this.signal, (events) => this.#take(events));
		} catch (error) {
			// Without a connection the stream joins again, and this with it.
			if (!this.signal.aborted && !error.isOffline && error.status) this.notice(error);
		}
		const ahead = this.#ahead;
		this.#ahead = null;
		this.#hear(ahead);
	}

	#hear(events) {
		if (this.#ahead) return void this.#ahead.push(...events);
		const fresh = events.filter((event) => event.seq > this.#last);
		// A number is missing, or its content: the journal has it.
		if (fresh.some((event, index) => event.seq !== this.#last + 1 + index || !event.payload)) this.#catchUp();
		else if (fresh.length) this.#take(fresh);
	}

	#take(events) {
		for (const event of events) {
			if (event.seq <= this.#last) continue;
			this.events.push(event);
			this.activity?.add(event);
			if (event.seq <= this.run.seq || event.kind.startsWith("text.")) continue;
			// What can be decided or was done is read at once; which call is under way may be some seconds old.
			if (isTurn(event)) this.#refreshing.call(150, 1000);
			else this.#refreshing.call(400, 5000);
		}
		// Many events, few drawings: a long journal comes in hundreds of pieces. The first after a rest shows at once.
		const rest = this.#drawnAt + (this.events.length > 2000 ? 400 : 80) - performance.now();
		this.#frame ||= setTimeout(() => {
			this.#frame = 0;
			this.#drawnAt = performance.now();
			if (this.signal.aborted) return;
			this.#drawTabs();
			this.#tab?.update?.();
		}, Math.max(0, rest));
	}

	#build() {
		const parts = { title: "h1.foreign", buttons: "div.run-actions", status: "p", facts: "div.facts.small", requirements: "div", notices: "div" };
		for (const [name, tag] of Object.entries({ ...parts, approvals: "div.stack", tabs: "nav.tabs", panel: "div.panel" })) this[name] = h(tag);
		this.title.tabIndex = -1;
		this.tabs.ariaLabel = "Parts of this run";
		const where = { "aria-label": "Where you are" };
		const crumbs = h("nav.crumbs.small", where, h("a", { href: "/" }, "Runs"), " › ", h("span.soft.mono", this.run.run_id.slice(0, 8)));
		const head = h("div.run-head", crumbs, h("div.page-head", this.title, this.buttons), this.status, this.facts, this.requirements);
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
		if (run.state === "failed" && this.#isNew("seen", run.ended_at)) markSeen(run.run_id, run.ended_at ?? "failed");
		if (this.#isNew("title", run.heading)) fill(this.title, run.heading);
		this.setTitle(run.heading);
		const isInMenu = this.buttons.contains(document.activeElement) && this.buttons.querySelector(".menu[open]");
		if (!isInMenu && this.#isNew("actions", run.state, run.pause_reason, this.pending.length)) this.#drawActions();
		this.#drawRequirements();
		this.#drawApprovals();
		this.#drawHead();
		this.#drawTabs();
		this.#tab?.update?.(true);
		if (this.#home !== "outcome" || this.isOver) return;
		this.#home = "timeline"; // it was retried
		this.turnTo(this);
	}

	#drawActions() {
		const isInside = this.buttons.contains(document.activeElement);
		fill(this.buttons, actionBar(this));
		if (isInside) leadOn(this.title, { preventScroll: true });
	}

	#drawHead() {
		const { tone, text, since, call_since: call } = this.run.telling;
		const age = call && Date.now() / 1000 - call;
		const statusText = age > 5 ? text.replace(/\.$/, ` for ${duration(age)}.`) : text;
		if (this.#isNew("head", tone, statusText, since)) {
			const isFirst = !this.status.childElementCount;
			if (this.#isNew("said", text.split(":")[0]) && !isFirst) say(text);
			fill(this.status, mark(tone), h("span", h("span.foreign", statusText), since && h("span.soft", " ", time(since, { focusable: true }))));
			this.status.className = `run-status tone-${tone}`;
		}
		this.#drawFacts();
	}

	#drawFacts() {
		const { run } = this;
		const { workflow, workflow_version: version, started_by: by, forked_from: origin, repo_path: repo } = run;
		const took = duration(tookSeconds(run, Date.now()));
		const spent = run.cost + (run.budget_usd ? ` of ${money(run.budget_usd)}` : "");
		if (!this.#isNew("facts", run.started_at, took, spent, this.isOver, run.merged)) return;
		fill(
			this.facts,
			h("a.foreign", { href: `/workflows/${encodeURIComponent(workflow)}` }, workflow, version && ` v${version}`),
			run.is_simulated && h("span.tag", "rehearsal with the simulated model"),
			h("span", `started ${clock(run.started_at ?? run.created_at)}`, by && [" by ", h("span.foreign", by)]),
			h("span.num", this.isOver ? `took ${took}` : `${took} so far`),
			h("span.num", `cost ${spent}`),
			run.merged && h("span.mark.tone-good", shape("good"), run.merged),
			origin && h("span", "forked from ", h("a.mono", { href: runUrl(origin) }, origin.slice(0, 8)), " (", h("a", { href: `/compare?runs=${origin},${run.run_id}` }, "compare"), ")"),
			h("span.foreign.clip", { title: repo }, `${repo.split("/").at(-1)} @ ${run.base_branch}`),
		);
	}

	#drawRequirements() {
		const images = (this.run.images ?? []).map((name) => `- ${name}`).join("\n");
		const text = [this.run.requirements_md?.trim(), images].filter(Boolean).join("\n\n");
		if (!text || this.requirements.childElementCount) return;
		if (!text.includes("\n") && firstLine(text, 120) === this.run.heading) return;
		fill(this.requirements, h("details.wanted", h("summary.small", "What is wanted"), h("div.card.padded", markdown(text))));
	}

	#drawApprovals() {
		const open = this.isOver ? [] : this.pending;
		if (!this.#isNew("approvals", ...open.map((each) => `${each.approval_id} ${each.first_by}`))) return;
		if (!open.length) return void fill(this.approvals);
		say(`${plural(open.length, "decision")} to make`);
		if (loaded.approval) return void this.#drawCards(open);
		fill(this.approvals, loading());
		load("approval").then(() => this.#drawCards(this.isOver ? [] : this.pending), () => fill(this.approvals, lost()));
	}

	#drawCards(open) {
		// The focus does not stay: the button of the same name decides something else.
		this.approvals.replaceChildren(...open.map((approval) => loaded.approval.approvalCard(approval, this)));
	}

	#drawTabs() {
		const counts = { artifacts: new Set(this.run.artifacts.map((each) => each.phase_key)).size, events: this.events.length };
		// A number that grows with every event is changed in place, as long as it is as wide: to draw the tabs anew costs more.
		if (!this.#isNew("tabs", this.#tabName, counts.artifacts, count(counts.events || "").length, this.isOver)) {
			const number = this.tabs.querySelector("[data-tab=events] .n");
			const text = count(counts.events);
			if (number && number.textContent !== text) number.textContent = text;
			return;
		}
		const focused = this.tabs.contains(document.activeElement) && document.activeElement.dataset.tab;
		const link = (name) => {
			const props = { href: this.#tabUrl(name), dataset: { tab: name }, "aria-current": name === this.#tabName ? "page" : null };
			return h("a", props, titleOf(name), counts[name] > 0 && [" ", h("span.n", count(counts[name]))]);
		};
		const left = this.tabs.scrollLeft;
		fill(this.tabs, Object.keys(TABS).filter((name) => name !== "outcome" || this.isOver || this.#tabName === name).map(link));
		const chosen = this.tabs.querySelector("[aria-current]");
		const isElsewhere = chosen && this.#isNew("tab", this.#tabName, chosen.offsetWidth);
		this.tabs.scrollLeft = isElsewhere ? chosen.offsetLeft - this.tabs.offsetLeft - (this.tabs.clientWidth - chosen.offsetWidth) / 2 : left;
		if (focused) this.tabs.querySelector(`[data-tab="${focused}"]`)?.focus();
	}

	#tabUrl = (name) => this.url(`/${name}`);

	turnTo({ params, query }) {
		if (params.runId !== this.runId) return false;
		Object.assign(this, { params, query });
		// A run that is over opens on what it came to; whoever watches one to its end stays where they are.
		this.#home ??= this.isOver ? "outcome" : this.run.workflow === "conversation" ? "activity" : "timeline";
		const isRow = ["row", "open"].some((each) => query.has(each));
		const name = Object.hasOwn(TABS, params.tab ?? "") ? params.tab : isRow ? "timeline" : this.#home;
		if (name === this.#tabName) this.#tab?.query?.(query);
		else this.#open(name);
		this.#drawTabs();
		return true;
	}

	#open(name) {
		this.#tab?.leave?.();
		this.#tab = null;
		this.#tabName = name;
		const file = TABS[name];
		fill(this.panel, !loaded[file] && loading());
		if (loaded[file]) this.#tab = loaded[file][name](this.panel, this);
		else load(file).then(() => this.#tabName === name && !this.#tab && !this.signal.aborted && this.#open(name), () => this.#tabName === name && fill(this.panel, lost()));
	}
}
