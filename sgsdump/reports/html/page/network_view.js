// The drawing of the network: what is in the window, the small map, and the selected node.
const MARGIN = 200, // pixels around the window that are drawn too
  READABLE = 0.55, // smallest scale with texts
  SCALES = [0.05, 2];
const look = { scale: 1, drawn: null, chosen: -1, found: new Set() };
const pane = $("network-pane");

function drawNetwork() {
  placeAll();
  resize();
  drawMap();
}

// The pane scrolls over a box as large as the drawing; only nodes in the window are in the page.
function resize() {
  const space = $("network-space");
  space.style.width = `${Math.max(scene.width * look.scale, pane.clientWidth)}px`;
  space.style.height = `${Math.max(scene.height * look.scale, pane.clientHeight)}px`;
  look.drawn = null;
  drawWindow();
}

const shiftOf = () => Math.max((pane.clientWidth / look.scale - scene.width) / 2, 0);

function drawWindow() {
  const { scrollLeft, scrollTop, clientWidth, clientHeight } = pane,
    { scale } = look;
  const seen = { left: scrollLeft / scale - shiftOf(), top: scrollTop / scale, width: clientWidth / scale, height: clientHeight / scale };
  const root = $("network-drawing");
  fill(root, { viewBox: `${seen.left} ${seen.top} ${seen.width} ${seen.height}`, width: clientWidth, height: clientHeight });
  markWindow(seen);
  const d = look.drawn;
  if (d && seen.left >= d.left && seen.top >= d.top && seen.left + seen.width <= d.right && seen.top + seen.height <= d.bottom) return;
  const spare = MARGIN / scale;
  look.drawn = { left: seen.left - spare, top: seen.top - spare, right: seen.left + seen.width + spare, bottom: seen.top + seen.height + spare };
  const inside = ({ x, y, width, height }) =>
    x < look.drawn.right && x + width > look.drawn.left && y < look.drawn.bottom && y + height > look.drawn.top;
  const crosses = ({ points }) =>
    points.some((p, i) => i && inside({ x: Math.min(p.x, points[i - 1].x), y: Math.min(p.y, points[i - 1].y), width: Math.abs(p.x - points[i - 1].x), height: Math.abs(p.y - points[i - 1].y) }));
  const boxes = [...scene.boxes.values()].filter((box) => box.id !== rootGroup() && inside(box));
  const opened = boxes.filter((box) => box.isOpen),
    closed = boxes.filter((box) => !box.isOpen);
  const links = scene.links.filter(crosses).map((link) => svg("path", { class: `carries ${carriedClass(link.error)}`, d: curve(link.points) }));
  root.replaceChildren(...opened.map(openBox), ...links, ...closed.map(closedBox));
}

// A smooth line through the points, vertical at each of them.
function curve(points) {
  let path = `M${points[0].x.toFixed(1)} ${points[0].y.toFixed(1)}`;
  for (let i = 1; i < points.length; i++) {
    const a = points[i - 1],
      b = points[i],
      middle = (a.y + b.y) / 2;
    path += `C${a.x.toFixed(1)} ${middle.toFixed(1)} ${b.x.toFixed(1)} ${middle.toFixed(1)} ${b.x.toFixed(1)} ${b.y.toFixed(1)}`;
  }
  return path;
}

function nameOf(id) {
  if (isGroup(id) && groupOf(id).layer === undefined) return groupOf(id).name || "network";
  const layer = layerAt(id);
  return (layer ? layer.name : graph.parts[id - FIRST_PART][0]).replace(/_output_0$/, "");
}

// The name without the beginning that all layers of its group share.
function labelAt(id) {
  const layer = layerAt(id),
    around = groupOf(parents.get(id));
  if (!layer || around.layers.length < 2) return nameOf(id);
  if (around.common === undefined) around.common = commonOf(around.layers.map((place) => layers[place].name));
  return nameOf(id).slice(around.common);
}

function typeAt(id) {
  if (isGroup(id) && groupOf(id).layer === undefined) return plural(groupOf(id).count, "operator");
  const layer = layerAt(id);
  return layer ? layer.op || "" : graph.parts[id - FIRST_PART][1];
}

function stateOf(id) {
  const layer = layerAt(id),
    isChosen = look.chosen === id || (layer && layer.place === selection.place && visibleOf(layer.place) === id);
  return `${isChosen ? " chosen" : ""}${look.found.has(id) ? " sought" : ""}${layer && layer.rises ? " arises" : ""}`;
}

function openBox({ id, x, y, width, height }) {
  const box = svg("rect", { class: `opened${stateOf(id)}`, x, y, width, height, rx: 8 }),
    parts = [box];
  if (look.scale >= READABLE / 2) parts.push(words(`− ${short(nameOf(id), Math.max(Math.floor(width / 7) - 3, 8))}`, x + 10, y + 18, "start", "strong"));
  return svg("g", { "data-node": id }, ...parts);
}

function closedBox({ id, x, y, width, height }) {
  const value = valueOf(id),
    isBig = isGroup(id),
    node = svg("g", { class: `node ${classOf(value)}${stateOf(id)}`, "data-node": id });
  if (isBig) node.append(svg("rect", { class: "behind", x: x + 4, y: y + 4, width, height, rx: 6 }));
  node.append(svg("rect", { class: "face", x, y, width, height, rx: 6 }), svg("rect", { class: "edge", x, y, width: 6, height, rx: 3 }));
  if (look.scale < READABLE) return node;
  const layer = layerAt(id),
    figure = (layer && layer.rises ? "▲ " : "") + valueText(value),
    room = 21 - figure.length;
  node.append(words(`${isBig ? "+ " : ""}${short(labelAt(id), isBig ? 20 : 22)}`, x + 13, y + 18, "start", "strong"));
  node.append(words(short(typeAt(id), Math.max(room, 8)), x + 13, y + 34, "start"), words(figure, x + width - 8, y + 34, "end"));
  return node;
}

// The whole drawing in a corner, with the window marked; clicking moves the window.
function drawMap() {
  const map = $("network-map"),
    most = { width: 150, height: 170 };
  const scale = Math.min(most.width / scene.width, most.height / scene.height);
  map.hidden = scene.width * look.scale <= pane.clientWidth && scene.height * look.scale <= pane.clientHeight;
  look.mapScale = scale;
  fill(map, { viewBox: `0 0 ${scene.width} ${scene.height}`, width: Math.max(scene.width * scale, 6), height: Math.max(scene.height * scale, 6) });
  const boxes = [...scene.boxes.values()].filter((box) => box.id !== rootGroup());
  const least = 2 / scale;
  const items = boxes.map(({ id, x, y, width, height, isOpen }) =>
    svg("rect", { class: isOpen ? "opened" : classOf(valueOf(id)), x, y, width: Math.max(width, least), height: Math.max(height, least) }),
  );
  map.replaceChildren(...items, svg("rect", { class: "window", id: "network-window" }));
  look.drawn = null;
  drawWindow();
}

function markWindow({ left, top, width, height }) {
  const mark = $("network-window");
  if (!mark) return;
  const x = Math.max(left, 0),
    y = Math.max(top, 0);
  fill(mark, { x, y, width: Math.min(width, scene.width), height: Math.min(height, scene.height) });
}
