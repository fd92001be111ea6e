// Histograms of the values of both sides and of the error, and the mean error against the value.
const LEVELS = 256,
  FLOOR = 0.06; // height of a bin with one value

function drawValues(holder, layer, d) {
  const [sample, benchmark] = d.counts.map((count) => plural(count, "value"));
  const label = `Histograms of the values of ${layer.name}: ${sample} of the sample, ${benchmark} of the benchmark`;
  const range = d.range && d.range.map(number);
  drawHistogram(
    holder,
    d.edges,
    [
      ["benchmark", d.benchmark],
      ["sample", d.sample],
    ],
    { label, range, height: 200 },
  );
}

function drawErrors(holder, d) {
  drawHistogram(holder, d.errorEdges, [["error", d.errors]], {
    label: "Histogram of the error",
    height: 150,
    zero: true,
  });
}

function drawHistogram(holder, edges, series, { label, range, height, zero }) {
  const bins = series[0][1].length,
    size = (edges[1] - edges[0]) / bins;
  if (!bins) return holder.append("no finite value");
  const low = Math.min(edges[0], ...(range || [])),
    high = Math.max(edges[1], ...(range || []));
  const pad = (high - low) * 0.01 || 1;
  const chart = frame(holder, height, label, low - pad, high + pad, range ? 32 : 20),
    top = range ? 20 : 10;
  const most = Math.max(1, ...series.flatMap(([, counts]) => counts)),
    digits = Math.log10(most);
  const part = (count) => (count > 0 ? FLOOR + (1 - FLOOR) * (Math.log10(count) / (digits || 1)) : 0);
  const y = (count) => chart.bottom - part(count) * (chart.bottom - top);
  for (let e = 0; 10 ** e <= most; e += Math.max(1, Math.ceil(digits / 4)))
    markHeight(chart, y(10 ** e), e > 3 ? `1e${e}` : String(10 ** e));
  if (zero) chart.root.append(line("hover", chart.x(0), top, chart.x(0), chart.bottom));
  for (const [name, counts] of series) {
    const steps = counts.map((count, i) => `V${y(count).toFixed(1)}H${chart.x(edges[0] + (i + 1) * size).toFixed(1)}`);
    chart.root.append(
      svg("path", {
        class: name,
        d: `M${chart.x(edges[0]).toFixed(1)} ${chart.bottom}${steps.join("")}V${chart.bottom}`,
      }),
    );
  }
  if (range) drawRange(chart, range, top);
  onHover(chart.root, (event) => {
    const i = binAt(event, chart, edges[0], size);
    if (i < 0 || i >= bins) return "";
    const about = (count) => (count < 1000 ? String(count) : `about ${count.toLocaleString("en")}`);
    return `${span(edges[0] + i * size, size)}\n${series.map(([name, counts]) => `${name}: ${about(counts[i])}`).join("\n")}`;
  });
}

const span = (from, size) => `${show(from)} … ${show(from + size)}`;
const binAt = (event, chart, first, size) =>
  Math.floor((within(event, chart).x - chart.x(first)) / (chart.x(first + size) - chart.x(first)));

// The calibration range, the values outside it, and below the axis as many levels as can be distinguished.
function drawRange(chart, range, top) {
  const { root, left, right, bottom } = chart,
    [low, high] = range.map(chart.x);
  const outside = (from, to) =>
    svg("rect", { class: "outside", x: from, width: Math.max(to - from, 0), y: top, height: bottom - top });
  root.append(outside(left, low), outside(high, right));
  for (const [x, text, anchor] of [
    [low, `min ${show(range[0])}`, "start"],
    [high, `max ${show(range[1])}`, "end"],
  ]) {
    root.append(line("range", x, top - 4, x, bottom), words(text, clamp(x, left, right), 11, anchor));
  }
  const every = [1, 2, 4].find((step) => (high - low) * step >= 2 * LEVELS) || 16;
  let path = "";
  for (let i = 0; i <= LEVELS; i += every)
    path += `M${(low + ((high - low) * i) / LEVELS).toFixed(1)} ${bottom + 19}v${i % 64 ? 5 : 9}`;
  root.append(svg("path", { class: "levels", d: path }));
}

// Rounding alone changes a value by a quarter of a step on average.
function drawByValue(holder, layer, d) {
  const values = d.byValue.map(number),
    bins = values.length,
    [low, high] = d.edges,
    size = (high - low) / bins;
  if (!bins) return holder.append("no finite value");
  const filled = (i) => d.benchmark[i] > 0;
  const rounding = stepOf(layer, d) / 4,
    known = values.filter((value, i) => filled(i) && Number.isFinite(value));
  const most = Math.max(...known, Number.isFinite(rounding) ? rounding * 1.2 : 0) || 1;
  const chart = frame(holder, 150, "Mean absolute error against the benchmark's value", low, high);
  const top = 12,
    y = (value) => chart.bottom - (Math.min(value, most) / most) * (chart.bottom - top);
  for (const mark of ticks(0, most, 3)) markHeight(chart, y(mark), show(mark, 2));
  const bars = values.map((value, i) => {
    const from = chart.x(low + i * size).toFixed(1),
      to = chart.x(low + (i + 1) * size).toFixed(1);
    return filled(i) && value >= 0 ? `M${from} ${chart.bottom}V${y(value).toFixed(1)}H${to}V${chart.bottom}z` : "";
  });
  chart.root.append(svg("path", { class: "error", d: bars.join("") }));
  if (rounding > most * 0.004) {
    const text = layer.scale ? "rounding alone" : "rounding to 8 bits alone";
    chart.root.append(
      line("range", chart.left, y(rounding), chart.right, y(rounding)),
      words(text, chart.right, Math.max(y(rounding) - 4, 9), "end", "strong"),
    );
  }
  onHover(chart.root, (event) => {
    const i = binAt(event, chart, low, size);
    return i >= 0 && i < bins && filled(i) ? `${span(low + i * size, size)}\nmean |error| ${show(values[i])}` : "";
  });
}

function stepOf(layer, d) {
  if (layer.scale && layer.scales === 1) return number(layer.scale[0]);
  return d.range ? (number(d.range[1]) - number(d.range[0])) / (LEVELS - 1) : NaN;
}
