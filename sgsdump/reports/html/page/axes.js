// Common parts of charts: a drawing as wide as its container, marks at round numbers, a frame with a value axis.
const clamp = (value, low, high) => Math.min(Math.max(value, low), high);

function canvas(holder, height, label) {
  const width = Math.max(holder.clientWidth, 240);
  const told = label ? { role: "img", "aria-label": label } : { "aria-hidden": "true" };
  const root = svg("svg", { viewBox: `0 0 ${width} ${height}`, ...told });
  holder.replaceChildren(root);
  return { root, width, height };
}

// About count round numbers from low to high.
function ticks(low, high, count) {
  if (!(high > low)) return [low];
  const raw = (high - low) / count;
  const unit = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].find((times) => times * unit >= raw) * unit;
  const found = [];
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high + step * 1e-9; i++)
    found.push(Number((i * step).toPrecision(12)));
  return found;
}

const line = (kind, x1, y1, x2, y2) => svg("line", { class: kind, x1, y1, x2, y2 });
const words = (text, x, y, anchor, kind) => svg("text", { x, y, "text-anchor": anchor, class: kind }, text);

// A chart over values from low to high, with x(value) and its left, right and bottom edges.
function frame(holder, height, label, low, high, space = 20) {
  const chart = canvas(holder, height, label);
  const left = 44,
    right = chart.width - 8,
    bottom = height - space;
  const x = (value) => left + ((value - low) / (high - low || 1)) * (right - left);
  for (const mark of ticks(low, high, chart.width < 320 ? 4 : 6)) {
    chart.root.append(words(show(mark), clamp(x(mark), left, right - 6), bottom + 14, "middle"));
  }
  chart.root.append(line("axis", left, bottom, right, bottom));
  return { ...chart, left, right, bottom, x };
}

function markHeight(chart, y, text) {
  chart.root.append(line("grid", chart.left, y, chart.right, y), words(text, chart.left - 5, y + 4, "end"));
}

// The pointer's position in units of the drawing.
function within(event, chart) {
  const box = chart.root.getBoundingClientRect();
  return {
    x: ((event.clientX - box.left) / box.width) * chart.width,
    y: ((event.clientY - box.top) / box.height) * chart.height,
  };
}
