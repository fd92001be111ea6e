// The table of layers: sorting, filtering and keyboard navigation.
const order = data.measured ? { key: measuredHere ? WHERE : "rmse", down: true } : { key: "place", down: false };
const GROWING = ["place", "name", "cos", "sqnr"]; // columns whose first sort is ascending
const GRAVITY = { fail: 2, warn: 1, pass: 0 };

// A layer's figure as text of the table.
function figure(layer, key) {
  const head = headOf(key); // some reports have no SQNR
  return head ? rowOf(layer).cells[head.cellIndex].textContent : "";
}

const heads = () => [...$("table").tHead.rows[0].cells];
const headOf = (key) => heads().find((head) => head.dataset.key === key);

function startTable() {
  if (!pieces) for (const row of body.rows) layers[Number(row.dataset.place)].row = row;
  for (const layer of layers) layer.text = `${layer.name} ${layer.op || ""} ${layer.note || ""}`.toLowerCase();
  startGroups();
  body.addEventListener("click", (event) => {
    const row = event.target.closest("tr");
    if (row && !String(getSelection())) select(Number(row.dataset.place), true);
  });
  body.addEventListener("keydown", walkRows);
  for (const head of heads()) {
    const title = TERMS[head.textContent];
    head.replaceChildren(button({ title }, () => sortBy(head.dataset.key), head.textContent));
  }
  for (const kind of ["input", "change"]) $("filters").addEventListener(kind, listAnew);
  $("filters").hidden = false;
  onSelect(markRow);
  $("table").parentElement.addEventListener("scroll", () => requestAnimationFrame(() => drawRows()));
  listAnew();
}

function startGroups() {
  const groups = groupsOf(layers);
  for (const [name, places] of groups) {
    if (places.length < 2) continue;
    $("group").append(el("option", { value: name }, `${short(name, 40)} (${places.length})`));
    for (const place of places) layers[place].group = name;
  }
  $("group").hidden = $("group").options.length < 3;
}

// Tab reaches one row; the arrow keys reach the others.
function markRow(layer) {
  for (const row of made.values()) row.removeAttribute("aria-current");
  rowOf(layer).setAttribute("aria-current", "true");
  reachable(layer);
}

function reachable(layer) {
  for (const row of made.values()) row.querySelector(".name").setAttribute("tabindex", "-1");
  if (layer) rowOf(layer).querySelector(".name").setAttribute("tabindex", "0");
}

function walkRows(event) {
  const at = listed.layers.indexOf(layers[Number(event.target.closest("tr").dataset.place)]);
  const to = { ArrowDown: at + 1, ArrowUp: at - 1, PageDown: at + 10, PageUp: at - 10, Home: 0, End: layers.length }[
    event.key
  ];
  if (to === undefined) return;
  event.preventDefault();
  const next = clamp(to, 0, listed.layers.length - 1);
  rowAt(next).querySelector(".name").focus();
  select(listed.layers[next].place);
}

function sortBy(key) {
  order.down = order.key === key ? !order.down : !GROWING.includes(key);
  order.key = key;
  listAnew();
}

// Figures that were not measured are sorted last.
function isUnknown(layer, key) {
  return key === "bits" ? !layer.bits : MEASURED.includes(key) && !layer.known.has(key);
}

// NaN is worse than any number.
function compareBy(key) {
  const of = (layer) => {
    if (isUnknown(layer, key)) return 0;
    if (areEqual(layer) && (key === "rmse" || key === "cos")) return key === "cos" ? 1 : 0;
    if (key === "verdict") return GRAVITY[layer.verdict];
    return key === "bits" ? layer.bits.now + (layer.bits.advised ? 1 : 0) : layer[key];
  };
  return (one, other) => {
    const a = of(one),
      b = of(other);
    if (key === "shape") return (a || []).reduce((x, y) => x * y, 1) - (b || []).reduce((x, y) => x * y, 1);
    if (typeof a === "string") return a.localeCompare(b, "en", { numeric: true });
    if (Number.isNaN(a) || Number.isNaN(b)) return Number.isNaN(a) - Number.isNaN(b);
    return a === b ? 0 : a - b;
  };
}

// Values of the bits filter that match a layer.
function bitKinds({ bits }) {
  if (!bits) return [];
  return [String(bits.now), ...(bits.advised ? ["advised"] : []), ...(bits.by ? [`by ${bits.by}`] : [])];
}

// A function that returns whether a layer matches the filters.
function filter() {
  const sought = $("search").value.toLowerCase().split(/\s+/).filter(Boolean);
  const op = $("op").value,
    bits = $("bits") ? $("bits").value : "",
    group = $("group").value,
    rising = $("rises") && $("rises").checked;
  const boxes = [...document.getElementsByName("verdict")],
    verdicts = new Set(boxes.filter((box) => box.checked).map((box) => box.value));
  return (layer) =>
    (!boxes.length || verdicts.has(layer.verdict)) &&
    (!op || layer.op === op) &&
    (!bits || bitKinds(layer).includes(bits)) &&
    (!group || layer.group === group) &&
    (!rising || layer.rises) &&
    sought.every((word) => layer.text.includes(word));
}

function listAnew() {
  const compare = compareBy(order.key),
    sign = order.down ? -1 : 1;
  const last = (layer) => Number(isUnknown(layer, order.key));
  const fitting = layers
    .filter(filter())
    .sort((a, b) => last(a) - last(b) || sign * compare(a, b) || a.place - b.place);
  for (const head of heads()) head.removeAttribute("aria-sort");
  headOf(order.key).setAttribute("aria-sort", order.down ? "descending" : "ascending");
  listRows(fitting);
  const count = fitting.length;
  $("shown-count").textContent = count === layers.length ? `${count}${data.measured ? " compared" : ""}` : `${count} of ${layers.length} shown`;
  const chosen = layers[selection.place];
  reachable(fitting.includes(chosen) ? chosen : fitting[0]);
}
