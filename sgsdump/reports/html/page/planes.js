// Values of a layer: planes with 8 bits per value in the page, or planes in full resolution from the local server.
const NO_VALUE = 255; // byte for NaN and infinity

// The tensor of a layer; null if its values are not at hand.
async function tensorOf(layer) {
  const kept = $(`tensor-${layer.place}`);
  if (kept) {
    const tensor = JSON.parse(kept.textContent);
    const bytes = [tensor.benchmark, tensor.difference].map((text) => Uint8Array.from(atob(text), (char) => char.charCodeAt(0)));
    const planes = tensor.planes.map(([number], place) => ({ number, place }));
    return { ...tensor, planes, plane: async (at) => fromBytes(tensor, bytes, planes[at]) };
  }
  if (!data.served) return null;
  const answer = await fetch(`tensor/${layer.place}`);
  if (!answer.ok) return null;
  const tensor = await answer.json();
  const planes = tensor.numbers.map((number) => ({ number }));
  return { ...tensor, planes, plane: (at) => fromServer(layer, tensor, planes[at].number) };
}

function fromBytes({ grid, size, planes }, [benchmarks, differences], { place }) {
  const [number, low, high, most, row, column] = planes[place].map((value) => (typeof value === "string" ? WORDS[value] : value));
  const count = grid[0] * grid[1],
    from = place * count;
  const read = (bytes, least, largest) =>
    Float32Array.from(bytes.subarray(from, from + count), (byte) => (byte === NO_VALUE ? NaN : least + (byte / 254) * (largest - least)));
  const benchmark = read(benchmarks, low, high),
    difference = read(differences, -most, most);
  const sample = benchmark.map((value, i) => value + difference[i]);
  return { number, grid, size, sample, benchmark, difference, low, high, most, row, column, isRounded: true };
}

async function fromServer(layer, { size, single }, number) {
  const answer = await fetch(`plane/${layer.place}/${number}`);
  const grid = answer.headers.get("X-Grid").split(" ").map(Number);
  const values = new Float32Array(await answer.arrayBuffer()),
    count = grid[0] * grid[1];
  const sample = values.subarray(0, count),
    benchmark = values.subarray(count);
  const difference = sample.map((value, i) => value - benchmark[i]);
  let low = Infinity,
    high = -Infinity,
    most = 0;
  for (let i = 0; i < count; i++) {
    for (const value of [sample[i], benchmark[i]]) {
      if (!Number.isFinite(value)) continue;
      if (value < low) low = value;
      if (value > high) high = value;
    }
    if (Math.abs(difference[i]) > most) most = Math.abs(difference[i]);
  }
  const [row, column] = answer.headers.get("X-Worst").split(" ").map(Number);
  return { number, grid, size, sample, benchmark, difference, low, high, most, row, column, single };
}

// Colours of values, from dark to bright, and of differences, from blue through grey to red.
const OF_VALUES = [
    [68, 1, 84],
    [59, 82, 139],
    [33, 145, 140],
    [94, 201, 98],
    [253, 231, 37],
  ],
  OF_DIFFERENCES = [
    [5, 48, 97],
    [67, 147, 195],
    [240, 240, 240],
    [214, 96, 77],
    [103, 0, 31],
  ];

function between(colours, part) {
  const at = clamp(part, 0, 1) * (colours.length - 1),
    i = Math.min(Math.floor(at), colours.length - 2);
  return colours[i].map((channel, k) => channel + (colours[i + 1][k] - channel) * (at - i));
}

// 256 colours of a scale.
const palette = (colours) => Array.from({ length: 256 }, (_, i) => between(colours, i / 255));
const PALETTES = { values: palette(OF_VALUES), differences: palette(OF_DIFFERENCES) };

function paint(map, values, low, high, colours) {
  const context = map.getContext("2d"),
    image = context.createImageData(map.width, map.height);
  const times = high > low ? 255 / (high - low) : 0;
  for (let i = 0; i < values.length; i++) {
    const value = values[i];
    const at = times ? clamp(Math.round((value - low) * times), 0, 255) : 128;
    const rgb = Number.isFinite(value) ? colours[at] : ODD;
    image.data.set([rgb[0], rgb[1], rgb[2], 255], i * 4);
  }
  context.putImageData(image, 0, 0);
}

function scaleBar(colours) {
  const bar = el("canvas", { class: "scale", width: 64, height: 1, "aria-hidden": "true" });
  paint(bar, Float32Array.from({ length: 64 }, (_, i) => i), 0, 63, colours);
  return bar;
}
