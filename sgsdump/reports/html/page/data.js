// The report's data, as page_data.py wrote them: numbers, or the words nan, inf and -inf.
const data = JSON.parse(document.getElementById("data").textContent);
const WORDS = { nan: NaN, inf: Infinity, "-inf": -Infinity };
const MEASURED = ["own_error", "inherited", "in_all", "brings", "gives_back"];
const FIGURES = ["mse", "cos", "rmse", "sqnr", "rise", ...MEASURED, "mean_rmse"];

// What is not known is NaN where it is reckoned with, and undefined in the data.
function number(value) {
  if (typeof value === "string") return WORDS[value];
  return value === undefined || value === null ? NaN : value;
}

function layerOf(written, place) {
  const layer = { ...written, place, sources: written.sources || [], feeds: [] };
  layer.known = new Set(FIGURES.filter((name) => written[name] !== undefined));
  if (typeof written.details === "string") {
    // of many layers each is read when it is shown
    Object.defineProperty(layer, "details", { get: () => JSON.parse(written.details) });
  }
  for (const name of FIGURES) layer[name] = number(written[name]);
  return layer;
}

const layers = data.layers.map(layerOf);
// The same layers in another run: figures as a layer has them, null where it has not.
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
const RISES = data.flow ? "the error rises here" : "the error rises here, in the order of the file";
const HERE = measuredHere ? "the outputs' error arises here" : RISES;
const limits = Object.fromEntries(Object.entries(data.limits).map(([name, limit]) => [name, number(limit)]));
