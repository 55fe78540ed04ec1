// The fields of a new run: workflow, requirements with preview, repository, personas by role; each can say what is wrong.
import { firstLine, plural } from "../format.js";
import { fill, h } from "../h.js";
import { summaryWords } from "../model/phases.js";
import { shortReason } from "../model/start-form.js";
import { checked, chip, mark } from "../parts/ui.js";
import { markdown } from "../parts/text.js";

/** A group of controls that is drawn anew; the one that had the focus keeps it. */
function group(tag, list, toParts, ...legend) {
  const trouble = h("div.trouble", { role: "alert" });
  const draw = (...known) => {
    const focused = list.contains(document.activeElement) && document.activeElement.id;
    fill(list, toParts(...known));
    if (focused) document.getElementById(focused)?.focus();
  };
  return { element: h(tag, legend, list, trouble), draw, setError: (text) => fill(trouble, text), focus: () => list.querySelector("input, select")?.focus() };
}

export function workflowField(onChoose) {
  const choice = ({ name, source, description, definition }, chosen) =>
    h(
      "label.workflow-choice",
      h("input", { type: "radio", name: "workflow", id: `workflow-${name}`, value: name, checked: name === chosen, onchange: () => onChoose(name) }),
      h("span", h("strong.foreign", name), source === "repository" && [" ", h("span.tag", "of the repository")], h("span.small.foreign", firstLine(description, 160)), h("span.small.soft", summaryWords(definition))),
    );
  return group("fieldset", h("div.workflow-choices"), (items, chosen) => items.map((item) => choice(item, chosen)), h("legend", "Workflow"));
}

/** Markdown, and what it looks like. */
export function requirementsField(value, onInput) {
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

/** A path with what was used before at hand, and the branch to start from. */
export function repositoryFields(form, onChange) {
  const [known, branches] = ["repositories", "branches"].map((id) => h("datalist", { id }));
  const recent = h("div.chips");
  const told = h("div.small", { "aria-live": "polite" });
  const input = (name, props) => h("input.mono", { value: form[name], autocomplete: "off", spellcheck: "false", oninput: (event) => onChange({ [name]: event.target.value }), ...props });
  const path = checked("Repository", input("repo_path", { list: "repositories", placeholder: "/path/to/repository" }), { after: [recent, known, told] });
  const branch = checked("Start from branch", input("base_branch", { list: "branches", placeholder: "main" }), { after: branches });
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
      fill(known, toOptions(items.map((item) => item.path)));
      fill(recent, recently.map((item) => h("button.chip.mono.clip", { type: "button", title: item.path, onclick: () => choose(item) }, short(item.path))), !items.length && h("span.small.soft", "It must lie under ", h("code", root), "."));
    },
    drawFound(repository) {
      fill(branches, toOptions(repository?.branches));
      fill(told, repository && repositoryWords(repository));
    },
  };
}

function repositoryWords({ is_git: isGit, branches, current_branch: current, uncommitted }) {
  if (!isGit) return mark("idle", "A folder without git: the run works on a copy with a repository of its own.");
  const { length } = uncommitted;
  const found = branches.length ? `A git repository with ${plural(branches.length, "branch", "branches")}${current ? `, on ${current}` : ""}` : "A git repository without commits: the run begins from nothing";
  const dirty = () => h("details", h("summary", mark("waiting", `${plural(length, "change")} not committed: the run does not see ${length === 1 ? "it" : "them"}`)), h("ul.mono", uncommitted.slice(0, 20).map((each) => h("li.foreign", each))));
  return [mark("good", found), length > 0 && dirty()];
}

/** Who fills each role, why, and who else could. */
export const rolesField = (onOverride) =>
  group("div", h("div.roles"), (roles, overrides, phases) => roles.map((role) => roleField(role, overrides[role.role_id] ?? "", phases, onOverride)));

function roleField({ role_id: role, candidates, problem, explanation }, wanted, phases, onOverride) {
  const [able, unable] = [true, false].map((isEligible) => candidates.filter((each) => each.is_eligible === isEligible));
  const option = ({ name, is_eligible: isAble, model, backend, reasons }) => h("option", { value: name, disabled: !isAble && name !== wanted, selected: name === wanted }, isAble ? `${name} (${model || backend})` : `${name}: ${reasons.join(" and ")}`);
  const some = (label, all) => all.length > 0 && h("optgroup", { label }, all.map(option));
  const select = h("select", { id: `role-${role}`, onchange: () => onOverride(role, select.value) }, h("option", { value: "", selected: !wanted }, able.length ? `${able[0].name} (chosen for you)` : "nobody can"), some("Can do it", able), some("Cannot do it now", unable));
  const does = phases.filter((phase) => phase.role === role).map((phase) => phase.key).join(", ");
  const why = explanation && h("details.small.soft", h("summary", shortReason(explanation)), h("p.foreign", `${explanation}.`));
  const { element, setError } = checked([h("span.foreign", role), h("span.soft.small.plain", ` does ${does}`)], select, { after: why });
  setError(problem && `${problem.message} ${problem.hint}`);
  return element;
}
