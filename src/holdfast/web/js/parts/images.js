// Images that go with a text: chosen or pasted, shown by name, sent as base64.
import { fill, h } from "../h.js";
import { checked, say } from "./ui.js";

const MOST = 8;
const MAX_BYTES = 7_000_000; // as base64 they fit into one request
const KINDS = "image/png,image/jpeg,image/gif,image/webp";

// `text` is the element into which images can be pasted: `{ element, control, setError, read, clear }`. As a `button` it stands among others.
export function imagesField(text, onChange = () => {}, { isButton = false } = {}) {
	let chosen = [];
	const list = h("div.chips");
	const control = h("input", { type: "file", accept: KINDS, multiple: true, onchange: () => take(control.files) });
	const hint = "PNG, JPEG, GIF or WebP. You can paste them into the text, too.";
	const { element, setError } = isButton ? attachButton(control, hint, list) : checked([h("span", "Images"), h("span.soft.small.plain", " optional")], control, { hint, after: list });
	text.addEventListener("paste", (event) => {
		const files = [...event.clipboardData.files].filter((file) => KINDS.split(",").includes(file.type));
		if (files.length) event.preventDefault();
		take(files);
	});

	function take(files) {
		const all = [...chosen, ...files];
		control.value = ""; // the same file can be chosen again; this empties its list
		if (all.length === chosen.length) return;
		if (all.length > MOST) return setError(`At most ${MOST} images go along.`);
		if (all.reduce((sum, file) => sum + file.size, 0) > MAX_BYTES) return setError("The images have more than 7 MB together.");
		draw(all);
	}

	function draw(files) {
		chosen = files;
		onChange();
		setError(null);
		const drop = (file) => (draw(chosen.filter((each) => each !== file)), say(`${file.name} is left out`), control.focus());
		fill(list, chosen.map((file) => h("button.chip", { type: "button", title: `Leave out ${file.name}`, onclick: () => drop(file) }, file.name, " ×")));
	}

	return { element, control, setError, read: () => Promise.all(chosen.map(toData)), clear: () => draw([]) };
}

function attachButton(control, hint, list) {
	const trouble = h("div.trouble", { role: "status" });
	control.classList.add("unseen");
	return { element: h("div.attach", h("label.button", { title: hint }, "Images…", control), list, trouble), setError: (text) => fill(trouble, text) };
}

const toData = (file) =>
	new Promise((resolve, reject) => {
		const reader = new FileReader();
		reader.onload = () => resolve({ name: file.name.slice(0, 200), data: reader.result.slice(reader.result.indexOf(",") + 1) });
		reader.onerror = () => reject(new Error(`${file.name} cannot be read any more. Choose it again.`));
		reader.readAsDataURL(file);
	});
