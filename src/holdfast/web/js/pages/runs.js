import { ApiError, can, getJson, pageUrl, runUrl, send, whyNot, withQuery } from "../api.js";
import { count, duration, firstLine, money, plural, tookSeconds, toStatus } from "../format.js";
import { fill, h, redraw, refill } from "../h.js";
import { isTurn, listen, Throttle, toYours, waiting } from "../live.js";
import { RunList, stampOf } from "../model/run-list.js";
import { dotPlot, isBrushed } from "../parts/dot-plot.js";
import { activeFilters, FILTERS, moreFilters, valuesOf } from "../parts/run-filters.js";
import { ask, button, chip, chips, empty, leadOn, loading, options, pageHead, problemNote, problemState, runMark, say, searchBox, shape, time } from "../parts/ui.js";
import { WindowedRows } from "../parts/windowed.js";
import { navigate, setQuery } from "../router.js";

const LOOK_EVERY_MS = 60_000; // a flow that begins to wait writes nothing that the stream of all runs tells
const PAGE = 100;
const STATES = ["running", "paused", "failed", "pending", "completed", "cancelled"];
// Heads that order the list: what the first press gives, and the second.
const HEADS = [["Run"], ["Status"], ["Now", ".c-now"], ["Workflow", ".c-workflow"], ["Started", ".num.c-started", "", "oldest"], ["Took", ".num", "longest", "shortest"], ["Cost", ".num", "costliest", "cheapest"]];
const startOf = (run) => run.started_at ?? run.created_at;

export const title = "Runs";

export function render(main, context) {
	const view = new RunsView(main, context);
	view.load(); // not waited for: filters can be filled in, and the page left, before the first answer
	return { update: (next) => view.filter(next.query), leave: () => view.leave() };
}

function inbox(items) {
	if (!items.length) return null;
	const rest = items.slice(5).map(entry);
	const head = [h("span.mark.tone-waiting", shape("waiting")), "Waiting for you", " ", h("span.soft", items.length)];
	return h(
		"section.inbox.card",
		{ "aria-labelledby": "inbox-title" },
		h("h2", { id: "inbox-title" }, head),
		h("ul", items.slice(0, 5).map(entry)),
		rest.length > 0 && h("details", h("summary.soft", `${plural(rest.length, "more", "more")}; the inbox has all`), h("ul", rest)),
	);
}

function entry(item) {
	const href = pageUrl(item);
	return h(
		"li",
		h("div.inbox-what", h("a.foreign", { href }, item.question), h("div.small.foreign.clip", item.summary), h("div.soft.small.foreign.clip", item.heading)),
		h("span.soft.small.nowrap", "since ", time(item.requested_at, { as: "since" })),
		h("a.button", { href }, item.is_decision ? "Read and decide" : "Look at it"),
	);
}

class RunsView {
	#list = new RunList();
	#overview = { counts: {}, workflows: [] };
	#changed = new Set();
	#isStale = false; // the counts above the list
	#refreshing = new Throttle(() => this.#refresh());
	#selected = null; // the id of a run: rows may come above it
	#picked = new Set(); // ids of runs to act on together
	#isLoadingMore = false;
	#timer;

	constructor(main, { query, signal, setKeys }) {
		Object.assign(this, { query, signal });
		for (const name of ["inbox", "trouble", "after"]) this[name] = h("div");
		for (const name of ["plot", "fresh", "bulk"]) this[name] = h(`div.${name}`);
		this.active = chips("Filters that hold");
		this.chips = chips("Filter by state");
		const hint = { placeholder: "Search titles, texts and ids" };
		this.search = searchBox("Search runs", { ...hint, name: "text", value: query.get("text") ?? "", oninput: () => this.#searchLater() });
		this.workflow = h("select.input", { hidden: true, "aria-label": "Workflow", onchange: () => setQuery({ workflow: this.workflow.value }) });
		this.more = moreFilters(query);
		this.all = h("input.picker", { type: "checkbox", "aria-label": "Choose all runs of the list", onchange: () => this.#pickAll(this.all.checked) });
		// The roles stay when the rows become blocks on a phone.
		this.body = h("tbody", { role: "rowgroup" });
		this.heads = h("tr", { role: "row" });
		this.table = h("table.table.runs", { hidden: true, role: "table" }, h("thead", { role: "rowgroup" }, this.heads), this.body);
		fill(this.after, loading("Loading the runs…"));
		this.rows = new WindowedRows(this.body, {
			signal,
			keyOf: (index) => this.#list.items[index].run_id,
			stampOf: (index) => `${stampOf(this.#list.items[index])} ${this.#list.items[index].run_id === this.#selected} ${this.#picked.has(this.#list.items[index].run_id)}`,
			draw: (index) => this.#row(index),
			onEnd: () => this.#loadMore(),
		});
		main.append(
			pageHead(title),
			this.inbox,
			h("div.filters", this.chips, h("div.filter-fields", this.workflow, this.search), this.more, this.active),
			h("div.card", this.plot, this.trouble, this.bulk, this.fresh, this.table, this.after),
		);
		setKeys({
			"/": ["Search", () => this.search.focus()],
			j: ["Next run", () => this.#move(1)],
			k: ["Previous run", () => this.#move(-1)],
			Enter: ["Open the run", () => this.#selected && navigate(pageUrl(this.#list.get(this.#selected)))],
			x: ["Choose the run, to act on several", () => this.#selected && (this.#pick(this.#selected), this.#move(0))],
			".": ["Show new runs", () => this.#admit()],
		});
		waiting.listeners.add(this.#drawInbox);
		this.#drawInbox();
		listen({ signal, onEvents: (events) => this.#hear(events), onJoined: () => this.#hear(null) });
		this.ticking = setInterval(() => this.#tick(), 1000);
		this.looking = setInterval(() => document.hidden || this.#hear(null), LOOK_EVERY_MS);
		addEventListener("resize", () => this.#drawPlot(), { signal });
	}

	leave() {
		waiting.listeners.delete(this.#drawInbox);
		clearInterval(this.ticking);
		clearInterval(this.looking);
		clearTimeout(this.#timer);
		this.#refreshing.stop();
	}

	#fetch(cursor) {
		const filters = Object.fromEntries(FILTERS.map((name) => [name, this.query.get(name)]));
		return getJson(withQuery("/api/runs", { limit: PAGE, ...filters, cursor }), this.signal);
	}

	async #fetchFirst() {
		const [page, overview] = await Promise.all([this.#fetch(), getJson("/api/overview", this.signal)]);
		this.#overview = overview;
		return page;
	}

	async load() {
		const query = this.query;
		try {
			const page = await this.#fetchFirst();
			if (query !== this.query) return; // an answer to other filters; theirs is on its way
			this.#list.reset(page);
			fill(this.trouble);
		} catch (error) {
			if (this.signal.aborted || query !== this.query) return;
			// What was there stays; without anything the whole place says what is wrong.
			if (this.#list.items.length) fill(this.trouble, problemNote(error));
			else fill(this.after, problemState(error, () => this.load()));
			return;
		}
		this.#show();
	}

	filter(query) {
		this.query = query;
		if (document.activeElement !== this.search) this.search.value = query.get("text") ?? "";
		this.#selected = null;
		this.#picked.clear(); // what is not seen any more is not acted on
		const isOpen = this.more.open;
		const fresh = moreFilters(query);
		// Whoever has just typed there is on the way to the next field: only what came from elsewhere is drawn.
		if (valuesOf(fresh) !== valuesOf(this.more)) this.more.replaceWith(fresh), (this.more = fresh);
		this.more.open ||= isOpen;
		this.load();
		return true;
	}

	async #loadMore() {
		if (this.#isLoadingMore || !this.#list.cursor) return;
		this.#isLoadingMore = true;
		const query = this.query;
		try {
			const page = await this.#fetch(this.#list.cursor);
			if (query !== this.query) return;
			this.#list.append(page);
			this.#drawRows();
		} catch (error) {
			if (!this.signal.aborted && query === this.query) fill(this.after, problemNote(error));
		} finally {
			this.#isLoadingMore = false;
		}
	}

	#searchLater() {
		clearTimeout(this.#timer);
		this.#timer = setTimeout(() => setQuery({ text: this.search.value.trim() }), 250);
	}

	// How far a run is shows soon; what it has cost meanwhile may be some seconds old.
	#hear(events) {
		for (const { run_id: id } of events ?? []) this.#changed.add(id);
		const isSoon = !events || events.some(isTurn);
		this.#isStale ||= isSoon;
		this.#refreshing.call(300, isSoon ? 4000 : 10_000);
	}

	async #refresh() {
		const query = this.query;
		try {
			const isStale = this.#isStale;
			this.#isStale = false;
			const page = await (isStale ? this.#fetchFirst() : this.#fetch());
			if (query !== this.query) return;
			// Only of the newest is it known that what is new comes first; another order is read anew where nobody is.
			const isTop = scrollY < 40 && !this.body.contains(document.activeElement);
			if (!this.#order) this.#list.refresh(page);
			else if (isTop) this.#list.reset(page);
			else for (const run of page.items) this.#list.replace(run);
			for (const run of page.items) this.#changed.delete(run.run_id);
			const others = [...this.#changed].filter((id) => this.#list.has(id)).slice(0, 3);
			for (const id of others) {
				this.#changed.delete(id);
				this.#list.replace(await getJson(`/api${runUrl(id)}`, this.signal));
			}
			if (isTop) this.#list.admit();
			this.#show();
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

	get #order() {
		return this.query.get("order") ?? "";
	}

	// Drawn anew only when the order is another one: whoever pressed one stays there.
	#drawHeads() {
		if (this.heads.dataset.order === this.#order) return;
		this.heads.dataset.order = this.#order;
		const at = [...this.heads.children].findIndex((each) => each.contains(document.activeElement));
		fill(this.heads, HEADS.map(([name, look = "", first, second]) => {
			const isDown = first === this.#order;
			const sort = isDown ? "descending" : second === this.#order ? "ascending" : null;
			const content = second ? h("button.sort", { type: "button", onclick: () => setQuery({ order: isDown ? second : first }) }, name, sort && (isDown ? " ↓" : " ↑")) : name === "Run" && can("operator") ? [this.all, name] : name;
			return h(`th${look}`, { scope: "col", role: "columnheader", "aria-sort": sort }, content);
		}));
		this.heads.children[at]?.querySelector("button")?.focus();
	}

	#show() {
		this.#drawHeads();
		this.#drawFilters();
		this.#drawPlot();
		this.#drawRows();
	}

	#drawAfter() {
		fill(this.after, this.#list.items.length ? this.#list.cursor && loading("More below…") : this.#nothing());
	}

	#drawInbox = () => redraw(this.inbox, inbox(toYours(waiting.items)));

	#drawFilters() {
		const { counts, workflows } = this.#overview;
		const chosen = this.query.get("state") ?? "";
		const total = Object.values(counts).reduce((sum, n) => sum + n, 0);
		const stateChip = (state) => {
			const { tone, shape: shapeName, word } = toStatus(state);
			const number = h("span.n", count(state ? counts[state] ?? 0 : total));
			const made = chip(state ? [shape(shapeName), word] : "All", chosen === state, () => setQuery({ state: chosen === state ? "" : state }), " ", number);
			if (state) made.classList.add(`tone-${tone}`);
			made.dataset.state = state;
			return made;
		};
		refill(this.chips, (each) => each.dataset.state, ["", ...STATES.filter((state) => counts[state] || chosen === state)].map(stateChip));
		fill(this.active, activeFilters(this.query));
		this.active.hidden = !this.active.childElementCount;
		const workflow = this.query.get("workflow") ?? "";
		const names = [...new Set([...workflows, workflow])].filter(Boolean);
		fill(this.workflow, options([["", "All workflows"], ...names.map((name) => [name])], workflow));
		this.workflow.hidden = workflows.length < 2 && !workflow;
	}

	#drawPlot() {
		const runs = this.#list.items.slice(0, 200);
		this.plot.hidden = runs.length < 3;
		if (this.plot.hidden || isBrushed(this.plot)) return;
		const made = dotPlot(runs, this.plot.clientWidth || 600, (since, until) => setQuery({ since, until }));
		refill(this.plot, (dot) => dot.getAttribute("href"), made);
	}

	#drawRows() {
		const { items, cursor, fresh } = this.#list;
		this.table.hidden = !items.length;
		this.table.setAttribute("aria-rowcount", cursor ? -1 : items.length + 1);
		this.rows.update(items.length);
		this.#drawBulk();
		this.#drawAfter();
		refill(this.fresh, () => "fresh", fresh.length > 0 && button(`Show ${plural(fresh.length, "new run")}`, () => (this.#admit(), leadOn(this.body.querySelector("a"))), { kind: "tiny" }));
	}

	#nothing() {
		if (FILTERS.some((name) => this.query.get(name))) {
			const clear = () => {
				this.search.value = "";
				setQuery(Object.fromEntries(FILTERS.map((name) => [name, ""])));
			};
			return empty("No run fits these filters", "There are runs, but none like this.", button("Clear the filters", clear));
		}
		const why = whyNot("operator");
		const first = why ? h("p", why) : h("a.button.main", { href: "/new" }, "Start the first run");
		const what = "A run works on a repository, phase by phase, and asks you where it matters.";
		return empty("No runs yet", `${what} It can be rehearsed with a simulated model: no key, no cost.`, first);
	}

	#row(index) {
		const run = this.#list.items[index];
		const isOpen = ["running", "paused", "pending"].includes(run.state);
		const cell = (look, content, props) => h(`td.c-${look}`, { role: "cell", ...props }, content);
		return h(
			"tr",
			{ role: "row", class: run.run_id === this.#selected ? "selected" : null },
			cell("title", h("div.clip", this.#picker(run), h("a.row-link.foreign", { href: pageUrl(run) }, run.heading), run.is_simulated && [" ", h("span.tag.narrow-only", "rehearsal")])),
			cell("status", runMark(run)),
			cell("now.soft", h(`div.clip.foreign${run.state === "failed" ? ".bad-text" : ""}`, firstLine(run.now))),
			cell("workflow.soft", h("div.clip.foreign", run.kind === "flow" ? "a flow" : run.workflow, run.is_simulated && " · rehearsal")),
			cell("started.soft.num", time(startOf(run))),
			cell("took.num", duration(tookSeconds(run, Date.now())), { dataset: isOpen ? { since: startOf(run) } : {} }),
			cell("cost.num", run.kind === "flow" ? "" : money(run.cost_usd), { title: run.cost }),
		);
	}

	#picker({ run_id: id, heading }) {
		return can("operator") && h("input.picker", { type: "checkbox", checked: this.#picked.has(id), "aria-label": `Choose ${heading}`, onchange: () => this.#pick(id) });
	}

	#pick(id) {
		if (!this.#picked.delete(id)) this.#picked.add(id);
		this.#drawRows();
	}

	// All that are loaded, or none.
	#pickAll(isAll) {
		this.#picked = new Set(isAll ? this.#list.items.map((run) => run.run_id) : []);
		this.#drawRows();
	}

	#drawBulk() {
		const runs = this.#list.items.filter((run) => this.#picked.has(run.run_id));
		const able = { abort: runs.filter((run) => !["completed", "failed", "cancelled"].includes(run.state)), retry: runs.filter((run) => run.state === "failed" && !run.parent_run_id) };
		const act = (verb, label) => {
			const why = able[verb].length ? null : verb === "retry" ? "None of them is a failed run that no other run has started." : "All of them are over.";
			return button(`${label} ${able[verb].length || ""}…`, () => this.#actOnAll(verb, label, able[verb]), { kind: "tiny", why });
		};
		const compare = runs.length === 2 && runs.every(({ kind }) => kind !== "flow") && h("a.button.tiny", { href: `/compare?runs=${runs.map(({ run_id: id }) => id).reverse()}` }, "Compare");
		const clear = () => (this.#pickAll(false), this.body.querySelector(".picker").focus());
		this.all.checked = runs.length > 0 && runs.length === this.#list.items.length;
		this.all.indeterminate = runs.length > 0 && !this.all.checked;
		fill(this.bulk, runs.length > 0 && h("div.buttons", h("span", `${plural(runs.length, "run")} chosen`), act("abort", "Abort"), act("retry", "Retry"), compare, button("Choose none", clear, { kind: "tiny plain" })));
	}

	#actOnAll(verb, label, runs) {
		const body = h("ul.findings", runs.map((run) => h("li.foreign", firstLine(run.heading))));
		return ask({
			title: `${label} ${plural(runs.length, "run")}?`,
			body,
			label: `${label} ${plural(runs.length, "run")}`,
			kind: verb === "abort" ? "bad main" : "main",
			act: async (_form, key) => {
				// One after the other, each with a key of its own: trying again does nothing twice, and one that is refused stops no other.
				const errors = [];
				for (const run of runs.filter(({ run_id: id }) => this.#picked.has(id))) {
					try {
						await send("POST", `/api${runUrl(run.run_id)}/${verb}`, {}, { key: `${key}-${run.run_id}` });
						this.#picked.delete(run.run_id);
					} catch (error) {
						errors.push({ where: [`${firstLine(run.heading, 60)}:`], message: error.message });
					}
				}
				this.#drawRows();
				this.#hear(null);
				if (errors.length) throw new ApiError({ detail: `${label} was refused for ${errors.length} of ${plural(runs.length, "run")}; it is done for the others.`, errors });
				say(`${label}: done for ${plural(runs.length, "run")}`);
			},
		});
	}

	#tick() {
		if (document.hidden) return;
		for (const cell of this.body.querySelectorAll("[data-since]")) cell.textContent = duration(tookSeconds({ started_at: cell.dataset.since }, Date.now()));
	}

	#move(by) {
		const { length } = this.#list.items;
		if (!length) return;
		const focused = document.activeElement.getAttribute("href");
		const at = this.#list.items.findIndex((run) => (this.#selected ? run.run_id === this.#selected : pageUrl(run) === focused));
		const index = Math.min(Math.max(at + by, 0), length - 1);
		this.#selected = this.#list.items[index].run_id;
		this.rows.update(length);
		this.rows.show(index)?.querySelector("a")?.focus({ preventScroll: true });
	}
}
