// Pure: the difference of two texts by lines, and a git patch taken apart.

const MAX_CELLS = 4_000_000; // beyond this the middle is shown as replaced: exactness is not worth a frozen page
const typed = (type) => (text) => ({ type, text });
const [same, del, add] = ["same", "del", "add"].map(typed);

// `[{ type: "same" | "del" | "add", text, a, b }]` with line numbers of both sides.
export function diffLines(before, after) {
  const a = before.split("\n");
  const b = after.split("\n");
  let start = 0;
  while (start < a.length && start < b.length && a[start] === b[start]) start++;
  let end = 0;
  while (end < a.length - start && end < b.length - start && a.at(-1 - end) === b.at(-1 - end)) end++;
  const middle = changes(a.slice(start, a.length - end), b.slice(start, b.length - end));
  const lines = [...a.slice(0, start).map(same), ...middle, ...a.slice(a.length - end).map(same)];
  let [left, right] = [0, 0];
  return lines.map((line) => ({ ...line, a: line.type === "add" ? null : ++left, b: line.type === "del" ? null : ++right }));
}

function changes(a, b) {
  if (a.length * b.length > MAX_CELLS) return [...a.map(del), ...b.map(add)];
  const width = b.length + 1;
  const table = new Uint32Array((a.length + 1) * width);
  for (let i = a.length - 1; i >= 0; i--) {
    for (let j = b.length - 1; j >= 0; j--) {
      const at = i * width + j;
      table[at] = a[i] === b[j] ? table[at + width + 1] + 1 : Math.max(table[at + width], table[at + 1]);
    }
  }
  const out = [];
  let [i, j] = [0, 0];
  while (i < a.length && j < b.length) {
    const at = i * width + j;
    if (a[i] === b[j]) out.push(same(a[i++])), j++;
    else if (table[at + width] >= table[at + 1]) out.push(del(a[i++]));
    else out.push(add(b[j++]));
  }
  return [...out, ...a.slice(i).map(del), ...b.slice(j).map(add)];
}

// Only what changed, with `around` lines beside it; what is left out becomes `{ type: "gap", count }`.
export function withContext(lines, around = 3) {
  const near = new Uint8Array(lines.length);
  for (const [index, line] of lines.entries()) if (line.type !== "same") near.fill(1, Math.max(0, index - around), index + around + 1);
  const out = [];
  for (const [index, line] of lines.entries()) {
    if (near[index]) out.push(line);
    else if (out.at(-1)?.type === "gap") out.at(-1).count++;
    else out.push({ type: "gap", count: 1 });
  }
  return out;
}

// A git patch as `[{ path, from, kind, added, removed, isBinary, lines }]`.
export function parsePatch(patch) {
  const files = [];
  let file = null;
  let [a, b, leftA, leftB] = [0, 0, 0, 0];
  for (const line of patch.split("\n")) {
    const text = line.slice(1);
    const hunk = file && /^@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@ ?(.*)$/.exec(line);
    if (leftA > 0 || leftB > 0) {
      if (line[0] === "+") file.lines.push({ type: "add", text, a: null, b: b++ }), leftB--, file.added++;
      else if (line[0] === "-") file.lines.push({ type: "del", text, a: a++, b: null }), leftA--, file.removed++;
      else if (line[0] !== "\\") file.lines.push({ type: "same", text, a: a++, b: b++ }), leftA--, leftB--;
    } else if (line.startsWith("diff --git ")) {
      file = { path: unquote(/ "?b\/(.*)$/.exec(line)?.[1] ?? line.slice(11)), from: null, kind: "changed", added: 0, removed: 0, isBinary: false, lines: [] };
      files.push(file);
    } else if (hunk) {
      [a, leftA, b, leftB] = hunk.slice(1, 5).map((n) => Number(n ?? 1));
      file.lines.push({ type: "hunk", text: hunk[5], a, b });
    } else if (file) {
      takeHeader(file, line);
    }
  }
  return files;
}

function takeHeader(file, line) {
  const [, name, path] = /^(\+\+\+ |--- |rename from |rename to )(.*)$/.exec(line) ?? [];
  if (line.startsWith("new file")) file.kind = "added";
  else if (line.startsWith("deleted file")) file.kind = "deleted";
  else if (name === "rename from ") Object.assign(file, { kind: "renamed", from: unquote(path) });
  else if (name === "rename to ") file.path = unquote(path);
  else if (name && path !== "/dev/null" && (name === "+++ " || file.kind === "deleted")) file.path = unquote(path).replace(/^[ab]\//, "");
  else if (/^(?:Binary files|GIT binary patch)/.test(line)) file.isBinary = true;
}

const unquote = (text) => text.replace(/\t$/, "").replace(/^"|"$/g, "");

// Unified lines as pairs for two columns: `[{ left, right }]`.
export function sideBySide(lines) {
  const rows = [];
  let [dels, adds] = [[], []];
  const flush = () => {
    for (let i = 0; i < Math.max(dels.length, adds.length); i++) rows.push({ left: dels[i] ?? null, right: adds[i] ?? null });
    [dels, adds] = [[], []];
  };
  for (const line of lines) {
    if (line.type === "del") dels.push(line);
    else if (line.type === "add") adds.push(line);
    else flush(), rows.push({ left: line, right: line });
  }
  flush();
  return rows;
}
