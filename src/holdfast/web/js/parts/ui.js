// The parts every page is made of: buttons, fields, dialogs, states, marks, times, tables, content that is kept.
import { newKey } from "../api.js";
import { ago, clock, exact, SHAPES, since, statusOf, toStatus } from "../format.js";
import { add, fill, h, redraw } from "../h.js";
import { setQuery } from "../router.js";

let ids = 0;
let saying = 0;

export function say(text) {
	const region = document.getElementById("say");
	clearTimeout(saying);
	region.textContent = "";
	// A region speaks when it changes: the same sentence twice needs the emptiness between.
	saying = setTimeout(() => (region.textContent = text), 60);
}

// Acts once at a time; the element is busy meanwhile.
export async function busy(element, act) {
	if (element.ariaBusy) return;
	element.ariaBusy = "true";
	try {
		await act();
	} finally {
		element.ariaBusy = null;
	}
}

// With `why` it stays focusable and says why it does nothing.
export function button(label, act, { kind, why, ...props } = {}) {
	const onclick = (event) => {
		if (why) event.preventDefault();
		return why ? say(why) : act && busy(element, () => act(event));
	};
	const element = h("button.button", { class: kind, type: "button", title: why, ...props, onclick }, label);
	if (!why) return element;
	element.ariaDisabled = "true";
	element.setAttribute("aria-describedby", `why-${++ids}`);
	return add(element, h("span.unseen", { id: `why-${ids}`, "aria-hidden": "true" }, why));
}

export function field(label, control, hint) {
	const id = `field-${++ids}`;
	control.id ||= id;
	control.classList.add("input");
	if (hint) control.setAttribute("aria-describedby", `${id}-hint`);
	return h("div.field", h("label", { for: control.id }, label), control, hint && h("div.small.soft", { id: `${id}-hint` }, hint));
}

// What someone types stays until it is sent, also over a login or a reload: `{ clear }`.
export const draftKey = (name) => `hf-draft-${name}`;
export function keepDraft(control, name) {
	const key = draftKey(name);
	control.dataset.draft = name;
	try {
		control.value = sessionStorage.getItem(key) ?? "";
		control.addEventListener("input", () => sessionStorage.setItem(key, control.value));
	} catch {
		// Storage may be forbidden or full.
	}
	return { clear: () => sessionStorage.removeItem(key) };
}

export function checked(label, control, { hint, before, after } = {}) {
	const trouble = h("div.trouble", { id: `trouble-${++ids}` });
	const element = add(field(label, control, hint), trouble, after);
	control.setAttribute("aria-describedby", `${control.getAttribute("aria-describedby") ?? ""} ${trouble.id}`.trim());
	if (before) control.before(before);
	const setError = (text) => {
		fill(trouble, text);
		control.ariaInvalid = text ? "true" : null;
	};
	return { element, control, setError };
}

export const options = (values, chosen) => values.map(([value, label = value]) => h("option", { value, selected: value === chosen }, label));

export const choice = (props, ...label) => h("label.choice", h("input", { type: "radio", ...props }), h("span", label));

// Resolves to what `act(form, key)` gave, or to null when closed. An error stays; the next try has the same key.
export function ask({ title, body, label, kind = "main", act, cancel = "Cancel" }) {
	const key = newKey();
	const trouble = h("div");
	const confirm = label && button(label, null, { kind, type: "submit" });
	let result = null;
	const submit = async () => {
		fill(trouble);
		try {
			result = (await act?.(new FormData(form), key)) ?? true;
			end();
		} catch (error) {
			fill(trouble, problemNote(error));
		}
	};
	const onsubmit = (event) => {
		event.preventDefault();
		busy(confirm ?? form, submit);
	};
	const buttons = h("div.buttons.end", button(cancel, () => end(), { kind: "plain" }), confirm);
	const form = h("form", { method: "dialog", onsubmit }, h("h2", { id: "dialog-title" }, title), body, trouble, buttons);
	const dialog = h("dialog.dialog", { "aria-labelledby": "dialog-title" }, form);
	let resolve;
	// At once, not with the event that follows it: a press on what opened the dialog would fall in between.
	const end = () => {
		dialog.close();
		dialog.remove();
		resolve(result);
	};
	dialog.onclose = end;
	dialog.oncancel = end;
	document.body.append(dialog);
	dialog.showModal();
	return new Promise((settle) => (resolve = settle));
}

export const loading = (what = "Loading…") => h("p.loading", { "aria-busy": "true" }, what);

export const empty = (title, text, ...actions) => h("div.state", h("h2", title), text && h("p", text), actions.length > 0 && h("div.buttons", actions));

// What may scroll sideways can be reached and scrolled with the keyboard.
export const scrollable = (tag, label, ...children) => h(`${tag}.scroll-x`, { tabindex: "0", role: "region", "aria-label": label }, children);

export const notFound = (what = "There is no such page.") => empty("Not found", what, h("a.button", { href: "/" }, "All runs"));

export const problemState = ({ isOffline, title, message, hint, requestId }, retry) =>
	h(
		"div.state",
		{ role: "alert" },
		h("h2", isOffline ? "The server does not answer" : title || "This could not be shown"),
		h("p", message),
		hint && h("p", hint),
		h("div.buttons", button("Try again", retry)),
		requestId && h("p.small", `Request ${requestId}`),
	);

export function problemNote({ message, hint, errors = [] }) {
	const details = errors.map((each) => h("li", each.where?.join("."), " ", each.message));
	return h("div.note.tone-bad", { role: "alert" }, h("strong", message), hint && h("div", hint), details.length > 0 && h("ul", details));
}

export const note = (tone, ...children) => h(`p.note.tone-${tone}`, children);

export const icon = (d, props) => h("svg:svg", { viewBox: "0 0 16 16", "aria-hidden": "true", ...props }, h("svg:path", { d, "fill-rule": "evenodd", fill: "currentColor" }));
export const shape = (name) => icon(SHAPES[name] ?? SHAPES.idle, { class: name === "busy" ? "turning" : null });

export const mark = (tone, word, { pill, shapeName = tone } = {}) => h(`span.mark.tone-${tone}${pill ? ".pill" : ""}`, shape(shapeName), word);

export function statusMark(state, pauseReason) {
	const { tone, word, shape: shapeName } = toStatus(state, pauseReason);
	return mark(tone, word, { shapeName });
}

export function runMark(run) {
	const { tone, word, shape: shapeName } = statusOf(run);
	return mark(tone, word, { shapeName });
}

const times = new Set();
setInterval(() => document.hidden || times.forEach((each) => each.draw()), 5000);

// <hf-time>: "6 min ago", kept true while it is shown.
class HfTime extends HTMLElement {
	connectedCallback() {
		times.add(this);
		this.draw();
	}
	disconnectedCallback() {
		times.delete(this);
	}
	draw() {
		const text = (this.getAttribute("as") === "since" ? since : ago)(this.getAttribute("datetime"), Date.now());
		if (this.textContent !== text) this.textContent = text;
	}
}
customElements.define("hf-time", HfTime);

// `{ as: "since" }` for "6 min"; `{ focusable: true }` where it stands alone.
export function time(datetime, { as = "ago", focusable } = {}) {
	if (!datetime) return "–";
	const title = exact(datetime);
	return h("hf-time.nowrap.num", { datetime, as, title, ...(focusable && { tabindex: "0", role: "note", "aria-label": title }) });
}

export const section = (title, ...children) => h("section.stack.tight", h("h2", title), children);

export const pageHead = (title, ...children) => h("div.page-head", h("h1", { tabindex: "-1" }, title), children);

export const facts = (...items) => h("div.facts.small", items.flat().map((item) => (typeof item === "string" && item ? h("span", item) : item)));

// `table(["Run", ">Cost"], [[cell, cell], …])`: ">" marks a column of numbers.
export function table(heads, rows) {
	const names = heads.map((name) => name.replace(">", ""));
	// The roles stay when the rows become blocks on a phone, each cell beside the name of its column.
	const row = (cells, tag, propsOf) => h("tr", { role: "row" }, cells.map((cell, index) => h(heads[index][0] === ">" ? `${tag}.num` : tag, propsOf(names[index]), cell)));
	const head = h("thead", { role: "rowgroup" }, row(names, "th", () => ({ scope: "col", role: "columnheader" })));
	const body = h("tbody", { role: "rowgroup" }, rows.map((cells) => row(cells, "td", (name) => ({ role: "cell", "data-label": name }))));
	return scrollable("div.card", `By ${names[0].toLowerCase()}`, h("table.table.stacks", { role: "table" }, head, body));
}

export const pairs = (items, tag = "dl.pairs") => h(tag, items.map(([name, value]) => h("div", h("dt", name, " "), h("dd.foreign", value))));

export const chip = (label, isPressed, onclick, ...more) => h("button.chip", { type: "button", "aria-pressed": String(isPressed), onclick }, label, more);
export const chips = (label, ...children) => h("div.chips", { role: "group", "aria-label": label }, children);

export const holds = (text, query) => (query ?? "").toLowerCase().split(/\s+/).every((word) => text.toLowerCase().includes(word));

// To where to go on, if what had the focus is gone; unless somebody went elsewhere meanwhile.
export function leadOn(next, options) {
	if (!next || document.activeElement !== document.body) return;
	if (next.tabIndex < 0) next.tabIndex = -1; // also a heading
	next.focus(options);
}

// Keeps the node that `find` returns in view while the page fills around it, until somebody scrolls, presses or types.
export function keepInView(find, signal) {
	const observer = new ResizeObserver(() => find()?.scrollIntoView({ block: "center" }));
	const stop = () => observer.disconnect();
	for (const kind of ["wheel", "touchmove", "pointerdown", "keydown"]) addEventListener(kind, stop, { once: true, passive: true, signal });
	signal.addEventListener("abort", stop, { once: true });
	observer.observe(document.body);
}

// Content that is loaded again without ever going away: old is better than empty, as long as it says so.
export function liveContent({ load, draw, signal }) {
	const trouble = h("div", { hidden: true });
	const content = h("div.stack", loading());
	let loadedAt = null;
	async function refresh() {
		content.ariaBusy = "true";
		try {
			const data = await load();
			if (signal.aborted) return;
			loadedAt = Date.now() / 1000;
			trouble.hidden = true;
			const isInside = content.contains(document.activeElement);
			redraw(content, draw(data));
			if (isInside) leadOn(document.querySelector("h1"), { preventScroll: true });
		} catch (error) {
			if (signal.aborted) return;
			if (loadedAt === null) return void fill(content, error.status === 404 ? notFound(error.message) : problemState(error, refresh));
			trouble.hidden = false;
			const message = h("p", h("strong", `What you see is from ${clock(loadedAt)}. `), error.message);
			fill(trouble, h("div.note.tone-waiting", { role: "status" }, message, button("Try again", refresh, { kind: "tiny" })));
		} finally {
			content.ariaBusy = null;
		}
	}
	return { element: h("div.stack", trouble, content), refresh };
}

// Draws what `make()` gives whenever the stamp is another one; what was there stays until then.
export function drawer(place, view) {
	let last = null;
	let isDrawn = false;
	return async function draw(stamp, make) {
		if (stamp === last) return;
		last = stamp;
		if (!isDrawn) fill(place, loading());
		try {
			const made = await make();
			if (stamp !== last) return;
			fill(place, made);
			isDrawn = true;
		} catch (error) {
			if (view.signal.aborted || stamp !== last) return;
			last = null;
			if (!isDrawn || !error.isOffline) fill(place, problemState(error, () => draw(stamp, make)));
		}
	};
}

export const searchBox = (label, props) => h("input.input.search", { type: "search", placeholder: label, "aria-label": label, ...props });

// A list with a search that lives in the URL as `q`; `draw(data, query)` gives what is found.
export function searchPage(main, { params, query, signal, setKeys }, { title, lead, load, draw }) {
	let known;
	const input = searchBox(`Search ${title.toLowerCase()}`, { value: query.get("q") ?? "", oninput: () => setQuery({ q: input.value.trim() }) });
	const list = h("div.stack");
	const drawList = () => fill(list, draw(known, query));
	const { element, refresh } = liveContent({ signal, load, draw: (data) => ((known = data), drawList()) });
	setKeys({ "/": ["Search", (event) => (event.preventDefault(), input.focus())] });
	add(main, pageHead(title, input), lead, element);
	const update = (next) => {
		if (JSON.stringify(next.params) !== JSON.stringify(params)) return false;
		query = next.query;
		if (input !== document.activeElement) input.value = query.get("q") ?? "";
		if (known) drawList();
		return true;
	};
	return { update, loaded: refresh() };
}
