export const EMPTY = { workflow: "", title: "", requirements_md: "", repo_path: "", base_branch: "", simulate: false, budget_usd: "", persona_overrides: {} };

export function toRequest(form) {
	const limit = toBudget(form.budget_usd);
	return {
		workflow: form.workflow,
		requirements_md: form.requirements_md,
		simulate: form.simulate,
		repo_path: form.repo_path.trim(),
		...(form.base_branch.trim() && { base_branch: form.base_branch.trim() }), // else the one that is checked out
		title: form.title.trim(),
		persona_overrides: Object.fromEntries(Object.entries(form.persona_overrides).filter(([, name]) => name)),
		...(limit && { budget_usd: limit }),
	};
}

// "2.50", "2,50" and "$2.50" are amounts; NaN is none; null is no limit of its own.
export function toBudget(text) {
	const amount = text.trim().replace(/^\$\s*/, "").replace(/^(\d+),(\d{1,2})$/, "$1.$2");
	if (!amount) return null;
	return /^\d+(\.\d+)?$/.test(amount) ? Number(amount) : Number.NaN;
}

// What can be said without asking the server: `{ field: sentence }`.
export function findMistakes({ workflow, repo_path: path, requirements_md: text, title, budget_usd: budget }) {
	const limit = toBudget(budget);
	const found = {
		workflow: !workflow && "Choose a workflow.",
		repo_path: !path.trim() ? "Choose the repository to work on." : !/^(\/|[a-z]+:\/\/|[^/\s]+@[^/\s]+:)/i.test(path.trim()) && "Give the whole path, beginning with “/”, or a URL.",
		requirements_md: !text.trim() && "Say what should be done. The agents know nothing else.",
		title: title.length > 200 && "At most 200 characters.",
		budget_usd: limit !== null && !(limit > 0 && limit <= 1_000_000) && "Give an amount in dollars, such as 2.50.",
	};
	return Object.fromEntries(Object.entries(found).filter(([, sentence]) => sentence));
}

// Which fields a refusal of the server is about: `[[field, sentence]]`.
export const toFieldErrors = ({ errors }) => errors.map(({ where = [], message = "" }) => [where.find((part) => part !== "body") ?? "", message]);

export function toProblems(problems, { hasRepository }) {
	const found = {};
	for (const problem of problems) {
		if (!hasRepository && /^(repo_path|base_branch)$/.test(problem.field)) continue; // nothing was given yet
		found[problem.field] ??= `${problem.message} ${problem.hint}`.trim();
	}
	return found;
}

// A form like a run that was: its request, with real models if it was a rehearsal.
export function fromRequest(request) {
	const { budget_usd: budget, persona_overrides: personas, simulate, queue, priority, ...rest } = request;
	return { ...EMPTY, ...rest, budget_usd: String(budget || ""), persona_overrides: simulate ? {} : personas };
}
