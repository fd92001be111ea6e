// The values of the selected layer: sample, benchmark and difference side by side, one plane at a time.
const viewing = { request: 0 };

function drawTensors(box, layer) {
  const holder = el("div", { class: "tensors" }),
    request = ++viewing.request;
  box.append(holder);
  const show = (tensor) => {
    if (request !== viewing.request) return;
    if (tensor) drawTensor(holder, tensor);
    else holder.append(el("p", { class: "legend" }, data.howToSee || "The page does not have the values of this layer."));
  };
  tensorOf(layer).then(show, () => show(null));
}

async function drawTensor(holder, tensor) {
  const worstFirst = tensor.planes.map((_, at) => at);
  const inOrder = [...worstFirst].sort((a, b) => tensor.planes[a].number - tensor.planes[b].number);
  const title = el("h3", {}),
    shownPlane = el("div", {}),
    bars = el("div", { class: "chart" });
  const slider = el("input", { type: "range", min: 0, max: inOrder.length - 1, "aria-label": `${tensor.noun || "plane"} of the tensor` });
  const use = async (at) => {
    const plane = await tensor.plane(at);
    const stored = tensor.planes.length < tensor.count ? `; the page has the ${tensor.planes.length} with the largest errors` : "";
    title.textContent = tensor.noun ? `Values of ${tensor.noun} ${plane.number} (of ${tensor.count}${stored})` : "Values";
    slider.value = inOrder.indexOf(at);
    slider.setAttribute("aria-valuetext", `${tensor.noun} ${plane.number}`);
    if (tensor.vector) drawVector(shownPlane, plane);
    else drawPlane(shownPlane, plane);
    drawBars(bars, tensor, plane.number, (number) => {
      const found = tensor.planes.findIndex((each) => each.number === number);
      if (found >= 0) use(found);
    });
  };
  slider.addEventListener("input", () => use(inOrder[slider.value]));
  holder.append(title);
  if (tensor.planes.length > 1) holder.append(slider);
  holder.append(shownPlane);
  if (tensor.count > 1 && !tensor.single) holder.append(bars);
  await use(0);
}

const placeText = (plane, row, column) => (plane.size[0] > 1 ? `row ${row}, column ${column}` : `index ${column}`);

function drawPlane(holder, plane) {
  const [rows, columns] = plane.grid,
    [height, width] = plane.size;
  const isWide = width > 3 * height;
  const parts = [
    ["sample", plane.sample, plane.low, plane.high, PALETTES.values],
    ["benchmark", plane.benchmark, plane.low, plane.high, PALETTES.values],
    ["difference", plane.difference, -plane.most, plane.most, PALETTES.differences],
  ];
  const figures = parts.slice(0, plane.single ? 1 : 3).map(([what, values, low, high, colours]) => {
    const map = el("canvas", { width: columns, height: rows, role: "img", "aria-label": `${what}, ${height} × ${width}` });
    paint(map, values, low, high, colours);
    const ring = el("span", { class: "worst-place" }),
      frame = el("div", { class: "plane" }, map, plane.single || plane.most === 0 ? null : ring);
    ring.style.left = `${((plane.column + 0.5) / width) * 100}%`;
    ring.style.top = `${((plane.row + 0.5) / height) * 100}%`;
    hoverValues(map, plane);
    return el("figure", {}, el("figcaption", {}, plane.single ? "" : what), frame);
  });
  const group = el("div", { class: isWide || plane.single ? "planes wide" : "planes" }, ...figures);
  holder.replaceChildren(group, legendOf(plane));
  for (const map of group.querySelectorAll("canvas")) {
    const room = map.parentElement.parentElement.clientWidth || 160,
      factor = Math.min(room / width, 240 / height);
    map.style.width = `${Math.max(width * factor, 8)}px`;
    map.style.height = `${Math.max(height * factor, isWide ? 14 : 8)}px`;
  }
}

function legendOf(plane) {
  const [rows, columns] = plane.grid,
    isReduced = rows < plane.size[0] || columns < plane.size[1];
  return el(
    "p",
    { class: "legend" },
    el("span", {}, `values ${show(plane.low)} `, scaleBar(PALETTES.values), ` ${show(plane.high)}`),
    ...(plane.single ? [] : differenceLegend(plane)),
    isReduced ? el("span", {}, plane.single ? "some values only" : "each point is the value with the largest difference in its area") : null,
    data.picture ? el("span", {}, `values of ${data.picture}`) : null,
    plane.isRounded ? el("span", {}, "8 bits per value") : null,
  );
}

function differenceLegend(plane) {
  return [
    el("span", {}, `difference ${show(-plane.most)} `, scaleBar(PALETTES.differences), ` ${show(plane.most)}`),
    plane.most === 0
      ? el("span", {}, "no difference")
      : el("span", {}, `○ largest difference: ${placeText(plane, plane.row, plane.column)}`),
  ];
}

function hoverValues(map, plane) {
  const [rows, columns] = plane.grid,
    [height, width] = plane.size;
  onHover(map, (event) => {
    const box = map.getBoundingClientRect();
    const x = clamp(Math.floor(((event.clientX - box.left) / box.width) * columns), 0, columns - 1);
    const y = clamp(Math.floor(((event.clientY - box.top) / box.height) * rows), 0, rows - 1),
      i = y * columns + x;
    const place = placeText(plane, Math.floor((y * height) / rows), Math.floor((x * width) / columns));
    if (plane.single) return `${place}\n${show(plane.sample[i])}`;
    return `${place}\nsample ${show(plane.sample[i])}\nbenchmark ${show(plane.benchmark[i])}\ndifference ${show(plane.difference[i])}`;
  });
}

// A vector as stems: benchmark and sample above, the difference below.
function drawVector(holder, plane) {
  const count = plane.grid[1];
  const top = el("div", { class: "chart" }),
    bottom = el("div", { class: "chart" });
  holder.replaceChildren(top, bottom, legendOf(plane));
  const stems = (at, series, low, high, label) => {
    const chart = frame(at, 120, label, 0, plane.size[1] - 1);
    const y = (value) => chart.bottom - ((value - low) / (high - low || 1)) * (chart.bottom - 12);
    for (const mark of ticks(low, high, 3)) markHeight(chart, y(mark), show(mark, 3));
    for (const { values, kind, shift } of series) {
      let path = "";
      values.forEach((value, i) => {
        if (!Number.isFinite(value)) return;
        const x = chart.x((i / Math.max(count - 1, 1)) * (plane.size[1] - 1)) + shift;
        path += `M${x.toFixed(1)} ${y(Math.max(low, Math.min(0, high))).toFixed(1)}V${y(value).toFixed(1)}`;
      });
      chart.root.append(svg("path", { class: `stem ${kind}`, d: path }));
    }
    onHover(chart.root, (event) => {
      const i = clamp(Math.round(((within(event, chart).x - chart.left) / (chart.right - chart.left)) * (count - 1)), 0, count - 1);
      return `index ${Math.round((i / Math.max(count - 1, 1)) * (plane.size[1] - 1))}\nsample ${show(plane.sample[i])}\nbenchmark ${show(plane.benchmark[i])}\ndifference ${show(plane.difference[i])}`;
    });
  };
  const both = [
    { values: plane.benchmark, kind: "of-benchmark", shift: 0 },
    { values: plane.sample, kind: "of-sample", shift: count < 200 ? 2 : 0 },
  ];
  stems(top, plane.single ? both.slice(0, 1) : both, Math.min(plane.low, 0), Math.max(plane.high, 0), "Values of benchmark and sample");
  if (!plane.single) stems(bottom, [{ values: plane.difference, kind: "of-difference", shift: 0 }], -plane.most, plane.most, "Difference");
}

// The error of every plane in order; clicking selects the plane.
function drawBars(holder, tensor, chosen, choose) {
  const errors = tensor.errors.map((error) => (typeof error === "string" ? WORDS[error] : error)),
    step = Math.ceil(tensor.count / errors.length);
  const most = errors.filter(Number.isFinite).reduce((largest, error) => Math.max(largest, error), 0) || 1;
  const chart = canvas(holder, 74, `Error of each ${tensor.noun}, in order`),
    left = 4,
    room = (chart.width - 8) / errors.length;
  errors.forEach((error, i) => {
    const high = Number.isFinite(error) ? (error / most) * 44 : 44;
    const isChosen = chosen >= i * step && chosen < (i + 1) * step;
    chart.root.append(svg("rect", { class: isChosen ? "error chosen-bar" : "error", x: left + i * room, y: 50 - Math.max(high, 0.5), width: Math.max(room * 0.85, 0.6), height: Math.max(high, 0.5) }));
  });
  chart.root.append(line("axis", left, 50, chart.width - 4, 50), words("0", left, 66, "start"), words(String(tensor.count - 1), chart.width - 4, 66, "end"));
  chart.root.append(words(`error of each ${tensor.noun}; click to select`, chart.width / 2, 66, "middle"));
  const under = (event) => clamp(Math.floor((within(event, chart).x - left) / room), 0, errors.length - 1);
  onHover(chart.root, (event) => `${tensor.noun} ${under(event) * step}${step > 1 ? ` to ${Math.min((under(event) + 1) * step, tensor.count) - 1}` : ""}\nΣ|difference| ${show(errors[under(event)])}`);
  chart.root.addEventListener("click", (event) => {
    const from = under(event) * step;
    const known = tensor.planes.map((plane) => plane.number).filter((number) => number >= from && number < from + step);
    if (known.length) choose(known[0]);
    else say("The page does not have the values of this plane");
  });
}
