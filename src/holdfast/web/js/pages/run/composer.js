// Says something to the agent: the next message of a conversation, or a word to a phase that works.
import { send } from "../../api.js";
import { fill, h } from "../../h.js";
import { completeFiles } from "../../parts/file-completion.js";
import { imagesField } from "../../parts/images.js";
import { button, field, keepDraft, options, problemNote, say } from "../../parts/ui.js";

export function messageComposer(view) {
	const element = h("form.composer.card.padded", { hidden: true, "aria-label": "Message to the agent", onsubmit: (event) => (event.preventDefault(), post()) });
	const text = h("textarea", { rows: "2", maxlength: "100000", onkeydown: (event) => event.key === "Enter" && (event.ctrlKey || event.metaKey) && (event.preventDefault(), post()) });
	const draft = keepDraft(text, `message-${view.run.run_id}`);
	const pictures = imagesField(text, undefined, { isButton: true });
	completeFiles(text, () => view.run.repo_path);
	const trouble = h("div");
	const phase = h("select.input", { "aria-label": "To the agent of" });
	let drawn = "";
	let isSending = false;

	async function post() {
		if (isSending || view.run.message_box?.why || !text.value.trim()) return text.focus();
		isSending = true;
		fill(trouble);
		try {
			const images = await pictures.read();
			await send("POST", view.api("/messages"), { text: text.value, ...(phase.value && { phase: phase.value }), ...(images.length && { images }) });
			text.value = "";
			pictures.clear();
			draft.clear();
			say("Sent.");
		} catch (error) {
			fill(trouble, problemNote(error));
		}
		isSending = false;
		text.focus();
		await view.refresh();
	}

	// What is typed stays: only what is around it is drawn anew.
	function update() {
		const messageBox = view.run.message_box;
		element.hidden = !messageBox && !text.value;
		if (element.hidden && element.contains(document.activeElement)) {
			document.activeElement.blur();
			view.leadOn();
		}
		const stamp = JSON.stringify(messageBox);
		if (stamp === drawn || !messageBox) return;
		drawn = stamp;
		const { label, hint, phases, can_stop: canStop, why } = messageBox;
		const isFocused = document.activeElement === text;
		fill(phase, options(phases.map((key) => [key])));
		const stop = canStop && button("Stop the answer", () => send("POST", view.api("/pause")).then(() => view.refresh(), view.notice.bind(view)), { why: view.run.refusals.pause });
		fill(element, field(label, text, `${hint} Ctrl and Enter sends it.`), trouble, h("div.buttons", phases.length > 0 && phase, button("Send", post, { kind: "main", why }), stop, pictures.element, why && h("span.small.soft", why)));
		if (isFocused) text.focus();
	}

	return { element, update };
}
