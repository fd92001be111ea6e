// The report's data, as document.py wrote it: numbers, or the words nan, inf and -inf.
const data = JSON.parse(document.getElementById("data").textContent);
const WORDS = { nan: NaN, inf: Infinity, "-inf": -Infinity };
const MEASURED = ["own_error", "inherited", "in_all", "brings", "gives_back"];
const FIGURES = ["mse", "cos", "rmse", "sqnr", "rise", ...MEASURED, "mean_rmse"];

// An unknown figure is undefined in the data, and NaN in calculations.
function number(value) {
  if (typeof value === "string") return WORDS[value];
  return value === undefined || value === null ? NaN : value;
}

function layerOf(written, place) {
  const layer = { ...written, place, sources: written.sources || [], feeds: [] };
  layer.known = new Set(FIGURES.filter((name) => written[name] !== undefined));
  if (typeof written.details === "string") {
    // with many layers, each layer's details are parsed when it is selected
    Object.defineProperty(layer, "details", { get: () => JSON.parse(written.details) });
  }
  for (const name of FIGURES) layer[name] = number(written[name]);
  return layer;
}

const layers = data.layers.map(layerOf);
// Figures of the same layers in another run; null if the run lacks the layer.
const then = data.other
  ? data.other.figures.map((figures) => {
      if (!figures) return null;
      const [mse, cos, rmse, sqnr] = figures.map(number);
      return { mse, cos, rmse, sqnr };
    })
  : [];
for (const layer of layers) for (const source of layer.sources) layers[source].feeds.push(layer.place);
// Where the error arises: measured, or by figures alone.
const measuredHere = layers.some((layer) => layer.known.has("gives_back"));
const WHERE = measuredHere ? "gives_back" : "rise";
const RISES = data.flow ? "the error rises here" : "the error rises here, in file order";
const HERE = measuredHere ? "the outputs' error arises here" : RISES;
const limits = Object.fromEntries(Object.entries(data.limits).map(([name, limit]) => [name, number(limit)]));
