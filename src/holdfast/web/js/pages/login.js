import { loadSession, send, session } from "../api.js";
import { fill, h } from "../h.js";
import { toOwnPath } from "../model/routes.js";
import { busy, button, checked, note, section } from "../parts/ui.js";
import { navigate } from "../router.js";
import { start } from "../top.js";

const LINK = "The terminal where `holdfast serve` was started shows a link that logs you in once. Start it again for a new one; no run is lost.";

export const title = "Log in";

export function render(main, { query }) {
	const next = toOwnPath(query.get("next"), location.origin);
	const input = h("input", { type: "password", autocomplete: "current-password", spellcheck: "false" });
	const { element, control, setError } = checked("Token", input, { hint: "One that an admin made for you. It begins with hf_." });
	const logIn = async () => {
		const token = control.value.trim();
		try {
			setError(token ? null : "Paste your token.");
			if (!token) return;
			await send("POST", "/api/session", { token });
			await start();
			navigate(next, { replace: true });
		} catch (error) {
			setError(toSentence(error));
		} finally {
			control.focus();
		}
	};
	const confirm = button(title, null, { kind: "main", type: "submit" });
	const onsubmit = (event) => {
		event.preventDefault();
		busy(confirm, logIn);
	};
	const usedUp = h("p.note.tone-bad", { role: "alert" }, h("strong", "This login link does not work any more. "), "A link works once, for 15 minutes. Take a new one as below.");
	const who = h("input", { type: "text", autocomplete: "username", value: "token", hidden: true });
	const ways = [
		LINK.split("`").map((part, index) => (index % 2 ? h("code", part) : part)),
		["On the server's machine, make one:", h("pre.code", "holdfast token create --name you --role approver")],
		"Or ask an admin, who makes them under Settings.",
	];
	const known = h("div", { hidden: true });
	(session.isKnown ? Promise.resolve() : loadSession()).then(() => {
		fill(known, note("idle", `You are logged in as ${session.name}. `, h("a", { href: next }, "Go on")));
		known.hidden = false;
	}, () => {}); // who is not logged in is here to do it
	main.append(
		h(
			"div.login.stack",
			h("h1", { tabindex: "-1" }, title),
			query.get("problem") === "link" && usedUp,
			known,
			h("form.card.padded.stack", { onsubmit, novalidate: true }, who, element, h("div.buttons", confirm)),
			section("You have no token?", h("ul.bullets", ways.map((way) => h("li", way)))),
		),
	);
	setTimeout(() => control.focus()); // after the router has led to the heading
}

function toSentence({ code, message, retryAfter }) {
	if (code === "not_authenticated") return "This token is wrong, was revoked, or is over. Copy it whole, or ask for a new one.";
	return code === "too_many_attempts" ? `Too many wrong tokens came from here. Try again in ${retryAfter || 60} s.` : message;
}
