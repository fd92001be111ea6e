// The table of layers: the rows are in the page already; here they are sorted, filtered, and walked along.
const order = { key: measuredHere ? WHERE : "rmse", down: true };
const GROWING = ["place", "name", "cos", "sqnr"]; // what is first read from the smallest on
const GRAVITY = { fail: 2, warn: 1, pass: 0 };

// A layer's figure as the table has it.
function figure(layer, key) {
  return layer.row.cells[headOf(key).cellIndex].textContent;
}

const heads = () => [...$("table").tHead.rows[0].cells];
const headOf = (key) => heads().find((head) => head.dataset.key === key);

function startTable() {
  const body = $("table").tBodies[0];
  for (const row of body.rows) {
    const layer = layers[Number(row.dataset.place)];
    row
      .querySelector(".name")
      .replaceWith(
        el(
          "button",
          { type: "button", class: "name", title: layer.name, tabindex: "-1" },
          written(short(layer.name, 66)),
        ),
      );
    layer.row = row;
    layer.text = `${layer.name} ${layer.op || ""} ${layer.note || ""}`.toLowerCase();
  }
  body.addEventListener("click", (event) => {
    const row = event.target.closest("tr");
    if (row && !String(getSelection())) select(Number(row.dataset.place), true);
  });
  body.addEventListener("keydown", walkRows);
  for (const head of heads()) head.replaceChildren(button({}, () => sortBy(head.dataset.key), head.textContent));
  for (const kind of ["input", "change"]) $("filters").addEventListener(kind, filterRows);
  $("filters").hidden = false;
  onSelect(markRow);
  sortRows();
}

// One row is reached by Tab, the others by the arrow keys.
function markRow(layer) {
  for (const row of $("table").querySelectorAll("[aria-current]")) row.removeAttribute("aria-current");
  layer.row.setAttribute("aria-current", "true");
  reachable(layer.row);
}

function reachable(row) {
  for (const each of $("table").querySelectorAll('.name[tabindex="0"]')) each.setAttribute("tabindex", "-1");
  if (row) row.querySelector(".name").setAttribute("tabindex", "0");
}

function walkRows(event) {
  const rows = [...$("table").tBodies[0].rows].filter((row) => !row.hidden);
  const at = rows.indexOf(event.target.closest("tr"));
  const to = { ArrowDown: at + 1, ArrowUp: at - 1, PageDown: at + 10, PageUp: at - 10, Home: 0, End: rows.length - 1 }[
    event.key
  ];
  if (to === undefined) return;
  event.preventDefault();
  const row = rows[clamp(to, 0, rows.length - 1)];
  row.querySelector(".name").focus();
  select(Number(row.dataset.place));
}

function sortBy(key) {
  order.down = order.key === key ? !order.down : !GROWING.includes(key);
  order.key = key;
  sortRows();
}

// NaN is worse than any number.
function compareBy(key) {
  const unknown = (layer) => MEASURED.includes(key) && !layer.known.has(key);
  const of = (layer) => (key === "verdict" ? GRAVITY[layer.verdict] : unknown(layer) ? -Infinity : layer[key]);
  return (one, other) => {
    const a = of(one),
      b = of(other);
    if (typeof a === "string") return a.localeCompare(b, "en", { numeric: true });
    if (Number.isNaN(a) || Number.isNaN(b)) return Number.isNaN(a) - Number.isNaN(b);
    return a === b ? 0 : a - b;
  };
}

function sortRows() {
  const compare = compareBy(order.key),
    sign = order.down ? -1 : 1;
  const sorted = [...layers].sort((a, b) => sign * compare(a, b) || a.place - b.place);
  $("table").tBodies[0].append(...sorted.map((layer) => layer.row));
  for (const head of heads()) head.removeAttribute("aria-sort");
  headOf(order.key).setAttribute("aria-sort", order.down ? "descending" : "ascending");
}

function filterRows() {
  const sought = $("search").value.toLowerCase().split(/\s+/).filter(Boolean);
  const op = $("op").value,
    rising = $("rises").checked;
  const verdicts = new Set(
    [...document.getElementsByName("verdict")].filter((box) => box.checked).map((box) => box.value),
  );
  const fits = (layer) =>
    verdicts.has(layer.verdict) &&
    (!op || layer.op === op) &&
    (!rising || layer.rises) &&
    sought.every((word) => layer.text.includes(word));
  let count = 0;
  for (const layer of layers) {
    layer.row.hidden = !fits(layer);
    count += !layer.row.hidden;
  }
  $("shown-count").textContent = count === layers.length ? `${count} compared` : `${count} of ${layers.length} shown`;
  const chosen = layers[selection.place];
  reachable(chosen && !chosen.row.hidden ? chosen.row : [...$("table").tBodies[0].rows].find((row) => !row.hidden));
}
