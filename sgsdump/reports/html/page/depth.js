// The error over depth: a point per layer, the limit, and triangles where the error rises.
// Two tensors of zeros have no error; their RMSE and COS are 0 / 0.
const areEqual = (layer) => layer.mse === 0;
const EVERY_METRIC = [
  {
    key: "rmse",
    label: "RMSE",
    of: (layer) => (areEqual(layer) ? 0 : layer.rmse),
    log: true,
    limit: limits.rmse,
  },
  {
    key: "cos",
    label: "1 − COS",
    of: (layer) => (areEqual(layer) ? 0 : Math.max(1 - layer.cos, 0)),
    log: true,
    limit: limits.cos === undefined ? undefined : 1 - limits.cos,
    limitText: limits.cos === undefined ? "" : `COS ${show(limits.cos)}`,
  },
  { key: "mse", label: "MSE", of: (layer) => layer.mse, log: true, limit: limits.mse },
  { key: "sqnr", label: "SQNR", unit: " dB", of: (layer) => layer.sqnr, log: false, limit: limits.sqnr },
];
const METRICS = EVERY_METRIC.filter(({ key }) => layers.some((layer) => layer.known.has(key)));
// The visible layers are those from ``from`` up to, but not including, ``to``.
const view = { metric: METRICS[0], from: 0, to: layers.length };
const LEFT = 52,
  RIGHT = 14,
  DECADES = 9,
  WIDE_ENOUGH = 26;
const steepest = Math.max(...layers.map((layer) => layer[WHERE]).filter(Number.isFinite), 0);

// An infinite SQNR is not odd: the sides are equal.
const isOdd = (metric, value) =>
  Number.isNaN(value) || (!Number.isFinite(value) && metric.key !== "sqnr") || value === -Infinity;

// y of a value, and the marks of the axis.
function heights(metric, top, bottom) {
  const values = [...layers, ...then.filter(Boolean)].map(metric.of).filter((value) => Number.isFinite(value) && (!metric.log || value > 0));
  if (Number.isFinite(metric.limit) && (!metric.log || metric.limit > 0)) values.push(metric.limit);
  if (!values.length) values.push(metric.log ? 1 : 0);
  const low = Math.min(...values),
    high = Math.max(...values);
  return metric.log ? logarithmic(low, high, top, bottom) : linear(Math.min(low, 0), high, top, bottom);
}

function logarithmic(low, high, top, bottom) {
  const first = Math.floor(Math.log10(Math.max(low, high * 10 ** -DECADES)) - 0.05);
  const last = Math.max(Math.ceil(Math.log10(high) + 0.05), first + 1);
  const marks = [];
  for (let e = first; e <= last; e += Math.max(1, Math.ceil((last - first) / 8))) marks.push(10 ** e);
  const y = (value) => {
    if (!(value < Infinity)) return top - 10;
    return value > 0 ? bottom - (Math.max(Math.log10(value) - first, 0) / (last - first)) * (bottom - top) : bottom;
  };
  return { y, marks, text: power };
}

function linear(low, high, top, bottom) {
  const marks = ticks(low, high > low ? high : low + 1, 6);
  const most = Math.max(high, marks[marks.length - 1]);
  const y = (value) => {
    if (!(value < Infinity)) return top - 10;
    return value > -Infinity ? bottom - ((value - low) / (most - low)) * (bottom - top) : bottom;
  };
  return { y, marks, text: (value) => show(value) };
}

const xAt = (place, width, from = view.from, to = view.to) =>
  LEFT + ((place + 0.5 - from) / (to - from)) * (width - LEFT - RIGHT);
const placeAt = (x, width) => view.from + ((x - LEFT) / (width - LEFT - RIGHT)) * (view.to - view.from);
const inView = (place) => place >= view.from && place < view.to;

function drawDepth() {
  const holder = $("depth-chart"),
    seen = layers.slice(view.from, view.to);
  const narrow = holder.clientWidth < 620,
    named = seen.length <= Math.floor((holder.clientWidth - 60) / WIDE_ENOUGH);
  const { root, width, height } = canvas(holder, (narrow ? 230 : 280) + (named ? 78 : 0), "");
  const top = 36,
    bottom = height - (named ? 104 : 34),
    right = width - RIGHT,
    scale = heights(view.metric, top, bottom);
  for (const mark of scale.marks) {
    const y = scale.y(mark);
    root.append(line("grid", LEFT, y, right, y), words(scale.text(mark), LEFT - 6, y + 4, "end"));
  }
  root.append(line("axis", LEFT, bottom, right, bottom));
  const points = seen.map((layer) => {
    const value = view.metric.of(layer);
    return { layer, value, x: xAt(layer.place, width), y: scale.y(value) };
  });
  if (inView(selection.place))
    root.append(line("chosen", xAt(selection.place, width), top - 16, xAt(selection.place, width), bottom));
  const hover = line("hover", 0, top - 16, 0, bottom),
    brush = svg("rect", { class: "window", y: top - 16, height: bottom - top + 16 });
  for (const each of [hover, brush]) each.setAttribute("visibility", "hidden");
  root.append(hover);
  if (data.other) root.append(svg("path", { class: "other", d: pathOf(otherPoints(width, scale)) }));
  root.append(svg("path", { class: "line", d: pathOf(points) }));
  drawPoints(root, points, (right - LEFT) / (seen.length || 1));
  if (Number.isFinite(view.metric.limit)) {
    const y = scale.y(view.metric.limit),
      text = `limit ${view.metric.limitText || show(view.metric.limit)}`;
    // Place the text where the fewest points are behind it: right or left, above or below the line.
    const spots = [right - 100, LEFT].flatMap((from) => [y - 5, y + 14].map((base) => ({ from, base })));
    const crowd = ({ from, base }) =>
      points.filter((one) => one.x > from && one.x < from + 100 && Math.abs(one.y - base + 4) < 11).length;
    const spot = spots.reduce((best, each) => (crowd(each) < crowd(best) ? each : best));
    const isLeft = spot.from === LEFT;
    root.append(line("limit", LEFT, y, right, y));
    root.append(words(text, isLeft ? LEFT + 3 : right, spot.base, isLeft ? "start" : "end", "limit-text"));
  }
  drawChosen(root, points, width, narrow);
  if (named) drawNames(root, points, bottom);
  else drawPlaces(root, width, height, bottom, narrow);
  root.append(brush);
  holder.parts = { root, width, hover, brush };
  tellSelected(holder);
  drawStrip();
}

// The visible layers in the other run.
function otherPoints(width, scale) {
  const points = [];
  for (let place = view.from; place < view.to; place++) {
    const value = then[place] ? view.metric.of(then[place]) : NaN;
    points.push({ value, x: xAt(place, width), y: scale.y(value) });
  }
  return points;
}

function pathOf(points) {
  let path = "",
    open = false;
  for (const { x, y, value } of points) {
    if (Number.isFinite(value)) path += `${open ? "L" : "M"}${x.toFixed(1)} ${y.toFixed(1)}`;
    open = Number.isFinite(value);
  }
  return path;
}

// If there is little room, draw only layers that exceed a limit. The size of a triangle shows the rise of the error.
function drawPoints(root, points, room) {
  const radius = clamp(room / 2.6, 2, 4.5);
  for (const { layer, value, x, y } of points) {
    if (isOdd(view.metric, value)) root.append(svg("path", { class: "odd", d: `M${x - 4} ${y - 4}l8 8m0 -8l-8 8` }));
    else if (room > 3.5 || layer.verdict !== "pass")
      root.append(svg("circle", { class: `dot ${layer.verdict}`, cx: x.toFixed(1), cy: y.toFixed(1), r: radius }));
    if (!layer.rises) continue;
    const size = 3 + 4 * Math.sqrt(Number.isFinite(layer[WHERE]) ? clamp(layer[WHERE] / steepest, 0, 1) : 1);
    root.append(
      svg("path", { class: "rise", d: `M${x - size} ${y - radius - 4}h${2 * size}l${-size} ${-1.7 * size}z` }),
    );
  }
}

function drawChosen(root, points, width, narrow) {
  const chosen = points.find(({ layer }) => layer.place === selection.place);
  if (!chosen) return;
  const { layer, value, x, y } = chosen;
  const anchor = x < width * 0.3 ? "start" : x > width * 0.7 ? "end" : "middle";
  const text = `${short(layer.name, narrow ? 24 : 48)}  ${show(value)}${view.metric.unit || ""}`;
  root.append(
    svg("circle", { class: "ring", cx: x, cy: y, r: 7 }),
    words(text, clamp(x, LEFT, width - RIGHT), 10, anchor, "strong"),
  );
}

function drawNames(root, points, bottom) {
  const common = commonOf(points.map(({ layer }) => layer.name));
  for (const { layer, x } of points) {
    const at = { transform: `translate(${x + 4} ${bottom + 12}) rotate(-42)`, "text-anchor": "end" };
    root.append(svg("text", { ...at, class: layer.place === selection.place ? "strong" : "" }, short(layer.name.slice(common), 17)));
  }
}

// Length of the common beginning of all names, up to the end of a part.
function commonOf(names) {
  if (names.length < 2) return 0;
  let length = 0;
  while (length < names[0].length && names.every((name) => name[length] === names[0][length])) length++;
  if (!length) return 0; // lastIndexOf takes -1 for 0
  return Math.max(...["/", ".", "_", ":"].map((sign) => names[0].lastIndexOf(sign, length - 1) + 1), 0);
}

function drawPlaces(root, width, height, bottom, narrow) {
  for (const mark of ticks(view.from, view.to - 1, narrow ? 5 : 10)) {
    if (layers[mark]) root.append(words(String(layers[mark].index), xAt(mark, width), bottom + 16, "middle"));
  }
  root.append(words("number of the layer, in execution order", (LEFT + width - RIGHT) / 2, height - 3, "middle"));
}

function tellSelected(holder) {
  const layer = layers[selection.place];
  if (!layer) return;
  const figure = `${view.metric.label} ${show(view.metric.of(layer))}`;
  fill(holder, {
    "aria-valuenow": layer.place,
    "aria-valuetext": `${layer.name}, ${layer.op || "no type"}, ${figure}, ${layer.verdict}`,
  });
}

// A small chart of the whole model, with the visible part marked.
function drawStrip() {
  const { root, width } = canvas($("depth-strip"), 44, "");
  const scale = heights(view.metric, 6, 40);
  const points = layers.map((layer) => ({
    x: xAt(layer.place, width, 0, layers.length),
    y: scale.y(view.metric.of(layer)),
    value: view.metric.of(layer),
  }));
  const edge = (place) => LEFT + (place / layers.length) * (width - LEFT - RIGHT);
  const from = edge(view.from),
    to = Math.max(edge(view.to), from + 3);
  root.append(svg("path", { class: "line", d: pathOf(points) }), line("axis", LEFT, 42, width - RIGHT, 42));
  root.append(svg("rect", { class: "window", x: from, width: to - from, y: 1, height: 41, rx: 3 }));
  for (const x of [from, to])
    root.append(svg("rect", { class: "handle", x: x - 2.5, width: 5, y: 13, height: 17, rx: 2.5 }));
}
