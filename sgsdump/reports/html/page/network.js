// The network: its operators in groups, which groups are open, and the position of each visible node.
const graph = data.graph;
const BOX = { width: 172, height: 44, gapX: 22, gapY: 30, head: 26, pad: 14 };
const UNIT = BOX.width + BOX.gapX;
const THIN = 0.16; // half of the width of a bend, relative to UNIT
const FIRST_PART = layers.length;
const FIRST_GROUP = graph ? FIRST_PART + graph.parts.length : 0;
const parents = new Map();
const openGroups = new Set();
const scene = { boxes: new Map(), links: [], width: 0, height: 0 };

const isGroup = (id) => id >= FIRST_GROUP;
const groupOf = (id) => graph.groups[id - FIRST_GROUP];
// The compared layer of a node; undefined for an operator that was not compared, and for a module.
const layerAt = (id) => layers[isGroup(id) ? groupOf(id).layer : id];
const readsOf = (id) => graph.reads[id] || (id < FIRST_PART ? layers[id].sources : []);
const rootGroup = () => FIRST_GROUP + graph.groups.length - 1;

function startShape() {
  for (const [at, group] of graph.groups.entries()) {
    for (const child of group.children) parents.set(child, FIRST_GROUP + at);
  }
  // Inner groups come before the groups around them.
  for (const group of graph.groups) {
    group.layers = group.children.flatMap((child) => (isGroup(child) ? groupOf(child).layers : child < FIRST_PART ? [child] : []));
    group.count = group.children.reduce((sum, child) => sum + (isGroup(child) ? groupOf(child).count : 1), 0);
    group.bends = new Map(group.links.map(([from, to, ...xs]) => [`${group.children[from]} ${group.children[to]}`, xs]));
  }
  openGroups.add(rootGroup());
}

function ancestors(id) {
  const found = [id];
  while (parents.has(found[found.length - 1])) found.push(parents.get(found[found.length - 1]));
  return found;
}

// The visible node that shows a node: itself, or the outermost closed group around it.
function visibleOf(id) {
  let seen = id;
  for (const each of ancestors(id)) if (isGroup(each) && !openGroups.has(each)) seen = each;
  return seen;
}

function placeAll() {
  scene.boxes = new Map();
  const root = sized(rootGroup());
  put(root, 0, 0);
  Object.assign(scene, { width: root.width, height: root.height, links: visibleLinks() });
}

// A node with its size; an open group with its children at their places.
function sized(id) {
  if (!isGroup(id) || !openGroups.has(id)) return { id, width: BOX.width, height: BOX.height };
  const group = groupOf(id),
    nodes = group.children.map(sized),
    rows = rowsOf(group, nodes);
  const isRoot = id === rootGroup(),
    top = BOX.pad + (isRoot ? 0 : BOX.head);
  let y = top;
  for (const row of rows) {
    const high = Math.max(BOX.height, ...row.filter((item) => item.node).map((item) => item.node.height));
    for (const item of row) {
      if (item.node) Object.assign(item.node, { y: y + (high - item.node.height) / 2 });
      item.y = y + high / 2;
    }
    y += high + BOX.gapY;
  }
  const items = rows.flat();
  const left = Math.min(...items.map((item) => item.x - item.half)) - BOX.pad,
    right = Math.max(...items.map((item) => item.x + item.half)) + BOX.pad;
  for (const { node, x } of items) if (node) node.x = x - node.width / 2 - left;
  const bends = new Map(items.filter((item) => !item.node).map((item) => [item.key, { x: item.x - left, y: item.y }]));
  return { id, nodes, bends, width: right - left, height: y - BOX.gapY + BOX.pad };
}

// The rows of a group: its nodes and the bends of links that cross the row, from left to right, without overlap.
function rowsOf(group, nodes) {
  const count = Math.max(...group.rows) + 1,
    rows = Array.from({ length: count }, () => new Map());
  nodes.forEach((node, at) => {
    const half = (node.width + BOX.gapX) / 2;
    rows[group.rows[at]].set(`node ${at}`, { node, x: group.x[at] * UNIT, half });
  });
  for (const [from, to, ...xs] of group.links) {
    const top = Math.min(group.rows[from], group.rows[to]);
    xs.forEach((x, i) => {
      const key = `${top + 1 + i} ${x}`;
      rows[top + 1 + i].set(key, { key, x: x * UNIT, half: THIN * UNIT });
    });
  }
  return rows.map((row) => apart([...row.values()].sort((a, b) => a.x - b.x)));
}

// Move items of a row apart if an open group needs more room, as little as possible in total.
function apart(row) {
  const blocks = [];
  let offset = 0;
  for (const item of row) {
    item.offset = offset + item.half;
    offset += 2 * item.half;
    blocks.push({ sum: item.x - item.offset, count: 1 });
    while (blocks.length > 1) {
      const [before, last] = blocks.slice(-2);
      if (before.sum / before.count <= last.sum / last.count) break;
      blocks.splice(-2, 2, { sum: before.sum + last.sum, count: before.count + last.count });
    }
  }
  let at = 0;
  for (const { sum, count } of blocks) {
    for (const item of row.slice(at, at + count)) item.x = sum / count + item.offset;
    at += count;
  }
  return row;
}

function put(node, x, y) {
  scene.boxes.set(node.id, { id: node.id, x, y, width: node.width, height: node.height, isOpen: Boolean(node.nodes), bends: node.bends });
  for (const child of node.nodes || []) put(child, x + child.x, y + child.y);
}

// One link for all links between two visible nodes, with the largest error that it carries.
function visibleLinks() {
  const links = new Map(),
    seen = new Map();
  const shownAs = (id) => {
    if (!seen.has(id)) seen.set(id, visibleOf(id));
    return seen.get(id);
  };
  for (let id = 0; id < FIRST_GROUP; id++) {
    for (const source of readsOf(id)) {
      const from = shownAs(source),
        to = shownAs(id);
      if (from === to) continue;
      const key = `${from} ${to}`,
        error = layers[source] ? layers[source].rmse : NaN;
      if (!links.has(key)) links.set(key, { from, to, error, points: pointsOf(from, to) });
      else if (!(links.get(key).error >= error)) links.get(key).error = error;
    }
  }
  return [...links.values()];
}

// The ends of a link, and its bends in the group around both.
function pointsOf(from, to) {
  const a = scene.boxes.get(from),
    b = scene.boxes.get(to),
    above = ancestors(from),
    below = ancestors(to);
  const around = above.find((id) => below.includes(id)),
    group = groupOf(around),
    box = scene.boxes.get(around);
  const one = above[above.indexOf(around) - 1],
    other = below[below.indexOf(around) - 1];
  const xs = group.bends.get(`${one} ${other}`) || [],
    rowOf = (id) => group.rows[group.children.indexOf(id)];
  const top = Math.min(rowOf(one), rowOf(other)),
    isDown = rowOf(one) <= rowOf(other);
  const bends = xs.map((x, i) => box.bends.get(`${top + 1 + i} ${x}`)).map(({ x, y }) => ({ x: box.x + x, y: box.y + y }));
  const start = { x: a.x + a.width / 2, y: isDown ? a.y + a.height : a.y },
    end = { x: b.x + b.width / 2, y: isDown ? b.y : b.y + b.height };
  return [start, ...(isDown ? bends : bends.reverse()), end];
}
