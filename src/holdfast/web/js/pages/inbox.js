// What waits, the most dangerous first; decided in place, and the next one comes up.
import { getJson, pageUrl, runUrl } from "../api.js";
import { fill, h, reconcile } from "../h.js";
import { refreshWaiting, toYours, waiting } from "../live.js";
import { markSeen } from "../model/seen.js";
import { button, empty, leadOn, loading, mark, note, pageHead, problemNote, problemState, say, time } from "../parts/ui.js";
import { setQuery } from "../router.js";
import { actionBar, findingsLink } from "./run/actions.js";
import { approvalCard } from "./run/approval.js";

export const title = "Inbox";

const idOf = (item) => item.approval_id ?? item.run_id;

export function render(main, { query, signal, setKeys }) {
	const list = h("ul.side.inbox-list", { "aria-label": "What waits" });
	const place = h("div.inbox-place");
	const head = pageHead(title, h("div.buttons", noticeButton()));
	const view = h("div.split-view.inbox-view", list, place);
	const rows = new Map();
	let currentId = null; // the item on the right, by its id
	let isChosen = false; // somebody wants to see it: on a phone it stands below the list
	let isLed = false; // somebody has decided: what comes next gets the focus

	const items = () => [...toYours(waiting.items), ...waiting.items.filter((item) => !item.is_yours)];
	const choose = (item) => {
		isChosen = true;
		setQuery({ item: idOf(item) });
	};

	function draw() {
		const all = items();
		const chosen = all.find((item) => idOf(item) === query.get("item")) ?? all[0];
		list.hidden = !all.length;
		const made = all.map((item) => {
			const stamp = JSON.stringify([item, item === chosen]);
			const known = rows.get(idOf(item));
			if (known?.stamp === stamp) return known.element;
			const element = row(item, item === chosen, choose);
			rows.set(idOf(item), { stamp, element });
			return element;
		});
		const focused = list.contains(document.activeElement) && document.activeElement.dataset.item;
		reconcile(list, made);
		if (focused) list.querySelector(`[data-item="${CSS.escape(focused)}"]`)?.focus();
		if (!chosen) {
			currentId = null;
			return void fill(place, waiting.isKnown ? empty("Nothing waits for you", "Decisions, runs that stopped or failed, and answers come here.") : loading());
		}
		if (currentId !== idOf(chosen)) open(chosen);
	}

	async function open(item) {
		currentId = idOf(item);
		fill(place, loading()); // never a decision beside the name of another
		try {
			const detail = await getJson(`/api${runUrl(item.run_id)}`, signal);
			if (currentId !== idOf(item)) return;
			place.replaceChildren(drawItem(item, new ItemView(item, detail, { signal, refresh, place }))); // the focus does not go over to its buttons
		} catch (error) {
			if (signal.aborted || currentId !== idOf(item)) return;
			fill(place, problemState(error, () => open(item)));
		}
		if (isChosen && place.getBoundingClientRect().top > innerHeight / 2) place.scrollIntoView();
		isChosen = false;
		if (isLed) lead();
	}

	function lead() {
		isLed = false;
		const next = place.querySelector("h2") ?? head.querySelector("h1");
		next.tabIndex = -1;
		next.focus();
	}

	async function refresh() {
		isLed = true;
		await refreshWaiting();
		if (isLed && !toYours(waiting.items).length) lead();
	}

	function move(by) {
		const all = items();
		const at = all.findIndex((item) => idOf(item) === currentId);
		const next = all[Math.min(Math.max(at + by, 0), all.length - 1)];
		if (!next) return;
		const isInside = list.contains(document.activeElement);
		choose(next);
		if (isInside) list.querySelector("[aria-current]")?.focus();
	}

	main.append(head, view);
	setKeys({
		j: ["Next", () => move(1)],
		k: ["Previous", () => move(-1)],
		a: ["Go to the decision", () => place.querySelector("section button, textarea, a.button")?.focus()],
	});
	waiting.listeners.add(draw);
	draw();
	return {
		update(next) {
			query = next.query;
			draw();
			return true;
		},
		leave: () => waiting.listeners.delete(draw),
	};
}

// As much of a run's page as the card of a decision and the actions need.
class ItemView {
	isOver = false;

	constructor(item, run, { signal, refresh, place }) {
		Object.assign(this, { run, signal, refresh, place, item });
		this.isOver = ["completed", "failed", "cancelled"].includes(run.state);
	}

	api = (rest) => `/api${runUrl(this.run.run_id, rest)}`;
	leadOn() {
		leadOn(this.place.querySelector("h2") ?? document.querySelector("h1"));
	}
	notice(error) {
		this.place.prepend(problemNote(error));
		say(error.message);
	}
}

function row(item, isChosen, choose) {
	const props = { type: "button", dataset: { item: idOf(item) }, "aria-current": isChosen ? "true" : null, onclick: () => choose(item) };
	return h(
		"li",
		h(
			"button.side-item",
			props,
			h("span.inbox-head", mark(item.mark.tone, item.mark.text), h("span.small.soft.nowrap", "since ", time(item.requested_at, { as: "since" }))),
			h(`span.foreign.inbox-summary${item.summary.startsWith("$ ") ? ".mono" : ""}`, item.summary || item.question),
			h("span.small.soft.clip", h("span.foreign", item.heading), !item.is_yours && " · for somebody else"),
		),
	);
}

function drawItem(item, view) {
	const link = h("a", { href: pageUrl(item) }, "Open the run");
	const head = h("p.small", h("span.foreign", item.heading), " · ", link);
	const why = item.why_not && note("idle", item.why_not);
	const approval = view.run.approvals.find((each) => each.approval_id === item.approval_id);
	if (approval?.state === "pending") return h("div.stack.tight", head, why, approvalCard(approval, view));
	const look = () => {
		markSeen(item.run_id, item.until);
		return view.refresh();
	};
	const { error, telling } = view.run;
	const statusText = h("p", h("span.foreign", telling.text), error?.hint && !telling.text.includes(error.hint) && [" ", h("span.soft.foreign", error.hint)], " ", findingsLink(view));
	const card = h("section.card.padded.stack.tight", h("h2", mark(item.mark.tone, item.question)), statusText, h("div.buttons", item.kind !== "flow" && actionBar(view), item.until && button("Looked at", look)));
	return h("div.stack.tight", head, why, card);
}

// Offered once, where the browser has not been asked yet.
function noticeButton() {
	if (globalThis.Notification?.permission !== "default") return null;
	const made = button("Notify me of new ones", async () => {
		const answer = await Notification.requestPermission();
		say(answer === "granted" ? "You will be told of new ones." : "The browser does not allow it.");
		made.remove();
	});
	return made;
}
