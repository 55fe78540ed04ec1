import assert from "node:assert/strict";
import { test } from "node:test";
import { layOut, toLayers, wrap } from "../../src/holdfast/web/js/model/graph-layout.js";

const SIZE = { width: 100, height: 50, gapAcross: 10, gapAlong: 30 };
const phase = (key, ...needs) => ({ key, needs });

function overlaps(nodes) {
  return nodes.flatMap((a, i) => nodes.slice(i + 1).filter((b) => Math.abs(a.x - b.x) < SIZE.width && Math.abs(a.y - b.y) < SIZE.height).map((b) => [a.key, b.key]));
}

test("a chain stands in one line", () => {
  const { nodes, edges, width, height } = layOut([phase("a"), phase("b", "a"), phase("c", "b")], SIZE);
  assert.deepEqual(nodes.map(({ x, y }) => [x, y]), [[0, 0], [130, 0], [260, 0]]);
  assert.deepEqual([width, height], [360, 50]);
  assert.deepEqual(edges.map(({ from, to }) => [from, to]), [["a", "b"], ["b", "c"]]);
});

test("branches stand side by side and a join after the longest of them", () => {
  const phases = [phase("a"), phase("b", "a"), phase("c", "a"), phase("d", "c"), phase("e", "b", "d")];
  assert.deepEqual([...toLayers(phases).values()], [0, 1, 1, 2, 3]);
  const { nodes } = layOut(phases, SIZE);
  assert.deepEqual(overlaps(nodes), []);
});

test("an edge over several layers has a place of its own in each", () => {
  const phases = [phase("a"), phase("b", "a"), phase("c", "b", "a")];
  const { nodes, edges, height } = layOut(phases, SIZE);
  const long = edges.find((edge) => edge.from === "a" && edge.to === "c");
  assert.equal((long.path.match(/C/g) ?? []).length, 2);
  assert.ok(height > SIZE.height);
  assert.ok(nodes.every((node) => node.y >= 0 && node.y + SIZE.height <= height));
});

test("downwards the same graph is as long as it was wide", () => {
  const phases = [phase("a"), phase("b", "a"), phase("c", "a")];
  const across = layOut(phases, SIZE);
  const down = layOut(phases, { ...SIZE, isDown: true });
  assert.deepEqual(down.nodes.map((node) => node.layer), across.nodes.map((node) => node.layer));
  assert.equal(down.height, 2 * SIZE.height + SIZE.gapAlong);
  assert.deepEqual(overlaps(down.nodes), []);
});

test("many graphs, none with boxes on top of each other", () => {
  let seed = 7;
  const random = (n) => (seed = (seed * 48271) % 2147483647) % n;
  for (let round = 0; round < 200; round += 1) {
    const keys = Array.from({ length: 1 + random(9) }, (_, index) => `p${index}`);
    const phases = keys.map((key, index) => phase(key, ...keys.slice(0, index).filter(() => random(3) === 0)));
    const { nodes, edges } = layOut(phases, SIZE);
    assert.equal(nodes.length, phases.length);
    assert.equal(edges.length, phases.reduce((sum, each) => sum + each.needs.length, 0));
    assert.deepEqual(overlaps(nodes), [], JSON.stringify(phases));
    assert.ok(edges.every((edge) => !edge.path.includes("NaN")));
  }
});

test("what no workflow can be still ends: circles, unknown and doubled needs, nothing at all", () => {
  assert.equal(layOut([phase("a", "b"), phase("b", "a")], SIZE).nodes.length, 2);
  assert.equal(layOut([phase("a", "ghost", "ghost")], SIZE).edges.length, 0);
  assert.deepEqual(layOut([], SIZE).nodes, []);
});

test("titles are wrapped and cut", () => {
  assert.deepEqual(wrap("Write the specification", 14), ["Write the", "specification"]);
  assert.deepEqual(wrap("Review", 14), ["Review"]);
  assert.ok(wrap("one two three four five six", 9)[1].endsWith("…"));
  assert.ok(wrap("x".repeat(50), 10).every((line) => line.length <= 10));
});
