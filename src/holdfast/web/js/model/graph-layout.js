// Pure: where the phases of a workflow stand. Layers by the longest way from a beginning; an edge over several layers gets
// a place in each, so that no line runs through a box; two sweeps bring neighbours beside each other.

/**
 * `layOut([{ key, needs }], { width, height, isDown })` gives `{ width, height, nodes, edges }`: nodes `{ key, layer, x, y }`
 * (top left corner), edges `{ from, to, path }` (for an SVG path). `gapAcross` is between rows, `gapAlong` between layers.
 */
export function layOut(phases, { width, height, isDown = false, gapAcross = 16, gapAlong = isDown ? 26 : 36 }) {
  const layers = toLayers(phases);
  const { places, edges } = placeAll(phases, layers);
  order(places);
  const [across, along] = isDown ? [width, height] : [height, width];
  const extent = (count) => Math.max(0, count * (across + gapAcross) - gapAcross);
  const span = Math.max(across, ...places.map((layer) => extent(layer.length)));
  for (const [index, layer] of places.entries()) {
    for (const [row, place] of layer.entries()) {
      const a = (span - extent(layer.length)) / 2 + row * (across + gapAcross);
      const l = index * (along + gapAlong);
      Object.assign(place, isDown ? { x: a, y: l } : { x: l, y: a });
    }
  }
  const length = Math.max(along, places.length * (along + gapAlong) - gapAlong);
  const nodes = places.flat().filter((place) => place.key);
  return {
    width: isDown ? span : length,
    height: isDown ? length : span,
    nodes: phases.map(({ key }) => nodes.find((place) => place.key === key)).map(({ key, x, y }) => ({ key, layer: layers.get(key), x, y })),
    edges: edges.map((chain) => ({ from: chain[0].key, to: chain.at(-1).key, path: toPath(chain, width, height, isDown) })),
  };
}

function needsOf(phases, { needs }) {
  return [...new Set(needs)].filter((key) => phases.some((phase) => phase.key === key));
}

/** The layer of each phase. What waits in a circle (no valid workflow does) stands after the rest instead of looping. */
export function toLayers(phases) {
  const layers = new Map();
  let left = phases;
  while (left.length > 0) {
    const ready = left.filter((phase) => needsOf(phases, phase).every((key) => layers.has(key)));
    const now = ready.length > 0 ? ready : left;
    const found = now.map((phase) => [phase.key, 1 + Math.max(-1, ...needsOf(phases, phase).map((key) => layers.get(key) ?? -1))]);
    for (const [key, layer] of found) layers.set(key, layer);
    left = left.filter((phase) => !now.includes(phase));
  }
  return layers;
}

/** Places by layer, and each edge as the chain of places it runs through. */
function placeAll(phases, layers) {
  const places = Array.from({ length: 1 + Math.max(-1, ...layers.values()) }, () => []);
  const put = (layer, key = null) => {
    const place = { key, before: [], after: [] };
    places[layer].push(place);
    return place;
  };
  const byKey = new Map(phases.map(({ key }) => [key, put(layers.get(key), key)]));
  const edges = phases.flatMap((phase) =>
    needsOf(phases, phase).map((from) => {
      const chain = [byKey.get(from)];
      for (let layer = layers.get(from) + 1; layer < layers.get(phase.key); layer++) chain.push(put(layer));
      chain.push(byKey.get(phase.key));
      for (let index = 1; index < chain.length; index++) {
        chain[index].before.push(chain[index - 1]);
        chain[index - 1].after.push(chain[index]);
      }
      return chain;
    }),
  );
  return { places, edges };
}

function order(places) {
  const number = (layer) => layer.forEach((place, row) => (place.row = row - (layer.length - 1) / 2));
  places.forEach(number);
  for (const [layers, side] of [[places.slice(1), "before"], [places.slice(0, -1).reverse(), "after"]]) {
    for (const layer of layers) {
      const wish = (place) => (place[side].length ? place[side].reduce((sum, each) => sum + each.row, 0) / place[side].length : place.row);
      const wishes = new Map(layer.map((place) => [place, wish(place)]));
      layer.sort((a, b) => wishes.get(a) - wishes.get(b) || a.row - b.row);
      number(layer);
    }
  }
}

function toPath(chain, width, height, isDown) {
  const side = ({ x, y }, isEnd) => (isDown ? [x + width / 2, y + (isEnd ? height : 0)] : [x + (isEnd ? width : 0), y + height / 2]);
  return chain.slice(1).reduce((path, place, index) => {
    const [[ax, ay], [bx, by]] = [side(chain[index], true), side(place, false)];
    const [mx, my] = [(ax + bx) / 2, (ay + by) / 2];
    return `${path}${index ? "L" : "M"}${ax} ${ay}C${isDown ? `${ax} ${my} ${bx} ${my}` : `${mx} ${ay} ${mx} ${by}`} ${bx} ${by}`;
  }, "");
}

/** Text in at most two lines of so many characters; what does not fit ends in "…". */
export function wrap(text, most) {
  const lines = [""];
  for (const word of String(text).trim().split(/\s+/)) {
    const joined = `${lines.at(-1)} ${word}`.trim();
    if (joined.length <= most || !lines.at(-1)) lines[lines.length - 1] = joined;
    else lines.push(word);
  }
  const cut = (line, isMore) => (isMore || line.length > most ? `${line.slice(0, most - 1)}…` : line);
  return lines.slice(0, 2).map((line, index) => cut(line, index === 1 && lines.length > 2));
}
