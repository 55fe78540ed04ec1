// Pure: between the form of a new run, the request it becomes, and the refusals that come back.

export const EMPTY = { workflow: "", title: "", requirements_md: "", repo_path: "", base_branch: "", simulate: false, budget: "", personas: {} };

/** The body of POST /api/runs. */
export function toRequest(form) {
  const budget = toBudget(form.budget);
  return {
    workflow: form.workflow,
    repo_path: form.repo_path.trim(),
    base_branch: form.base_branch.trim() || "main",
    requirements_md: form.requirements_md,
    persona_overrides: Object.fromEntries(Object.entries(form.personas).filter(([, name]) => name)),
    simulate: form.simulate,
    title: form.title.trim(),
    ...(budget ? { budget_usd: budget } : {}),
  };
}

/** "2.50", "2,50" and "$2.50" are amounts; NaN is none; null is no limit of its own. */
export function toBudget(text) {
  const given = String(text ?? "").trim().replace(/^\$\s*/, "").replace(/^(\d+),(\d{1,2})$/, "$1.$2");
  if (given === "") return null;
  return /^\d+(\.\d+)?$/.test(given) ? Number(given) : Number.NaN;
}

/** What can be said without asking the server: `{ field: sentence }`. */
export function findMistakes(form) {
  const mistakes = {};
  if (!form.workflow) mistakes.workflow = "Choose a workflow.";
  if (!form.repo_path.trim()) mistakes.repo_path = "Choose the repository to work on.";
  else if (!form.repo_path.trim().startsWith("/")) mistakes.repo_path = "Give the whole path, beginning with “/”.";
  if (!form.requirements_md.trim()) mistakes.requirements_md = "Say what should be done. The agents know nothing else.";
  if (form.title.length > 200) mistakes.title = "At most 200 characters.";
  const budget = toBudget(form.budget);
  if (budget !== null && !(budget > 0 && budget <= 1_000_000)) mistakes.budget_usd = "Give an amount in dollars, such as 2.50.";
  return mistakes;
}

const BY_CODE = {
  template_not_found: "workflow",
  template_invalid: "workflow",
  schema_not_found: "workflow",
  schema_invalid: "workflow",
  repository_not_allowed: "repo_path",
  repository_missing: "repo_path",
  config_invalid: "repo_path",
  workspace_error: "repo_path",
  base_branch_missing: "base_branch",
  persona_ineligible: "personas",
  persona_not_found: "personas",
  consent_required: "personas",
};

/** Which field a refusal of the server is about: `[[field, sentence]]`; the field is "" where it is none. */
export function toFieldErrors(error) {
  const found = (error.errors ?? []).map(({ where = [], message = "" }) => [where.filter((part) => part !== "body")[0] ?? "", message]);
  if (found.length > 0) return found.map(([field, message]) => [field === "persona_overrides" ? "personas" : field, message]);
  return [[BY_CODE[error.code] ?? "", [error.message, error.hint].filter(Boolean).join(" ")]];
}

/** The problems of a preview by field: "persona_overrides.author" stays with its role. */
export function toProblems(problems, { hasRepository }) {
  const found = {};
  for (const { field, message, hint } of problems ?? []) {
    if (!hasRepository && (field === "repo_path" || field === "base_branch")) continue; // nothing was given yet
    found[field] ??= [message, hint].filter(Boolean).join(" ");
  }
  return found;
}

/** The part of a binding's explanation that says why, without the lists of everybody else. */
export function shortReason(explanation) {
  const why = String(explanation ?? "").split("; ")[0].replace(/^\S+ chosen because /, "");
  return why ? why[0].toUpperCase() + why.slice(1) + "." : "";
}

/** A form like a run that was: its request, with real models if it was a rehearsal. */
export function fromRequest(request) {
  return {
    ...EMPTY,
    workflow: request.workflow ?? "",
    title: request.title ?? "",
    requirements_md: request.requirements_md ?? "",
    repo_path: request.repo_path ?? "",
    base_branch: request.base_branch ?? "",
    budget: request.budget_usd ? String(request.budget_usd) : "",
    personas: request.simulate ? {} : { ...request.persona_overrides },
  };
}
