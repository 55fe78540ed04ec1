import { can, getJson, loadSession, send, session, whyNot } from "../api.js";
import { fill, h } from "../h.js";
import { ask, button, choice, empty, field, liveContent, mark, note, options, say, section, table, time } from "../parts/ui.js";
import { logOut, setTheme } from "../top.js";

const ROLES = {
	viewer: "sees everything, changes nothing",
	operator: "starts and moves runs",
	approver: "decides approvals too",
	admin: "makes and revokes tokens too",
};

export const title = "Settings";

export async function render(main, { signal }) {
	main.append(h("h1.page-title", { tabindex: "-1" }, title));
	if (!session.isKnown) await loadSession();
	main.append(h("div.stack.wide-gap", section("You", you()), section("Look", look()), tokens(signal)));
}

function you() {
	const { name, role, endsAt } = session;
	const open = h("p.soft", "This server asks nobody who they are: whoever reaches it may do everything.");
	const ends = endsAt && h("p.soft", "This login ends ", time(endsAt, { focusable: true }), ".");
	const who = h("p", h("strong.foreign", name), ` · ${role}, who ${ROLES[role]}`);
	return h("div.card.padded.stack.tight", who, name === "local" ? open : [ends, h("div.buttons", button("Log out", logOut))]);
}

function look() {
	const now = document.documentElement.dataset.theme ?? "";
	const themes = { "": "As the system", light: "Light", dark: "Dark" };
	const radio = ([value, label]) => choice({ name: "theme", value, checked: value === now, onchange: () => setTheme(value) }, label);
	return h("div.card.padded.choices", { role: "radiogroup", "aria-label": "Look" }, Object.entries(themes).map(radio));
}

function tokens(signal) {
	const why = whyNot("admin");
	const { element, refresh } = liveContent({ signal, load: () => getJson("/api/tokens", signal), draw: ({ items }) => list(items, refresh) });
	if (can("admin")) refresh();
	else fill(element, h("div.card", empty("Tokens are for admins", why)));
	return h(
		"section.stack.tight",
		h("div.page-head.flat", h("h2", "Tokens"), button("New token…", () => create(refresh), { why })),
		h("p.soft", "A token lets a program use the API, or a person log in, with one role. It is shown once and kept only as a hash."),
		element,
	);
}

function list(items, refresh) {
	if (!items.length) return h("div.card", empty("There are no tokens", "Make one for each program and person, with the least role that does."));
	const timeOrNever = (at) => (at ? time(at) : "never");
	const row = (token) => [
		[h("span.foreign", token.name), h("div.small.soft.mono", token.id)],
		token.role,
		mark(token.status.tone, token.status.text, token.is_over ? { shapeName: "stopped" } : {}),
		[time(token.created_at), token.created_by && h("div.small.soft.foreign", `by ${token.created_by}`)],
		timeOrNever(token.last_used_at),
		timeOrNever(token.expires_at),
		!token.is_over && button("Revoke…", () => revoke(token, refresh), { kind: "tiny bad", "aria-label": `Revoke ${token.name}` }),
	];
	return table(["Name", "Role", "State", "Made", "Last used", "Ends", "Action"], items.map(row));
}

async function create(refresh) {
	const radio = ([role, what]) => choice({ name: "role", value: role, checked: role === "viewer" }, h("strong", role), h("span.soft", ` ${what}`));
	const ends = options([[30, "in 30 days"], [90, "in 90 days"], [365, "in a year"], ["", "never"]]);
	const name = h("input", { name: "name", required: true, maxlength: "200", autocomplete: "off" });
	const made = await ask({
		title: "New token",
		body: h(
			"div.stack",
			field("Name", name, "It stands in the journal beside what the token did."),
			h("fieldset.choices.column", h("legend", "Role"), Object.entries(ROLES).map(radio)),
			field("Ends", h("select", { name: "days" }, ends)),
		),
		label: "Make token",
		act(form) {
			const days = Number(form.get("days"));
			return send("POST", "/api/tokens", { name: form.get("name").trim(), role: form.get("role"), ...(days && { expires_in_days: days }) });
		},
	});
	if (!made) return;
	refresh();
	const copied = h("span.soft.small", { role: "status" });
	const tokenField = h("input.input.mono", { readonly: true, value: made.token, "aria-label": "The new token" });
	const copy = async () => {
		tokenField.select();
		fill(copied, await navigator.clipboard.writeText(made.token).then(() => "Copied", () => "Press Ctrl+C to copy it"));
	};
	await ask({
		title: "The new token",
		body: h(
			"div.stack",
			note("waiting", h("strong", "This is the only time it is shown.")),
			tokenField,
			h("div.buttons", button("Copy token", copy), copied),
			h("p.small.soft", "Programs send it as “Authorization: Bearer …”."),
		),
		cancel: "I have kept it",
	});
}

async function revoke(token, refresh) {
	const warning = "Whoever uses it is refused from now on. The tokens that were made with it end too, and all their logins.";
	const done = await ask({
		title: `Revoke ${token.name}?`,
		body: h("p", `${warning} This cannot be taken back. What was done with it stays in the journal.`),
		label: "Revoke token",
		kind: "bad main",
		act: () => send("DELETE", `/api/tokens/${token.id}`),
	});
	if (done) say(done.tokens > 1 ? `${done.tokens} tokens are revoked` : "The token is revoked");
	refresh();
}
