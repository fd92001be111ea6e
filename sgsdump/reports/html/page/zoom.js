// Navigation and zoom in the chart of the error over depth: pointer, keys and buttons.
const FEWEST = 4,
  STEPS = { ArrowRight: 1, ArrowUp: 1, ArrowLeft: -1, ArrowDown: -1, PageUp: 10, PageDown: -10 };
const STEEPEST = 5;
const CLICK = 6,
  GRIP = 9; // pixels: movement below which a drag is a click; distance within which an edge can be dragged

function zoomTo(from, to) {
  const least = Math.min(FEWEST, layers.length);
  const size = clamp(Math.ceil(to) - Math.floor(from), least, layers.length);
  const short = size - (Math.ceil(to) - Math.floor(from));
  view.from = clamp(Math.floor(from) - (short > 0 ? Math.floor(short / 2) : 0), 0, layers.length - size);
  view.to = view.from + size;
  drawDepth();
}

function zoomBy(factor) {
  const middle = inView(selection.place) ? selection.place + 0.5 : (view.from + view.to) / 2;
  const half = ((view.to - view.from) * factor) / 2;
  zoomTo(middle - half, middle + half);
  say(`Layers ${view.from} to ${view.to - 1} of ${layers.length}`);
}

function showWhole() {
  zoomTo(0, layers.length);
  say("Whole model");
}

// The zoom follows the selected layer.
function follow(layer) {
  const half = (view.to - view.from) / 2;
  if (inView(layer.place)) drawDepth();
  else zoomTo(layer.place - half, layer.place + half);
}

function startChart() {
  const holder = $("depth-chart");
  fill(holder, {
    tabindex: 0,
    role: "slider",
    "aria-label": "Selected layer, in execution order",
    "aria-valuemin": 0,
    "aria-valuemax": layers.length - 1,
    "aria-valuenow": 0,
  });
  let start = null;
  const at = (event) => within(event, holder.parts).x;
  const under = (event) => clamp(Math.floor(placeAt(at(event), holder.parts.width)), view.from, view.to - 1);
  holder.addEventListener("pointerdown", (event) => {
    start = event.button === 0 ? at(event) : null;
    if (event.pointerType === "mouse") holder.setPointerCapture(event.pointerId);
  });
  holder.addEventListener("pointermove", (event) => {
    const place = under(event),
      x = at(event),
      { hover, brush, width } = holder.parts;
    fill(hover, { x1: xAt(place, width), x2: xAt(place, width), visibility: "visible" });
    if (start !== null && Math.abs(x - start) > CLICK)
      fill(brush, { x: Math.min(x, start), width: Math.abs(x - start), visibility: "visible" });
    tip(event, summary(layers[place]));
  });
  holder.addEventListener("pointerleave", (event) => {
    tip(event, "");
    holder.parts.hover.setAttribute("visibility", "hidden");
  });
  holder.addEventListener("pointerup", (event) => {
    if (start === null) return;
    const ends = [start, at(event)].sort((a, b) => a - b);
    start = null;
    if (ends[1] - ends[0] > CLICK) zoomTo(...ends.map((x) => placeAt(x, holder.parts.width)));
    else select(under(event));
  });
  holder.addEventListener("pointercancel", () => {
    start = null;
  });
  holder.addEventListener("dblclick", showWhole);
  holder.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (STEPS[event.key]) select(clamp(selection.place + STEPS[event.key], 0, layers.length - 1));
    else if (event.key === "Home") select(0);
    else if (event.key === "End") select(layers.length - 1);
    else if (event.key === "+" || event.key === "=") zoomBy(0.5);
    else if (event.key === "-") zoomBy(2);
    else if (event.key === "Escape" || event.key === "0") showWhole();
    else return;
    event.preventDefault();
  });
}

function summary(layer) {
  const rise = layer.rises ? `\n${HERE}` : "",
    sqnr = figure(layer, "sqnr");
  return `${short(layer.name, 120)}${layer.op ? ` (${layer.op})` : ""}\nRMSE ${figure(layer, "rmse")}  COS ${figure(layer, "cos")}\nMSE ${figure(layer, "mse")}${sqnr && `  SQNR ${sqnr} dB`}${rise}`;
}

// Dragging the window in the strip moves it, dragging an edge resizes it, and dragging elsewhere draws a new window.
function startStrip() {
  const strip = $("depth-strip");
  let move = null;
  const room = () => strip.clientWidth - LEFT - RIGHT;
  const placeOf = (event) =>
    clamp(((event.clientX - strip.getBoundingClientRect().left - LEFT) / room()) * layers.length, 0, layers.length);
  strip.addEventListener("pointerdown", (event) => {
    strip.setPointerCapture(event.pointerId);
    const here = placeOf(event),
      { from, to } = view,
      near = (GRIP / room()) * layers.length;
    const size = to - from,
      whole = size >= layers.length;
    if (Math.abs(here - from) < near) move = (place) => zoomTo(Math.min(place, to - 1), to);
    else if (Math.abs(here - to) < near) move = (place) => zoomTo(from, Math.max(place, from + 1));
    else if (!whole && here > from && here < to) move = (place) => moveTo(Math.round(from + place - here), size);
    else move = (place) => Math.abs(place - here) > near && zoomTo(Math.min(place, here), Math.max(place, here));
  });
  strip.addEventListener("pointermove", (event) => move && move(placeOf(event)));
  for (const end of ["pointerup", "pointercancel"])
    strip.addEventListener(end, () => {
      move = null;
    });
}

function moveTo(from, size) {
  const first = clamp(from, 0, layers.length - size);
  zoomTo(first, first + size);
}

function startMetrics() {
  const group = $("metric");
  for (const metric of METRICS)
    group.append(button({ role: "radio", "data-metric": metric.key }, () => choose(metric), metric.label));
  onArrows(group, METRICS, () => view.metric, choose);
  markMetric();
}

function choose(metric) {
  view.metric = metric;
  markMetric();
  drawDepth();
}

function markMetric() {
  for (const each of $("metric").children) {
    const on = each.dataset.metric === view.metric.key;
    fill(each, { "aria-checked": String(on), tabindex: on ? "0" : "-1" });
  }
}

function nameSteepest() {
  const rising = layers.filter((layer) => layer.rises).sort((a, b) => compareBy(WHERE)(b, a));
  const buttons = rising
    .slice(0, STEEPEST)
    .map((layer) =>
      button(
        { title: layer.name },
        () => select(layer.place),
        written(short(layer.name, 40)),
        ` ▲ ${layer.known.has(WHERE) || !measuredHere ? show(layer[WHERE]) : ""}`,
      ),
    );
  const first = layers[data.first];
  const cause = first ? ["First finding:", button({ title: first.name }, () => select(first.place), written(short(first.name, 40)))] : [];
  $("steepest").append(...cause, measuredHere ? "Gives back most:" : "Rises most:", ...buttons);
  $("steepest").hidden = !buttons.length && !first;
}

function startDepth() {
  $("depth").hidden = false;
  nameSteepest();
  $("zoom-in").addEventListener("click", () => zoomBy(0.5));
  $("zoom-out").addEventListener("click", () => zoomBy(2));
  $("zoom-all").addEventListener("click", showWhole);
  startChart();
  startStrip();
  startMetrics();
  onSelect(follow);
}
