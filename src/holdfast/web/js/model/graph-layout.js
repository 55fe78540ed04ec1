// Pure: where the phases of a workflow stand. Layers by the longest way from a beginning; an edge over several layers gets
// a place in each, so that no line runs through a box; two sweeps bring neighbours beside each other.

// Gives `{ width, height, nodes, edges }`: nodes with their top left corner, in the order of the phases, edges as SVG paths.
export function layOut(phases, { width, height, isDown = false, gapAcross = 16, gapAlong = isDown ? 26 : 36 }) {
  const layers = toLayers(phases);
  const { byKey, places, edges } = placeAll(phases, layers);
  order(places);
  const [across, along] = isDown ? [width, height] : [height, width];
  const extent = (count, size, gap) => Math.max(size, count * (size + gap) - gap);
  const span = Math.max(across, ...places.map((layer) => extent(layer.length, across, gapAcross)));
  places.forEach((layer, index) =>
    layer.forEach((place, row) => {
      const a = (span - extent(layer.length, across, gapAcross)) / 2 + row * (across + gapAcross);
      const l = index * (along + gapAlong);
      Object.assign(place, isDown ? { x: a, y: l } : { x: l, y: a });
    }),
  );
  const length = extent(places.length, along, gapAlong);
  return {
    width: isDown ? span : length,
    height: isDown ? length : span,
    nodes: phases.map(({ key }) => ({ key, layer: layers.get(key), x: byKey.get(key).x, y: byKey.get(key).y })),
    edges: edges.map((chain) => ({ from: chain[0].key, to: chain.at(-1).key, path: toPath(chain, width, height, isDown) })),
  };
}

const needsOf = (phases, { needs }) => [...new Set(needs)].filter((key) => phases.some((phase) => phase.key === key));

// The layer of each phase. What waits in a circle (no valid workflow does) stands after the rest instead of looping.
export function toLayers(phases) {
  const layers = new Map();
  let left = phases;
  while (left.length) {
    const ready = left.filter((phase) => needsOf(phases, phase).every((key) => layers.has(key)));
    const now = ready.length ? ready : left;
    const found = now.map((phase) => [phase.key, 1 + Math.max(-1, ...needsOf(phases, phase).map((key) => layers.get(key) ?? -1))]);
    for (const [key, layer] of found) layers.set(key, layer);
    left = left.filter((phase) => !now.includes(phase));
  }
  return layers;
}

// Places by layer, and each edge as the chain of places it runs through.
function placeAll(phases, layers) {
  const places = Array.from({ length: 1 + Math.max(-1, ...layers.values()) }, () => []);
  const put = (layer, key) => {
    const place = { key, before: [], after: [] };
    places[layer].push(place);
    return place;
  };
  const byKey = new Map(phases.map(({ key }) => [key, put(layers.get(key), key)]));
  const toChain = (from, to) => {
    const chain = [byKey.get(from)];
    for (let layer = layers.get(from) + 1; layer < layers.get(to); layer++) chain.push(put(layer));
    chain.push(byKey.get(to));
    chain.slice(1).forEach((place, index) => {
      place.before.push(chain[index]);
      chain[index].after.push(place);
    });
    return chain;
  };
  return { byKey, places, edges: phases.flatMap((phase) => needsOf(phases, phase).map((from) => toChain(from, phase.key))) };
}

function order(places) {
  const number = (layer) => layer.forEach((place, row) => (place.row = row - (layer.length - 1) / 2));
  const sweep = (layers, side) => {
    for (const layer of layers) {
      for (const place of layer) place.wish = place[side].length ? place[side].reduce((sum, { row }) => sum + row, 0) / place[side].length : place.row;
      number(layer.sort((a, b) => a.wish - b.wish || a.row - b.row));
    }
  };
  places.forEach(number);
  sweep(places.slice(1), "before");
  sweep(places.slice(0, -1).reverse(), "after");
}

function toPath(chain, width, height, isDown) {
  const side = ({ x, y }, isEnd) => (isDown ? [x + width / 2, y + (isEnd ? height : 0)] : [x + (isEnd ? width : 0), y + height / 2]);
  return chain.slice(1).reduce((path, place, index) => {
    const [[ax, ay], [bx, by]] = [side(chain[index], true), side(place, false)];
    const [mx, my] = [(ax + bx) / 2, (ay + by) / 2];
    return `${path}${index ? "L" : "M"}${ax} ${ay}C${isDown ? `${ax} ${my} ${bx} ${my}` : `${mx} ${ay} ${mx} ${by}`} ${bx} ${by}`;
  }, "");
}

// Text in at most two lines of so many characters; what does not fit ends in "…".
export function wrap(text, most) {
  const lines = [];
  for (const word of text.trim().split(/\s+/)) {
    if (lines.length && `${lines.at(-1)} ${word}`.length <= most) lines.push(`${lines.pop()} ${word}`);
    else lines.push(word);
  }
  return lines.slice(0, 2).map((line, index) => (line.length > most || (index && lines[2]) ? `${line.slice(0, most - 1)}…` : line));
}
