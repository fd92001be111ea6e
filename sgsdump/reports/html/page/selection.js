// The selected layer, and the functions to call when the selection changes.
const selection = { place: -1 };
const watchers = [];

// told(layer, asked): asked is true if the user selected the layer elsewhere and wants to see it.
const onSelect = (told) => watchers.push(told);

function select(place, asked = false) {
  const layer = layers[place];
  if (!layer) return;
  selection.place = place;
  for (const told of watchers) told(layer, asked);
  try {
    history.replaceState(null, "", `#layer-${place}`);
  } catch {
    // the page has no address of its own
  }
}

// Select the layer in the address, else the layer of the first finding, else the worst layer where the error rises.
function selectFirst() {
  const asked = /^#layer-(\d+)$/.exec(location.hash);
  if (asked && layers[asked[1]]) return select(Number(asked[1]));
  if (layers[data.first]) return select(data.first);
  const unknown = measuredHere ? -1 : Infinity;
  const rise = (layer) => (Number.isFinite(layer[WHERE]) ? layer[WHERE] : unknown);
  const worst = (a, b) =>
    (!measuredHere && (b.verdict === "fail") - (a.verdict === "fail")) ||
    Boolean(b.rises) - Boolean(a.rises) ||
    rise(b) - rise(a);
  select([...layers].sort((a, b) => worst(a, b) || a.place - b.place)[0].place);
}
