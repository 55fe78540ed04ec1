import { getJson, loadSession, newKey, runUrl, send, session, whyNot, withQuery } from "../api.js";
import { firstLine } from "../format.js";
import { fill, h } from "../h.js";
import { EMPTY, findMistakes, fromRequest, toFieldErrors, toProblems, toRequest } from "../model/start-form.js";
import { graph, graphLegend } from "../parts/graph.js";
import { imagesField } from "../parts/images.js";
import { markdown } from "../parts/text.js";
import { busy, button, checked, chip, choice, loading, mark, note, problemNote, say } from "../parts/ui.js";
import { navigate } from "../router.js";

const LOOK_AFTER_MS = 250;
const PLACE = "hf-new-run";
const REHEARSAL = "The simulated model goes through the same phases and approvals in seconds and pays nothing. What it writes is a stand-in.";

export const title = "New run";

export async function render(main, { query, signal, setTitle }) {
	const like = query.get("like");
	const name = like ? "Start one like this" : title;
	const place = h("div", loading());
	setTitle(name);
	const talk = !like && h("a.button", { href: "/talk" }, "Only talk about it…");
	main.append(h("div.page-head", h("h1", { tabindex: "-1" }, name), talk), place);
	if (!session.isKnown) await loadSession();
	const request = like && (await getJson(`/api${runUrl(like, "/request")}`, signal));
	const draft = like ? { form: fromRequest(request) } : readDraft();
	const form = { ...EMPTY, ...draft?.form };
	const workflow = query.get("workflow");
	if (workflow && workflow !== form.workflow) Object.assign(form, { workflow, persona_overrides: {} });
	return open(place, form, { key: draft?.key ?? newKey(), like, order: like ? { queue: request.queue, priority: request.priority } : {}, signal });
}

// What was typed survives a reload, a lost connection and a login; with it the key under which it is sent.
function readDraft() {
	try {
		return JSON.parse(sessionStorage.getItem(PLACE));
	} catch {
		return null;
	}
}

function keepDraft(draft) {
	try {
		sessionStorage.setItem(PLACE, JSON.stringify(draft));
	} catch {
		// Too long, or storage is forbidden: it is kept as long as the page is open.
	}
}

async function open(place, form, { key, like, order, signal }) {
	const why = whyNot("operator");
	const [trouble, lookTrouble, act] = ["div", "div", "div.buttons"].map((tag) => h(tag));
	const plan = h("aside.card.padded.plan", { "aria-label": "What will happen" });
	const input = (name, props) => h("input", { value: form[name], autocomplete: "off", oninput: (event) => set({ [name]: event.target.value }), ...props });
	const optional = (label) => [label, h("span.soft.small.plain", " optional")];
	const repository = repositoryFields(form, set);
	const fields = {
		workflow: workflowField((workflow) => set({ workflow, persona_overrides: {} })),
		requirements_md: requirementsField(form.requirements_md, (text) => set({ requirements_md: text })),
		title: checked(optional("Title"), input("title", { maxlength: "200" })),
		repo_path: repository.path,
		base_branch: repository.branch,
		persona_overrides: rolesField((role, name) => set({ persona_overrides: { ...form.persona_overrides, [role]: name } })),
		budget_usd: checked(optional("Limit in dollars"), input("budget_usd", { inputmode: "decimal", placeholder: "none of its own" })),
	};
	fields.images = imagesField(fields.requirements_md.element);
	let known = { items: [], workspace_root: "" };
	let listedFor, preview, timer, looking;
	let workflows = [];

	function layout() {
		const part = (title, ...children) => h("section.card.padded.stack", title && h("h2", title), children);
		const mode = (simulate, label, what) => {
			const props = { name: "mode", checked: form.simulate === simulate, onchange: () => set({ simulate, persona_overrides: {} }) };
			return choice(props, h("strong", label), h("span.soft", ` ${what}`));
		};
		const modes = [mode(false, "Real models.", "They do the work, and cost money."), mode(true, "Rehearse first.", REHEARSAL)];
		return h(
			"form.stack",
			{ novalidate: true, onsubmit: (event) => (event.preventDefault(), start()) },
			why && note("waiting", h("strong", "You can look, but not start. "), why),
			like && note("idle", "Filled in from ", h("a", { href: runUrl(like) }, "that run"), `, which stays as it is. Goes into the same queue, “${order.queue}”, with priority ${order.priority}.`),
			part(null, fields.workflow.element),
			part("The work", fields.requirements_md.element, fields.images.element, fields.title.element),
			part("Where", h("div.where", fields.repo_path.element, fields.base_branch.element)),
			part("Who does it", h("fieldset.choices.column", h("legend.unseen", "Models"), modes), fields.persona_overrides.element),
			part("Money", fields.budget_usd.element),
			lookTrouble,
			trouble,
			act,
		);
	}

	const getItem = () => workflows.find((item) => item.name === form.workflow);

	function set(changes) {
		Object.assign(form, changes);
		keepDraft({ form, key });
		// A field that is being changed is not wrong any more, until it is looked at again.
		for (const name of Object.keys(changes)) fields[name]?.setError(null);
		if ("workflow" in changes || "simulate" in changes) draw();
		if ("title" in changes || "requirements_md" in changes) return;
		clearTimeout(timer);
		timer = setTimeout(look, LOOK_AFTER_MS);
	}

	function draw() {
		fields.workflow.draw(workflows, form.workflow);
		const confirm = button(form.simulate ? "Start rehearsal" : "Start run", null, { kind: "main", type: "submit", why });
		fill(act, confirm, h("span.small.soft", "What you typed is kept in this tab."));
		drawPlan();
	}

	function drawPlan() {
		const item = getItem();
		if (!item) return fill(plan, h("p.soft", "Choose a workflow to see what it does."));
		const { amount, summary: explanation } = preview?.estimate ?? { amount: "–", summary: "Choose a workflow to see what it may cost." };
		const limits = preview?.limits.notes.map(({ tone, text }) => h(`p.small.note.tone-${tone}`, text));
		return fill(
			plan,
			h("div.page-head.flat", h("h2", "What will happen"), h("a.small", { href: `/workflows/${encodeURIComponent(item.name)}` }, "All about it")),
			graph(item, { isDown: true }),
			graphLegend(),
			h("ul.bullets.small", item.outlook.cautions.map((text) => h("li.foreign", text))),
			h("div.estimate.stack.tight", h("h2", "Estimate"), h("p.big.num", amount), h("p.small.soft.foreign", explanation), limits),
		);
	}

	async function loadWorkflows() {
		const path = (listedFor = form.repo_path.trim());
		const list = async (values) => (await getJson(withQuery("/api/workflows", values), signal)).items;
		if (!path.startsWith("/") || why) return list({});
		try {
			return await list({ repo_path: path });
		} catch (error) {
			if (error.status) return list({}); // what is wrong with the path is told at its field
			throw error;
		}
	}

	// Ask the server what this would come to; the old answer stays until the new one is there.
	async function look() {
		if (why) return;
		looking?.abort();
		looking = new AbortController();
		const mine = looking.signal;
		const { budget_usd: budget, ...request } = toRequest({ ...form, requirements_md: "", title: "" });
		plan.ariaBusy = "true";
		try {
			if (listedFor !== request.repo_path) workflows = await loadWorkflows();
			fields.workflow.draw(workflows, form.workflow);
			if (!form.workflow) return;
			const body = { ...request, repo_path: request.repo_path || known.workspace_root, ...(budget > 0 && { budget_usd: budget }) };
			preview = await send("POST", "/api/runs/preview", body, { signal: mine });
			show(request.repo_path !== "");
			fill(lookTrouble);
		} catch (error) {
			if (!mine.aborted && !signal.aborted) refuse(error, true);
		} finally {
			if (!mine.aborted) plan.ariaBusy = null;
		}
	}

	function show(hasRepository) {
		repository.drawFound(hasRepository ? preview.repository : null);
		fields.persona_overrides.draw(preview.roles, form.persona_overrides);
		drawPlan();
		const found = toProblems(preview.problems, { hasRepository });
		for (const name of hasRepository ? ["workflow", "repo_path", "base_branch"] : ["workflow"]) fields[name].setError(found[name]);
	}

	function start() {
		if (why) return say(why);
		const mistakes = findMistakes(form);
		for (const [name, field] of Object.entries(fields)) field.setError(mistakes[name]);
		const names = Object.keys(mistakes);
		// The button may be drawn anew meanwhile; its place is not.
		return names.length ? point(names) : busy(act, () => busy(act.firstChild, post));
	}

	async function post() {
		fill(trouble);
		try {
			const images = await fields.images.read();
			const { run_id: runId } = await send("POST", "/api/runs", { ...toRequest(form), ...order, ...(images.length && { images }) }, { key, signal });
			keepDraft(null);
			say("The run is started");
			navigate(runUrl(runId));
		} catch (error) {
			if (!signal.aborted) refuse(error);
		}
	}

	function refuse(error, isLook) {
		const atFields = toFieldErrors(error).filter(([name]) => fields[name]);
		for (const [name, text] of atFields) fields[name].setError(text);
		if (atFields.length) return isLook || point(atFields.map(([name]) => name));
		const old = `Estimate and personas are not up to date. ${error.message}`;
		const safe = error.isOffline && h("p.small.soft", "Starting again is safe: if the run was made, you are led to it.");
		if (isLook) return fill(lookTrouble, h("p.note.tone-waiting", { role: "status" }, old));
		if (error.code !== "idempotency_key_reused") return fill(trouble, problemNote(error), safe);
		const runId = /[0-9a-f-]{36}/.exec(error.message)?.[0];
		keepDraft(null);
		const made = h("strong", "This form has started a run already, before you changed it. ");
		return fill(trouble, h("div.note.tone-waiting", { role: "alert" }, made, runId && h("a", { href: runUrl(runId) }, "Look at it")));
	}

	function point(names) {
		const field = fields[Object.keys(fields).find((name) => names.includes(name))];
		(field.focus ?? (() => field.control.focus()))();
		say(names.length === 1 ? "One field needs you" : `${names.length} fields need you`);
	}

	[workflows, known] = await Promise.all([loadWorkflows(), why ? known : getJson("/api/repositories", signal)]);
	repository.drawKnown(known);
	fill(place, h("div.new-run", layout(), plan));
	draw();
	look();
	return {
		leave() {
			clearTimeout(timer);
			looking?.abort();
		},
	};
}

// A group of controls that is drawn anew; the one that had the focus keeps it.
function group(tag, list, toParts, ...legend) {
	const trouble = h("div.trouble", { role: "alert" });
	const draw = (...known) => {
		const focused = list.contains(document.activeElement) && document.activeElement.id;
		fill(list, toParts(...known));
		if (focused) document.getElementById(focused)?.focus();
	};
	const focus = () => list.querySelector("input, select")?.focus();
	return { element: h(tag, legend, list, trouble), draw, setError: (text) => fill(trouble, text), focus };
}

function workflowField(onChoose) {
	const radio = ({ name, source, description, outlook }, chosen) =>
		h(
			"label.workflow-choice",
			h("input", { type: "radio", name: "workflow", id: `workflow-${name}`, value: name, checked: name === chosen, onchange: () => onChoose(name) }),
			h(
				"span",
				h("strong.foreign", name),
				source === "repository" && [" ", h("span.tag", "of the repository")],
				h("span.small.foreign", firstLine(description, 160)),
				h("span.small.soft", outlook.summary),
			),
		);
	return group("fieldset", h("div.workflow-choices"), (items, chosen) => items.map((item) => radio(item, chosen)), h("legend", "Workflow"));
}

function requirementsField(value, onInput) {
	const control = h("textarea", { rows: "9", oninput: () => onInput(control.value) });
	control.value = value;
	const preview = h("div.preview.card.padded", { hidden: true, tabindex: "0", role: "region", "aria-label": "Preview" });
	const chips = [chip("Write", true, () => show(false)), chip("Preview", false, () => show(true))];
	const hint = "Markdown. Say what should hold afterwards, what must stay as it is, and how one can tell that it is done.";
	const { element, setError } = checked("What should be done", control, { hint, before: h("div.chips", chips), after: preview });
	function show(isPreview) {
		chips.forEach((each, index) => (each.ariaPressed = String(isPreview === (index === 1))));
		control.hidden = isPreview;
		preview.hidden = !isPreview;
		fill(preview, control.value.trim() ? markdown(control.value) : "Nothing is written yet.");
	}
	return { element, setError, focus: () => (show(false), control.focus()) };
}

const toOptions = (values) => values?.map((value) => h("option", { value }));

function repositoryFields(form, onChange) {
	const [known, branches] = ["repositories", "branches"].map((id) => h("datalist", { id }));
	const recent = h("div.chips");
	const repositoryNote = h("div.small", { "aria-live": "polite" });
	const input = (name, props) => {
		const oninput = (event) => onChange({ [name]: event.target.value });
		return h("input.mono", { value: form[name], autocomplete: "off", spellcheck: "false", oninput, ...props });
	};
	const path = checked("Repository", input("repo_path", { list: "repositories", placeholder: "/path/to/repository, or a URL" }), { after: [recent, known, repositoryNote] });
	const branch = checked("Start from branch", input("base_branch", { list: "branches", placeholder: "the one checked out" }), { after: branches });
	function choose({ path: repoPath, base_branch: from }) {
		path.control.value = repoPath;
		if (from) branch.control.value = from;
		onChange({ repo_path: repoPath, ...(from && { base_branch: from }) });
	}
	return {
		path,
		branch,
		drawKnown({ items, workspace_root: root }) {
			const short = (text) => (text.startsWith(`${root}/`) ? text.slice(root.length + 1) : text);
			const recently = items.filter((item) => item.is_there).slice(0, 5);
			const offer = (item) => h("button.chip.mono.clip", { type: "button", title: item.path, onclick: () => choose(item) }, short(item.path));
			fill(known, toOptions(items.map((item) => item.path)));
			fill(recent, recently.map(offer), !items.length && h("span.small.soft", "It must lie under ", h("code", root), "."));
		},
		drawFound(repository) {
			fill(branches, toOptions(repository?.branches));
			fill(repositoryNote, repository && repositoryWords(repository));
		},
	};
}

function repositoryWords({ found, unseen, uncommitted }) {
	const dirty = () => h("details", h("summary", mark("waiting", unseen)), h("ul.mono", uncommitted.slice(0, 20).map((each) => h("li.foreign", each))));
	return [mark(found.tone, found.text), unseen && dirty()];
}

const rolesField = (onOverride) =>
	group("div", h("div.roles"), (roles, overrides) => roles.map((role) => roleField(role, overrides[role.role_id] ?? "", onOverride)));

function roleField({ role_id: role, candidates, problem, explanation, reason, does }, override, onOverride) {
	const able = candidates.filter((each) => each.is_eligible);
	const unable = candidates.filter((each) => !each.is_eligible);
	const option = ({ name, is_eligible: isAble, label }) => h("option", { value: name, disabled: !isAble && name !== override, selected: name === override }, label);
	const some = (label, all) => all.length > 0 && h("optgroup", { label }, all.map(option));
	const first = h("option", { value: "", selected: !override }, able.length ? `${able[0].name} (chosen for you)` : "nobody can");
	const onchange = () => onOverride(role, select.value);
	const select = h("select", { id: `role-${role}`, onchange }, first, some("Can do it", able), some("Cannot do it now", unable));
	const why = explanation && h("details.small.soft", h("summary", reason), h("p.foreign", `${explanation}.`));
	const { element, setError } = checked([h("span.foreign", role), h("span.soft.small.plain", ` does ${does}`)], select, { after: why });
	setError(problem && `${problem.message} ${problem.hint}`);
	return element;
}
