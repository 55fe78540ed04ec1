// Ctrl or ⌘ with K: go anywhere and do anything by its name, with the keyboard alone.
import { getJson, pageUrl, withQuery } from "./api.js";
import { firstLine, statusOf } from "./format.js";
import { fill, h } from "./h.js";
import { holds } from "./parts/ui.js";
import { keys, navigate } from "./router.js";

const PLACES = { Runs: "/", "New run": "/new", "New conversation": "/talk", Inbox: "/inbox", Flows: "/flows", Workflows: "/workflows", Personas: "/personas", Schedules: "/schedules", Budget: "/budget", Settings: "/settings", Health: "/health", Workers: "/workers" };
const MOST = 30;
// What the page that is seen offers at its head, or to do next.
const OFFERED = "main .page-head :is(a.button, button, .menu-list a), main .next-steps :is(a, button)";

function listOffered() {
	const byName = new Map([...document.querySelectorAll(OFFERED)].filter((each) => each.ariaDisabled !== "true").map((each) => [each.firstChild?.textContent ?? "", each]));
	byName.delete("");
	return [...byName].map(([name, element]) => ({ name, kind: "here", run: () => element.click() }));
}

export function openPalette() {
	if (document.querySelector("dialog[open]")) return;
	let [found, runs, at, requestNumber] = [[], [], 0, 0];
	const offered = listOffered();
	const list = h("ul.palette-list", { role: "listbox", id: "palette-list", "aria-label": "Commands" });
	const props = { type: "text", role: "combobox", "aria-expanded": "true", "aria-controls": "palette-list", "aria-label": "Go to or do", placeholder: "A page, a command, the name of a run", autocomplete: "off" };
	const input = h("input.input", { ...props, oninput: () => (draw(), search()), onkeydown: onKey });
	const dialog = h("dialog.dialog.palette", { "aria-label": "Commands" }, input, list);

	const act = ({ run }) => {
		dialog.close();
		run();
	};
	function draw() {
		const places = Object.entries(PLACES).map(([name, url]) => ({ name, kind: "page", run: () => navigate(url) }));
		const commands = Object.entries({ ...keys.own, ...keys.common }).map(([key, [name, run]]) => ({ name, kind: key, run: () => run(new Event("palette")) }));
		found = [...offered, ...places, ...commands].filter(({ name }) => holds(name, input.value.trim())).concat(runs).slice(0, MOST);
		at = Math.min(at, Math.max(0, found.length - 1));
		const item = (each, index) =>
			h("li", { role: "option", id: `palette-${index}`, "aria-selected": String(index === at), onclick: () => act(each) }, h("span.clip.foreign", each.name), h("span.soft.small", each.kind));
		fill(list, found.length ? found.map(item) : h("li", { role: "option", "aria-disabled": "true", "aria-selected": "false" }, "Nothing of this name"));
		input.setAttribute("aria-activedescendant", `palette-${at}`);
		list.querySelector("[aria-selected=true]")?.scrollIntoView({ block: "nearest" });
	}

	async function search() {
		const [mine, text] = [++requestNumber, input.value.trim()];
		const page = text ? await getJson(withQuery("/api/runs", { text, limit: 6 })).catch(() => ({ items: [] })) : { items: [] };
		if (mine !== requestNumber) return;
		runs = page.items.map((run) => ({ name: firstLine(run.heading), kind: statusOf(run).word, run: () => navigate(pageUrl(run)) }));
		runs.sort((a, b) => holds(b.name, text) - holds(a.name, text)); // by their names before those that only say it somewhere
		draw();
	}

	function onKey(event) {
		const by = { ArrowDown: 1, ArrowUp: -1 }[event.key];
		if (by) {
			event.preventDefault();
			at = (at + by + found.length) % Math.max(1, found.length);
			draw();
		} else if (event.key === "Enter" && found[at]) {
			event.preventDefault();
			act(found[at]);
		}
	}

	const before = document.activeElement;
	dialog.onclose = () => {
		dialog.remove();
		before?.focus?.({ preventScroll: true });
	};
	document.body.append(dialog);
	dialog.showModal();
	draw();
	input.focus();
}
