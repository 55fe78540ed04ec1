import { getJson, runUrl, withQuery } from "../api.js";
import { fill, h } from "../h.js";
import { changesView, textDiff } from "../parts/diff-view.js";
import { empty, liveContent, loading, mark, pageHead, problemState, scrollable, section } from "../parts/ui.js";

export const title = "Compare";

// Two runs side by side: what each came to, what differs in artifacts and files, from the first to the second.
export async function render(main, { query, signal }) {
	const [first, second] = (query.get("runs") ?? "").split(",").filter(Boolean);
	main.append(pageHead("Compare two runs"));
	if (!second) {
		const how = "Choose two runs in the list (x marks one), then Compare; or “compare” at the head of a fork.";
		main.append(empty("Two runs are needed", how, h("a.button", { href: "/" }, "All runs")));
		return {};
	}
	const url = (rest, more) => withQuery(`/api${runUrl(first, `/comparison${rest}`)}`, { with: second, ...more });
	const changes = (more) => getJson(url("/changes", more), signal);
	const load = () => getJson(url(""), signal);
	const draw = (compared) => [sidesTable(compared), section("Artifacts", artifactList(compared.artifacts, changes)), section("Files", later(() => changes().then(changesView)))];
	const { element, refresh } = liveContent({ signal, load, draw });
	main.append(element);
	return { update: (next) => next.query.get("runs") === query.get("runs"), loaded: refresh() };
}

function sidesTable({ sides, rows, phases }) {
	const head = sides.map(({ run_id: id, heading, headline }) => h("th", { scope: "col" }, h("a.foreign", { href: runUrl(id) }, heading), h("div.plain", mark(headline.tone, h("span.foreign", headline.text)))));
	const row = ({ label, values, is_different: isDifferent }) =>
		h("tr", { class: isDifferent ? "different" : null }, h("th", { scope: "row" }, h("span.foreign", label), isDifferent && h("span.unseen", " (different)")), values.map((value) => h("td.foreign", value)));
	const part = (name) => h("tr", h("th.part-row", { colspan: "3", scope: "rowgroup" }, name));
	const body = [h("tbody", rows.map(row)), h("tbody", part("Phases"), phases.map(row))];
	return scrollable("div.card", "The two runs", h("table.table.compared", h("thead", h("tr", h("td"), head)), body));
}

function artifactList(artifacts, changes) {
	if (!artifacts.length) return h("p.soft", "Neither has handed anything in.");
	const entry = ({ phase, path, text, is_different: isDifferent }) => {
		const head = [h("strong.foreign", phase), " ", h("code.foreign", path), " ", isDifferent ? mark("waiting", text) : mark("good", text)];
		if (!isDifferent) return h("p.card.padded-small", head);
		const details = h("details.card", h("summary.padded-small", head));
		details.addEventListener("toggle", () => details.append(later(() => changes({ phase }).then(textDiff))), { once: true });
		return details;
	};
	return h("div.stack.tight", artifacts.map(entry));
}

// A place that is filled when what belongs there has come.
function later(make) {
	const place = h("div", loading());
	const draw = () => make().then((made) => fill(place, made), (error) => error.name !== "AbortError" && fill(place, problemState(error, draw)));
	draw();
	return place;
}
