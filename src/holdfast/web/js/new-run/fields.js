// The fields of a new run: workflow, requirements with preview, repository, personas by role; each can say what is wrong.
import { firstLine, plural } from "../format.js";
import { fill, h } from "../h.js";
import { summaryWords } from "../model/phases.js";
import { shortReason } from "../model/start-form.js";
import { checked } from "../parts/checked.js";
import { mark } from "../parts/status.js";
import { markdown } from "../parts/text.js";

/** A group of controls that is drawn anew; the one that had the focus keeps it. */
function group(props) {
  const list = h("div", props);
  const trouble = h("div", { class: "trouble", role: "alert" });
  const draw = (parts) => {
    const focused = list.contains(document.activeElement) && document.activeElement.id;
    fill(list, parts);
    if (focused) document.getElementById(focused)?.focus();
  };
  return { list, trouble, draw, setError: (text) => fill(trouble, text), focus: () => list.querySelector("input, select")?.focus() };
}

export function workflowField(onChoose) {
  const { list, trouble, draw, ...rest } = group({ class: "workflow-choices" });
  const choice = ({ name, source, description, definition }, isChosen) =>
    h(
      "label",
      { class: "workflow-choice" },
      h("input", { type: "radio", name: "workflow", id: `workflow-${name}`, value: name, checked: isChosen, onchange: () => onChoose(name) }),
      h("span", {}, h("strong", { class: "foreign" }, name), source === "repository" && [" ", h("span", { class: "tag" }, "of the repository")], h("span", { class: "small foreign" }, firstLine(description, 160)), h("span", { class: "small soft" }, summaryWords(definition))),
    );
  return { ...rest, element: h("fieldset", {}, h("legend", {}, "Workflow"), list, trouble), draw: (items, chosen) => draw(items.map((item) => choice(item, item.name === chosen))) };
}

/** Markdown, and what it looks like. */
export function requirementsField(value, onInput) {
  const control = h("textarea", { rows: "9", oninput: () => onInput(control.value) });
  control.value = value;
  const preview = h("div", { class: "preview card padded", hidden: true, tabindex: "0", role: "region", "aria-label": "Preview" });
  const [write, look] = ["Write", "Preview"].map((label, index) => h("button", { type: "button", class: "chip", "aria-pressed": String(!index), onclick: () => show(index === 1) }, label));
  const { element, setError } = checked("What should be done", control, { hint: "Markdown. Say what should hold afterwards, what must stay as it is, and how one can tell that it is done.", before: h("div", { class: "chips" }, write, look), after: preview });
  function show(isPreview) {
    write.setAttribute("aria-pressed", String(!isPreview));
    look.setAttribute("aria-pressed", String(isPreview));
    control.hidden = isPreview;
    preview.hidden = !isPreview;
    fill(preview, control.value.trim() ? markdown(control.value) : "Nothing is written yet.");
  }
  return { element, setError, focus: () => (show(false), control.focus()) };
}

/** A path with what was used before at hand, and the branch to start from. */
export function repositoryFields(form, onChange) {
  const [known, branches] = ["repositories", "branches"].map((id) => h("datalist", { id }));
  const recent = h("div", { class: "chips" });
  const told = h("div", { class: "small", "aria-live": "polite" });
  const input = (name, props) => h("input", { value: form[name], autocomplete: "off", spellcheck: "false", class: "mono", oninput: (event) => onChange({ [name]: event.target.value }), ...props });
  const path = checked("Repository", input("repo_path", { list: "repositories", placeholder: "/path/to/repository" }), { after: [recent, known, told] });
  const branch = checked("Start from branch", input("base_branch", { list: "branches", placeholder: "main" }), { after: branches });
  function choose({ path: repoPath, base_branch: from }) {
    path.control.value = repoPath;
    if (from) branch.control.value = from;
    onChange({ repo_path: repoPath, ...(from ? { base_branch: from } : {}) });
  }
  return {
    path,
    branch,
    drawKnown({ items, workspace_root: root }) {
      const short = (text) => (text.startsWith(`${root}/`) ? text.slice(root.length + 1) : text);
      fill(known, items.map((item) => h("option", { value: item.path })));
      fill(recent, items.filter((item) => item.is_there).slice(0, 5).map((item) => h("button", { type: "button", class: "chip mono clip", title: item.path, onclick: () => choose(item) }, short(item.path))), items.length === 0 && h("span", { class: "small soft" }, "It must lie under ", h("code", {}, root), "."));
    },
    drawFound(repository) {
      fill(branches, repository?.branches.map((name) => h("option", { value: name })));
      fill(told, repository && repositoryWords(repository));
    },
  };
}

function repositoryWords({ is_git: isGit, branches, current_branch: current, uncommitted }) {
  if (!isGit) return mark("idle", "A folder without git: the run works on a copy with a repository of its own.");
  const found = branches.length ? `A git repository with ${plural(branches.length, "branch", "branches")}${current ? `, on ${current}` : ""}` : "A git repository without commits: the run begins from nothing";
  const dirty = h("details", {}, h("summary", {}, mark("waiting", `${plural(uncommitted.length, "change")} not committed: the run does not see ${uncommitted.length === 1 ? "it" : "them"}`)), h("ul", { class: "mono" }, uncommitted.slice(0, 20).map((each) => h("li", { class: "foreign" }, each))));
  return [mark("good", found), uncommitted.length > 0 && dirty];
}

/** Who fills each role, why, and who else could. */
export function rolesField(onOverride) {
  const { list, trouble, draw, ...rest } = group({ class: "roles" });
  return { ...rest, element: h("div", {}, list, trouble), draw: (roles, overrides, phases) => draw(roles.map((role) => roleField(role, overrides[role.role_id] ?? "", phases, onOverride))) };
}

function roleField({ role_id: role, candidates, problem, explanation }, wanted, phases, onOverride) {
  const [able, unable] = [true, false].map((isEligible) => candidates.filter((each) => each.is_eligible === isEligible));
  const option = (each) => h("option", { value: each.name, disabled: !each.is_eligible && each.name !== wanted, selected: each.name === wanted }, each.is_eligible ? `${each.name} (${each.model || each.backend})` : `${each.name}: ${each.reasons.join(" and ")}`);
  const some = (label, all) => all.length > 0 && h("optgroup", { label }, all.map(option));
  const select = h("select", { id: `role-${role}`, onchange: () => onOverride(role, select.value) }, h("option", { value: "", selected: !wanted }, able.length ? `${able[0].name} (chosen for you)` : "nobody can"), some("Can do it", able), some("Cannot do it now", unable));
  const does = phases.filter((phase) => phase.role === role).map((phase) => phase.key).join(", ");
  const why = explanation && h("details", { class: "small soft" }, h("summary", {}, shortReason(explanation)), h("p", { class: "foreign" }, `${explanation}.`));
  const { element, setError } = checked([h("span", { class: "foreign" }, role), h("span", { class: "soft small plain" }, ` does ${does}`)], select, { after: why });
  setError(problem && `${problem.message} ${problem.hint}`);
  return element;
}
