// `@` in a text field offers files of the repository: arrows choose, Enter or Tab takes, Escape closes.
import { getJson, withQuery } from "../api.js";
import { fill, h } from "../h.js";
import { say } from "./ui.js";

const MENTION = /(?:^|[^\w@/.])@([\w./+-]*)$/;
const WAIT_MS = 120;
let ids = 0;

// `getRepo()` gives the repository's path, or nothing while there is none.
export function completeFiles(control, getRepo) {
	const id = `files-${++ids}`;
	const list = h("ul.files-list.card", { role: "listbox", id, "aria-label": "Files", hidden: true });
	let [found, at, timer, requestNumber] = [[], 0, 0, 0];
	control.setAttribute("aria-autocomplete", "list");

	const typed = () => MENTION.exec(control.value.slice(0, control.selectionStart));

	function close() {
		requestNumber++;
		list.hidden = true;
		control.removeAttribute("aria-activedescendant");
		control.removeAttribute("aria-controls");
	}

	function draw() {
		const item = (path, index) => h("li.mono.foreign", { role: "option", id: `${id}-${index}`, "aria-selected": String(index === at), onmousedown: (event) => (event.preventDefault(), take(index)) }, path);
		fill(list, found.map(item));
		control.setAttribute("aria-controls", id);
		control.setAttribute("aria-activedescendant", `${id}-${at}`);
		list.querySelector("[aria-selected=true]")?.scrollIntoView({ block: "nearest" });
	}

	async function look() {
		const [word, repo, mine] = [typed()?.[1], getRepo(), ++requestNumber];
		if (word === undefined || !repo) return close();
		const { paths } = await getJson(withQuery("/api/repositories/files", { repo_path: repo, text: word })).catch(() => ({ paths: [] }));
		if (mine !== requestNumber) return;
		[found, at] = [paths, 0];
		if (!found.length) return close();
		if (!list.isConnected) control.after(list);
		if (list.hidden) say(`${found.length} files, choose with the arrows`);
		list.hidden = false;
		draw();
	}

	function take(index) {
		const [place, end] = [control.selectionStart - typed()[1].length, control.selectionStart];
		control.setRangeText(`${found[index]} `, place, end, "end");
		close();
		control.dispatchEvent(new Event("input"));
	}

	control.addEventListener("input", () => {
		clearTimeout(timer);
		if (typed()) timer = setTimeout(look, WAIT_MS);
		else close();
	});
	control.addEventListener("blur", close);
	control.addEventListener("keydown", (event) => {
		if (list.hidden || event.ctrlKey || event.metaKey) return;
		const by = { ArrowDown: 1, ArrowUp: -1 }[event.key];
		if (by) {
			at = (at + by + found.length) % found.length;
			draw();
		} else if (event.key === "Enter" || event.key === "Tab") take(at);
		else if (event.key === "Escape") close();
		else return;
		event.preventDefault();
		event.stopPropagation();
	});
}
