// What a run that is over came to, and what to do with it.
import { ApiError, send } from "../../api.js";
import { duration, plural, tookSeconds } from "../../format.js";
import { fill, h } from "../../h.js";
import { markdown } from "../../parts/text.js";
import { ask, button, drawer, facts, loading, mark, note, problemNote, section } from "../../parts/ui.js";
import { findingsLink, VERBS } from "./actions.js";

const FEW = 12;

export function outcome(panel, view) {
	const place = h("div.stack");
	const draw = drawer(place, view);
	panel.append(place);
	const update = () => {
		const { state, seq, merged } = view.run;
		draw(`${state} ${merged} ${view.isOver ? "" : seq}`, async () => drawing(await view.get("/outcome"), view));
	};
	update();
	return { update };
}

function drawing({ review, files, changed, commands, checked, hint, steps }, view) {
	return [
		hint && note("bad", hint, " ", findingsLink(view)),
		review && reviewCard(review, view),
		h("div.card.padded.stack.tight", h("h2", "What to do next"), h("div.buttons.next-steps", steps.map((step, index) => stepButton(step, view, index === 0 && (review?.tone ?? "good") === "good")))),
		h("div.outcome-parts", section("What changed", h("p", changed), files.length > 0 && fileList(files, view)), section("Checks", h("p", mark(checked.tone, checked.text)), commands.length > 0 && commandList(commands, view))),
		section("Cost and time", facts(`Cost ${view.run.cost}`, `took ${duration(tookSeconds(view.run, Date.now()))}`, plural(view.run.phases.length, "phase"), h("a", { href: view.url("/cost") }, "Where the money went"), h("a", { href: view.url("/timeline") }, "Where the time went"))),
	];
}

const reviewCard = ({ tone, text, phase, summary, findings }, view) =>
	h(
		`section.card.padded.stack.tight.review-card.tone-${tone}`,
		{ "aria-label": "Review" },
		h("h2", mark(tone, text)),
		summary && markdown(summary),
		findings.length > 0 && folded(findings.map(findingRow), "finding", "ul.findings"),
		h("p.small", h("a", { href: view.url(`/artifacts?phase=${encodeURIComponent(phase)}`) }, `Read what phase “${phase}” handed in`)),
	);

const findingRow = ({ tone, severity, where, what, remedy }) =>
	h("li", mark(tone, severity || "finding"), " ", where && h("code.foreign", where), h("div.foreign", what), remedy && h("div.soft.foreign", `Remedy: ${remedy}`));

const fileList = (files, view) =>
	h("div", folded(files.map(({ path, added, removed }) => h("li", h("code.foreign", path), " ", h("span.num.soft", added === null ? "binary" : `+${added} −${removed ?? 0}`))), "file", "ul.outcome-list"), h("a", { href: view.url("/changes") }, "Read the changes"));

const commandList = (commands, view) =>
	folded(commands.map(({ tone, text, command, phase, of, start_seq: seq }) => h("li", mark(tone, text), " ", h("a", { href: view.url(`/events?seq=${seq}`) }, h("code.foreign", command)), h("span.soft", ` ${of}, ${phase}`))), "command", "ul.outcome-list");

// A long list opens on request.
function folded(rows, what, tag) {
	const list = h(tag, rows.slice(0, FEW));
	const rest = rows.slice(FEW);
	if (!rest.length) return list;
	const more = button(`Show ${plural(rest.length, `more ${what}`)}`, () => {
		list.append(...rest);
		more.remove();
	}, { kind: "tiny" });
	return [list, more];
}

function stepButton(step, view, isMain) {
	const { verb, label, text, why } = step;
	const title = why ?? text;
	if (verb === "patch") return h("a.button", { href: view.api("/diff"), download: "changes.diff", title }, label);
	const act = () => (["merge", "pull_request"].includes(verb) ? merge(view, step) : VERBS[verb](view));
	const made = button(label, act, { kind: isMain ? "main" : undefined, why });
	made.title ||= title;
	return made;
}

// What would happen is asked first and shown with what does not fit; nothing changes before somebody says yes. For a pull
// request the result is brought to a branch of its own, and the repository's host has the form for the rest.
async function merge(view, { verb, label: name, text }) {
	const label = name.replace("…", "");
	const pull_request = verb === "pull_request";
	const body = { pull_request };
	const place = h("div.stack.tight", loading("Looking what would change…"));
	const preview = send("POST", view.api("/merge"), { ...body, dry_run: true }).catch((error) => error);
	const seen = preview.then((found) => fill(place, found instanceof Error ? conflict(found) : mergePreview(found)));
	const done = await ask({
		title: `${label}?`,
		body: [pull_request && h("p", text), place],
		label: pull_request ? "Push the branch" : label,
		act: async () => {
			await seen;
			const found = await preview;
			if (found instanceof ApiError) throw found;
			return send("POST", view.api("/merge"), body);
		},
	});
	if (!done) return;
	view.tell(done.message, done.link && [" ", h("a", { href: done.link, target: "_blank", rel: "noopener" }, "Open the form")]);
	view.notices.querySelector("a")?.focus();
	await view.refresh();
}

const conflict = (error) => [problemNote(error), error.paths?.length > 0 && [h("h3", "Files that do not fit"), h("ul.outcome-list", error.paths.map((path) => h("li", h("code.foreign", path))))]];

const mergePreview = ({ message, files, commits, paths, left_out: leftOut }) => [
	h("p.foreign", message),
	commits.length > 0 && [h("h3", plural(commits.length, "commit")), h("ul.outcome-list", commits.map((each) => h("li.foreign", each)))],
	files.length > 0 && folded(files.map(({ path, added, removed }) => h("li", h("code.foreign", path), h("span.soft", added === null ? " binary" : ` +${added} −${removed}`))), "file", "ul.outcome-list"),
	paths?.length > 0 && folded(paths.map((path) => h("li", h("code.foreign", path))), "file", "ul.outcome-list"),
	leftOut.length > 0 && h("p.soft", `${plural(leftOut.length, "path")} that set-up made or that was copied in stays out.`),
];
