import { getJson, newKey, runUrl, send, whyNot, withQuery } from "../api.js";
import { fill, h } from "../h.js";
import { completeFiles } from "../parts/file-completion.js";
import { imagesField } from "../parts/images.js";
import { button, checked, field, keepDraft, loading, note, options, pageHead, problemNote } from "../parts/ui.js";
import { navigate } from "../router.js";

export const title = "New conversation";

// The first message of a conversation, where it is about, and who answers.
export async function render(main, { signal }) {
	const why = whyNot("operator");
	const place = h("div", loading());
	main.append(pageHead(title), h("p.lead.soft", "Ask about a repository, or have something small done. The agent works on a copy; you merge what you like."), place);
	const known = why ? { items: [] } : await getJson("/api/repositories", signal);
	let key = newKey();
	const changed = () => (key = newKey());
	const repo = checked("Repository", h("input.mono", { value: known.items.find((each) => each.is_there)?.path ?? "", list: "repositories", autocomplete: "off", spellcheck: "false", placeholder: "/path/to/repository", onchange: () => (changed(), drawPersonas()) }));
	const text = h("textarea", { rows: "5", maxlength: "100000", oninput: changed, onkeydown: (event) => event.key === "Enter" && (event.ctrlKey || event.metaKey) && (event.preventDefault(), begin()) });
	const persona = h("select", { onchange: changed });
	const rehearse = h("input", { type: "checkbox", onchange: () => (changed(), (persona.disabled = rehearse.checked)) });
	const trouble = h("div", { role: "status" });
	const draft = keepDraft(text, "conversation");
	const pictures = imagesField(text, changed);
	completeFiles(text, () => repo.control.value.trim());

	async function drawPersonas() {
		const path = repo.control.value.trim();
		const { items } = await getJson(withQuery("/api/personas/availability", { repo_path: path }), signal).catch(() => ({ items: [] }));
		const ready = items.filter((each) => each.is_available && each.portrait.group === "ready");
		fill(persona, options([["", ready.length ? "The best that is ready" : "Nobody is ready: rehearse, or see Personas"], ...ready.map(({ name }) => [name])], persona.value));
	}

	async function begin() {
		fill(trouble);
		const path = repo.control.value.trim();
		repo.setError(path ? null : "Which repository is it about?");
		if (!path) return repo.control.focus();
		if (!text.value.trim()) return text.focus();
		const body = { repo_path: path, text: text.value, simulate: rehearse.checked, ...(persona.value && !rehearse.checked && { persona: persona.value }) };
		try {
			const images = await pictures.read();
			const { run_id: runId } = await send("POST", "/api/conversations", { ...body, ...(images.length && { images }) }, { key, signal });
			draft.clear();
			navigate(runUrl(runId));
		} catch (error) {
			if (!signal.aborted) fill(trouble, problemNote(error));
		}
	}

	const start = button("Send", null, { kind: "main", type: "submit", why });
	const simulated = h("label.toggle", rehearse, " Rehearse with the simulated model: no key, no cost");
	fill(
		place,
		h(
			"form.card.padded.stack.narrow",
			{ onsubmit: (event) => (event.preventDefault(), why || begin()) },
			why && note("waiting", h("strong", "You can look, but not begin one. "), why),
			repo.element,
			h("datalist", { id: "repositories" }, known.items.map(({ path }) => h("option", { value: path }))),
			field("Your message", text, "@ names a file that goes along. Ctrl and Enter sends it."),
			pictures.element,
			h("div.sides", field("Who answers", persona), simulated),
			trouble,
			h("div.buttons", start),
		),
	);
	if (!why) drawPersonas();
	return {};
}
