// The neighbours of the selected layer as a small clickable graph: its sources, the layer, its consumers.
const MOST_NEIGHBOURS = 4,
  NOBODY = data.measured ? "no compared layer" : "no tensor";

function drawNeighbours(box, layer) {
  const before = neighbours(layer.sources, NOBODY),
    after = neighbours(layer.feeds, NOBODY);
  const here = el("div", {}, el("div", { class: `here is-${layer.verdict}` }, ...labelOf(layer)));
  const links = svg("svg", { "aria-hidden": "true" });
  const graph = el(
    "div",
    { class: "walk", role: "group", "aria-label": "Sources and consumers of this layer" },
    links,
    before,
    here,
    after,
  );
  box.append(el("h3", {}, "Fed by  →  this layer  →  feeds"), graph);
  drawLinks(graph, links, before, here.firstChild, after);
}

function labelOf(layer) {
  return [written(short(layer.name, 40)), el("small", {}, `${layer.op ? layer.op + "  " : ""}${data.measured ? show(layer.rmse) : ""}`)];
}

function neighbours(places, none) {
  const hidden = places.length - MOST_NEIGHBOURS;
  const nodes = places.slice(0, MOST_NEIGHBOURS).map((place) => {
    const layer = layers[place];
    return button({ class: `is-${layer.verdict}`, title: layer.name }, () => select(place), ...labelOf(layer));
  });
  if (!nodes.length) nodes.push(el("span", { class: "none" }, none));
  if (hidden > 0) nodes.push(el("span", { class: "none" }, `and ${hidden} more`));
  return el("div", {}, ...nodes);
}

function drawLinks(graph, links, before, here, after) {
  const frame = graph.getBoundingClientRect();
  if (!frame.width) return;
  const flat = getComputedStyle(graph).gridTemplateColumns.split(" ").length > 1;
  // On paper, the graph shrinks with its box.
  fill(links, { viewBox: `0 0 ${frame.width} ${frame.height}`, preserveAspectRatio: "none" });
  const link = (from, to) => {
    const a = from.getBoundingClientRect(),
      b = to.getBoundingClientRect();
    const [x1, x2] = (flat ? [a.right, b.left] : [(a.left + a.right) / 2, (b.left + b.right) / 2]).map(
      (x) => x - frame.left,
    );
    const [y1, y2] = (flat ? [(a.top + a.bottom) / 2, (b.top + b.bottom) / 2] : [a.bottom, b.top]).map(
      (y) => y - frame.top,
    );
    const middle = (x1 + x2) / 2;
    links.append(
      svg("path", {
        class: "link",
        d: flat ? `M${x1} ${y1}C${middle} ${y1} ${middle} ${y2} ${x2} ${y2}` : `M${x1} ${y1}L${x2} ${y2}`,
      }),
    );
  };
  const sources = [...before.querySelectorAll("button")],
    fed = [...after.querySelectorAll("button")];
  for (const node of flat ? sources : sources.slice(-1)) link(node, here);
  for (const node of flat ? fed : fed.slice(0, 1)) link(here, node);
}
