import { getJson, send, whyNot } from "../api.js";
import { h } from "../h.js";
import { ask, button, empty, liveContent, mark, pageHead, table, time } from "../parts/ui.js";

const LOOK_EVERY_MS = 3000;
const LEAD = "A worker takes runs that are due and drives so many at a time. When one falls silent, its runs go on elsewhere.";

export const title = "Workers";

export async function render(main, { signal }) {
	const { element, refresh } = liveContent({ signal, load: () => getJson("/api/workers", signal), draw: (data) => draw(data, refresh) });
	main.append(pageHead(title), h("p.soft.lead", LEAD), element);
	await refresh();
	const timer = setInterval(() => document.hidden || refresh(), LOOK_EVERY_MS);
	return { leave: () => clearInterval(timer) };
}

function draw({ items, is_shared: isShared }, refresh) {
	if (!items.length) return empty("No worker takes runs", "Runs stay as they are until one does. Start it with: holdfast worker");
	const row = (worker) => [
		h("strong.foreign", worker.name),
		mark(worker.status.tone, worker.status.text),
		worker.is_alive ? `${worker.driven} of ${worker.slots}` : "–",
		h("span.foreign", worker.queues.concat(worker.flows.map((flow) => `flow ${flow}`)).join(", ")),
		h("span.foreign", worker.machine),
		worker.version,
		time(worker.since),
		`${worker.silent_s.toFixed(0)} s ago`,
		...(isShared ? [endButton(worker, refresh)] : []),
	];
	return table(["Name", "Status", ">Runs", "Takes", "Machine", "Version", "Since", ">Last sign of life", ...(isShared ? ["Action"] : [])], items.map(row));
}

const endButton = (worker, refresh) => worker.is_alive && !worker.is_draining && button("Let it end", () => askToDrain(worker, refresh), { kind: "plain", why: whyNot("admin") });

async function askToDrain({ name }, refresh) {
	const body = h("p", "It takes nothing more; calls in flight end and are recorded, and the rest goes on elsewhere.");
	await ask({ title: `Let ${name} end?`, body, label: "Let it end", act: () => send("POST", `/api/workers/${encodeURIComponent(name)}/drain`) });
	await refresh();
}
