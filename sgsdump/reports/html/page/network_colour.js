// Colours of nodes and links: the error that a layer adds, its total error, or its change in another run.
const STEPS_OF_COLOUR = 8;
const added = (layer) => {
  if (layer.known.has("own_error")) return layer.own_error;
  return measuredHere && (!layer.bits || layer.bits.now === 32) && Number.isFinite(layer.rise) ? 0 : Math.max(layer.rise, 0);
};
const hasOwn = layers.some((layer) => layer.known.has("own_error"));
// Logarithm of the error after the changes relative to the error before them: negative is better.
const changed = (layer) => {
  const other = then[layer.place];
  if (!other || !(layer.rmse > 0) || !(other.rmse > 0)) return 0;
  return Math.log10(data.other.isEarlier ? layer.rmse / other.rmse : other.rmse / layer.rmse);
};
const COLOURS = [
  { key: "added", label: hasOwn ? "Own error" : "Error added", of: added, title: hasOwn ? "RMSE with only this convolution at 8 bits; for other layers, the RMSE minus the largest RMSE of the inputs" : "RMSE minus the largest RMSE of the inputs" },
  { key: "total", label: "RMSE", of: (layer) => (layer.mse === 0 ? 0 : layer.rmse), title: "Relative error of the layer" },
  { key: "changed", label: "Change", of: changed, title: data.other ? `How the RMSE changes: here and ${data.other.label}` : "" },
].filter(({ key }) => data.measured && (key !== "added" || data.flow) && (key !== "changed" || data.other));
const NO_COLOUR = { key: "none", label: "", of: () => undefined };
const colour = { by: COLOURS[0] || NO_COLOUR, most: 1, mostCarried: 1 };

function colourBy(choice) {
  colour.by = choice;
  const sizes = layers.map(choice.of).map(Math.abs).filter(Number.isFinite);
  colour.most = sizes.reduce((most, size) => Math.max(most, size), 0) || 1;
  colour.mostCarried = layers.reduce((most, { rmse }) => (rmse < Infinity ? Math.max(most, rmse) : most), 0) || 1;
}

// The value of a node: of its layer, or the largest in a group. NaN: not finite; undefined: not compared.
function valueOf(id) {
  const one = layerAt(id);
  if (!data.measured) return undefined;
  if (one) return colour.by.of(one);
  if (!isGroup(id)) return undefined;
  const values = groupOf(id).layers.map((place) => colour.by.of(layers[place]));
  if (!values.length) return undefined;
  return values.reduce((most, value) => (Number.isNaN(most) || Math.abs(most) >= Math.abs(value) ? most : value), 0);
}

// Name of the style class; the square root tells small errors apart too.
function classOf(value) {
  if (value === undefined) return "unknown";
  if (!Number.isFinite(value)) return "heat not-finite";
  const step = Math.round(Math.sqrt(Math.min(Math.abs(value) / colour.most, 1)) * STEPS_OF_COLOUR);
  return `heat h${step}${colour.by.key === "changed" && value < 0 ? " better" : ""}`;
}

function carriedClass(error) {
  if (!(error > 0)) return "c0";
  return Number.isFinite(error) ? `c${Math.round(Math.sqrt(Math.min(error / colour.mostCarried, 1)) * STEPS_OF_COLOUR)}` : "c8";
}

// "0.031", or "÷ 12" for an error that becomes twelve times smaller.
function valueText(value) {
  if (value === undefined) return data.measured ? "not compared" : "";
  if (colour.by.key !== "changed" || !Number.isFinite(value)) return show(value, 3);
  return Math.abs(value) < 0.005 ? "unchanged" : `${value < 0 ? "÷" : "×"} ${show(10 ** Math.abs(value), 2)}`;
}

function colourLegend() {
  if (!data.measured) return [];
  const scale = el("span", { class: "scale-of-errors", "aria-hidden": "true" });
  for (let step = 0; step <= STEPS_OF_COLOUR; step++) scale.append(el("i", { class: `h${step}` }));
  const ends = colour.by.key === "changed" ? ["unchanged", `× ${show(10 ** colour.most, 2)}`] : ["0", show(colour.most, 3)];
  const better = colour.by.key === "changed" ? [el("span", { class: "pass-dot" }, "green: smaller error")] : [];
  return [el("span", {}, `${colour.by.label}: ${ends[0]} `, scale, ` ${ends[1]}`), ...better];
}
