import { can, getJson, loadSession, session, whyNot } from "../api.js";
import { count, toStatus } from "../format.js";
import { fill, h } from "../h.js";
import { button, liveContent, mark, pageHead, pairs, section, statusMark, time } from "../parts/ui.js";

const STATES = { bad: ["bad", "does not work"], warning: ["waiting", "could be better"], good: ["good", "good"] };

export const title = "Health";

export async function render(main, { signal }) {
	const again = h("div");
	main.append(pageHead(title, again));
	if (!session.isKnown) await loadSession();
	const isOperator = can("operator");
	const { element, refresh } = liveContent({ signal, load: () => getJson(isOperator ? "/api/checks" : "/api/health", signal), draw: isOperator ? draw : drawLittle });
	fill(again, button("Check again", refresh));
	main.append(element);
	refresh();
	const timer = setInterval(() => document.hidden || refresh(), 30_000);
	return { leave: () => clearInterval(timer) };
}

const drawVerdict = (tone, text) => h("p.verdict", mark(tone, text));

const drawLittle = ({ version }) => [
	drawVerdict("good", "The server works."),
	h("p.soft", `holdfast ${version}. The checks in detail: ${whyNot("operator")}`),
];

function draw({ checks, server, verdict, checked_at: at }) {
	const isModel = ({ name }) => name.startsWith("model: ");
	const card = (...children) => h("div.card.padded", children);
	return [
		drawVerdict(verdict.tone, verdict.text),
		h("p.soft.small", "Checked ", time(at)),
		h(
			"div.sides",
			h("div.stack", section("Machine", list(checks.filter((check) => !isModel(check)))), section("Models", list(checks.filter(isModel)))),
			h(
				"div.stack",
				section("Server", card(pairs([...server.facts, ["Started", time(server.started_at)]]))),
				section("Runs", card(counts(server.runs_by_state))),
			),
		),
	];
}

function list(checks) {
	const item = ({ name, state, found, remedy }) => {
		const [tone, word] = STATES[state];
		const detail = h("div.foreign", found, remedy && h("div.small.soft", remedy));
		return h(`li.check.tone-${tone}`, h("div", mark(tone, name.replace("model: ", "")), h("span.unseen", ` ${word}: `)), detail);
	};
	return h("ul.card", checks.map(item));
}

function counts(byState) {
	const states = Object.entries(byState).filter(([, number]) => number > 0);
	if (!states.length) return h("p.soft", "None yet");
	const link = (state, number) => h("a", { href: `/?state=${state}`, "aria-label": `${number} ${toStatus(state).word}` }, statusMark(state));
	return h("ul.shares", states.map(([state, number]) => h("li", link(state, number), h("span.num", count(number)))));
}
