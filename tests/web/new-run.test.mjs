import assert from "node:assert/strict";
import { test } from "node:test";
import { EMPTY, findMistakes, fromRequest, toBudget, toFieldErrors, toProblems, toRequest } from "../../src/holdfast/web/js/model/start-form.js";

const form = (changes = {}) => ({ ...EMPTY, workflow: "w", repo_path: "/code/a", requirements_md: "Do it.", ...changes });

test("a form becomes the request that the server knows", () => {
  const request = toRequest(form({ budget_usd: "$2,50", persona_overrides: { author: "x", reviewer: "" }, title: " t ", base_branch: " main " }));
  assert.deepEqual(request, { workflow: "w", repo_path: "/code/a", base_branch: "main", requirements_md: "Do it.", persona_overrides: { author: "x" }, simulate: false, title: "t", budget_usd: 2.5 });
  assert.ok(!("budget_usd" in toRequest(form())));
  assert.ok(!("base_branch" in toRequest(form())), "the branch that is checked out");
});

test("amounts are read as people write them", () => {
  assert.equal(toBudget("2.50"), 2.5);
  assert.equal(toBudget(" "), null);
  for (const wrong of ["-1", "1e9", "many", "1,000"]) assert.ok(Number.isNaN(toBudget(wrong)), wrong);
});

test("mistakes are told at their field before anything is sent", () => {
  assert.deepEqual(Object.keys(findMistakes(form())), []);
  assert.deepEqual(Object.keys(findMistakes(EMPTY)), ["workflow", "repo_path", "requirements_md"]);
  assert.deepEqual(Object.keys(findMistakes(form({ repo_path: "code", budget_usd: "0" }))), ["repo_path", "budget_usd"]);
});

test("a refusal of the server lands at its field", () => {
  assert.deepEqual(toFieldErrors({ errors: [{ where: ["body", "base_branch"], message: "No branch. Take main." }] }), [["base_branch", "No branch. Take main."]]);
  assert.deepEqual(toFieldErrors({ errors: [{ where: ["body", "persona_overrides", "x"], message: "too long" }] }), [["persona_overrides", "too long"]]);
  assert.deepEqual(toFieldErrors({ errors: [] }), []);
});

test("before a repository is chosen nobody is told that it is wrong", () => {
  const problems = [{ field: "repo_path", message: "No.", hint: "" }, { field: "persona_overrides.author", message: "Nobody.", hint: "Set a key." }];
  assert.deepEqual(toProblems(problems, { hasRepository: false }), { "persona_overrides.author": "Nobody. Set a key." });
  assert.equal(toProblems(problems, { hasRepository: true }).repo_path, "No.");
});

test("a rehearsed run is started again with real models and the default personas", () => {
  const request = { workflow: "w", title: "t", requirements_md: "r", repo_path: "/a", base_branch: "dev", budget_usd: 3, simulate: true, persona_overrides: { author: "simulated-author" } };
  assert.deepEqual(fromRequest(request), { ...EMPTY, workflow: "w", title: "t", requirements_md: "r", repo_path: "/a", base_branch: "dev", budget_usd: "3" });
  assert.deepEqual(fromRequest({ ...request, simulate: false }).persona_overrides, { author: "simulated-author" });
});
