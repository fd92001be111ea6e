// Distribution of the error over channels, and over height and width.
const HEAT = [
    [0, 0, 4],
    [81, 18, 124],
    [183, 55, 121],
    [252, 137, 97],
    [252, 253, 191],
  ],
  ODD = [255, 0, 255];
const UNKNOWN = 255,
  LARGEST = 254; // bytes of the map for NaN or infinity, and for the largest finite error

function drawChannels(pair, d) {
  const holder = chartIn(pair, "Error by channel, worst first"),
    height = 150,
    bottom = 118,
    top = 12;
  const worst = d.channels
    .slice(0, Math.max(8, Math.floor((holder.clientWidth - 52) / 14)))
    .map((channel) => channel.map(number));
  if (worst.length < d.channelCount)
    holder.previousSibling.textContent = `Error by channel, the worst ${worst.length} of ${d.channelCount}`;
  const most = Math.max(...worst.map(([, share]) => share).filter(Number.isFinite), 0) || 1;
  const label = `Share of the error by channel; largest: channel ${worst[0][0]} with ${percent(worst[0][1])}`;
  const drawing = canvas(holder, height, label),
    chart = { ...drawing, left: 44, right: drawing.width - 8 };
  const room = (chart.right - chart.left) / worst.length,
    wide = Math.min(room * 0.8, 26);
  const y = (share) => bottom - (Number.isFinite(share) ? share / most : 1) * (bottom - top);
  for (const mark of ticks(0, most, 3)) markHeight(chart, y(mark), percent(mark));
  worst.forEach(([channel, share], rank) => {
    const x = chart.left + rank * room,
      middle = x + wide / 2;
    chart.root.append(
      svg("rect", { class: "error", x, width: wide, y: y(share), height: Math.max(bottom - y(share), 0.5) }),
    );
    if (room >= 24) chart.root.append(words(String(channel), middle, bottom + 14, "middle"));
    else if (room >= 13)
      chart.root.append(
        svg(
          "text",
          { transform: `translate(${middle + 4} ${bottom + 6}) rotate(-90)`, "text-anchor": "end" },
          String(channel),
        ),
      );
  });
  onHover(chart.root, (event) => {
    const one = worst[Math.floor((within(event, chart).x - chart.left) / room)];
    return one ? `channel ${one[0]}\n${percent(one[1])} of the layer's error\nRMSE ${show(one[2])}` : "";
  });
}

// Colour of an error as a share of the largest error, from dark to bright.
function heat(part) {
  const at = clamp(part, 0, 1) * (HEAT.length - 1),
    i = Math.min(Math.floor(at), HEAT.length - 2);
  return HEAT[i].map((channel, k) => Math.round(channel + (HEAT[i + 1][k] - channel) * (at - i)));
}

function drawHeatMap(pair, d) {
  const bytes = Uint8Array.from(atob(d.heat), (char) => char.charCodeAt(0));
  const [rows, columns] = d.heatShape,
    [height, width] = d.heatSize,
    largest = number(d.heatTop);
  const label = `Error over height and width; largest mean ${show(largest)}`;
  const map = el("canvas", { width: columns, height: rows, role: "img", "aria-label": label });
  const context = map.getContext("2d"),
    image = context.createImageData(columns, rows);
  bytes.forEach((byte, i) => image.data.set([...(byte === UNKNOWN ? ODD : heat(byte / LARGEST)), 255], i * 4));
  context.putImageData(image, 0, 0);
  const part = el("div", {}, el("h3", {}, "Mean |error| over H × W"), el("div", { class: "heat" }, map));
  pair.append(part);
  const room = Math.min(part.clientWidth || 280, 360),
    factor = Math.min(room / width, 160 / height);
  map.style.width = Math.max(width * factor, 8) + "px";
  map.style.height = Math.max(height * factor, 8) + "px";
  const odd = bytes.includes(UNKNOWN) ? "; magenta is NaN or Inf" : "",
    picture = d.heatOf ? `; worst input: ${d.heatOf}` : "";
  part.append(el("p", { class: "legend" }, "0", scaleOf(), `${show(largest)}; ${height} × ${width}${odd}${picture}`));
  onHover(map, (event) => {
    const box = map.getBoundingClientRect();
    const x = clamp(Math.floor(((event.clientX - box.left) / box.width) * columns), 0, columns - 1);
    const y = clamp(Math.floor(((event.clientY - box.top) / box.height) * rows), 0, rows - 1),
      byte = bytes[y * columns + x];
    const size = byte === UNKNOWN ? "nan or inf" : `about ${show((byte / LARGEST) * largest, 3)}`;
    return `row ${Math.floor((y * height) / rows)}, column ${Math.floor((x * width) / columns)}\nmean |error| ${size}`;
  });
}

function scaleOf() {
  const scale = el("canvas", { class: "scale", width: 64, height: 1, "aria-hidden": "true" });
  const context = scale.getContext("2d"),
    image = context.createImageData(64, 1);
  for (let i = 0; i < 64; i++) image.data.set([...heat(i / 63), 255], i * 4);
  context.putImageData(image, 0, 0);
  return scale;
}
