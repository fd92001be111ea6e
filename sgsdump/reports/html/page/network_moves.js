// Moving in the network: opening groups, zoom, keys, search, and the selection.
const FEW_OPERATORS = 300; // a network with more is not opened as a whole

function showNode(id) {
  const box = scene.boxes.get(visibleOf(id)),
    { scale } = look;
  if (!box) return;
  const x = (box.x + shiftOf()) * scale,
    y = box.y * scale,
    wide = box.width * scale,
    high = Math.min(box.height * scale, pane.clientHeight);
  if (x < pane.scrollLeft || x + wide > pane.scrollLeft + pane.clientWidth) pane.scrollLeft = x + wide / 2 - pane.clientWidth / 2;
  if (y < pane.scrollTop || y + high > pane.scrollTop + pane.clientHeight) pane.scrollTop = y + high / 2 - pane.clientHeight / 2;
}

function again() {
  look.drawn = null;
  drawWindow();
}

// Open or close a group; its place in the window stays.
function toggle(id) {
  const before = scene.boxes.get(id);
  if (openGroups.has(id)) openGroups.delete(id);
  else openGroups.add(id);
  drawNetwork();
  const now = scene.boxes.get(id);
  pane.scrollLeft += (now.x + now.width / 2 - before.x - before.width / 2) * look.scale;
  pane.scrollTop += (now.y - before.y) * look.scale;
  again();
  say(`${nameOf(id)} ${openGroups.has(id) ? "opened" : "closed"}`);
}

function reveal(id) {
  const closed = ancestors(id).slice(1).filter((each) => !openGroups.has(each) && groupOf(each).layer !== id);
  for (const each of closed) openGroups.add(each);
  if (closed.length) drawNetwork();
}

function zoomNetwork(factor, at = { x: pane.clientWidth / 2, y: pane.clientHeight / 2 }) {
  const scale = clamp(look.scale * factor, ...SCALES),
    x = (pane.scrollLeft + at.x) / look.scale - shiftOf(),
    y = (pane.scrollTop + at.y) / look.scale;
  look.scale = scale;
  resize();
  pane.scrollLeft = (x + shiftOf()) * scale - at.x;
  pane.scrollTop = y * scale - at.y;
  drawMap();
}

function fitNetwork() {
  look.scale = clamp(Math.min(pane.clientWidth / scene.width, pane.clientHeight / scene.height), SCALES[0], 1);
  resize();
  drawMap();
}

function chooseNode(id) {
  const layer = layerAt(id);
  look.chosen = id;
  if (layer) select(layer.place);
  else {
    showNode(id);
    again();
    say(`${nameOf(id)}, ${typeAt(id)}, ${colour.by.label} ${valueText(valueOf(id))}`);
  }
}

// The next visible node in a direction: up to what a node reads, down to what reads it, sideways in its row.
function neighbourOf(id, key) {
  const box = scene.boxes.get(id);
  const centre = ({ x, width }) => x + width / 2;
  const nearest = (ids) => ids.map((each) => scene.boxes.get(each)).sort((a, b) => Math.abs(centre(a) - centre(box)) - Math.abs(centre(b) - centre(box)))[0];
  if (key === "ArrowUp") return nearest(scene.links.filter((link) => link.to === id).map((link) => link.from));
  if (key === "ArrowDown") return nearest(scene.links.filter((link) => link.from === id).map((link) => link.to));
  const side = key === "ArrowLeft" ? -1 : 1;
  const row = [...scene.boxes.values()].filter((each) => !each.isOpen && Math.abs(each.y - box.y) < BOX.height && side * (each.x - box.x) > 0);
  return row.sort((a, b) => side * (a.x - b.x))[0];
}

function keyInNetwork(event) {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const here = scene.boxes.has(look.chosen) ? look.chosen : visibleOf(Math.max(selection.place, 0));
  if (event.key.startsWith("Arrow")) {
    const next = neighbourOf(here, event.key);
    if (next) chooseNode(next.id);
  } else if (event.key === "Enter" || event.key === " ") {
    const group = isGroup(here) ? here : parents.get(here);
    if (group !== rootGroup()) toggle(group);
    look.chosen = visibleOf(here);
    again();
  } else if (event.key === "+" || event.key === "=") zoomNetwork(1.4);
  else if (event.key === "-") zoomNetwork(1 / 1.4);
  else if (event.key === "0") fitNetwork();
  else if (event.key === "/") $("network-search").focus();
  else return;
  event.preventDefault();
}

function startSearch() {
  const box = $("network-search");
  let at = -1;
  const matches = () => {
    const sought = box.value.toLowerCase().split(/\s+/).filter(Boolean);
    return sought.length ? layers.filter((layer) => sought.every((word) => layer.text.includes(word))) : [];
  };
  const mark = () => {
    look.found = new Set(matches().map((layer) => visibleOf(layer.place)));
    $("network-found").textContent = box.value.trim() ? plural(matches().length, "match").replace("matchs", "matches") : "";
    again();
  };
  box.addEventListener("input", () => {
    at = -1;
    mark();
  });
  box.addEventListener("keydown", (event) => {
    const found = matches();
    if (event.key !== "Enter" || !found.length) return;
    at = (at + (event.shiftKey ? found.length - 1 : 1)) % found.length;
    select(found[at].place);
    mark();
    $("network-found").textContent = `${at + 1} of ${found.length}`;
  });
}

// Dragging with a mouse moves the window; a click selects a layer, or opens or closes a group.
function startPointer() {
  let start = null;
  const nodeUnder = (event) => {
    const found = event.target.closest && event.target.closest("[data-node]");
    return found ? Number(found.dataset.node) : undefined;
  };
  pane.addEventListener("pointerdown", (event) => {
    if (event.pointerType === "mouse" && event.button === 0) start = { x: event.clientX, y: event.clientY, left: pane.scrollLeft, top: pane.scrollTop };
  });
  pane.addEventListener("pointermove", (event) => {
    const id = nodeUnder(event);
    tip(event, id === undefined || start ? "" : `${short(nameOf(id), 200)}\n${typeAt(id)}\n${colour.by.label} ${valueText(valueOf(id))}`);
    if (!start) return;
    pane.scrollLeft = start.left - (event.clientX - start.x);
    pane.scrollTop = start.top - (event.clientY - start.y);
  });
  pane.addEventListener("pointerleave", (event) => tip(event, ""));
  for (const end of ["pointerup", "pointercancel"])
    addEventListener(end, (event) => {
      if (start && Math.hypot(event.clientX - start.x, event.clientY - start.y) > CLICK) look.moved = true;
      start = null;
    });
  pane.addEventListener("click", (event) => {
    const id = nodeUnder(event),
      wasMoved = look.moved;
    look.moved = false;
    if (id === undefined || wasMoved) return;
    if (isGroup(id)) {
      toggle(id);
      look.chosen = id;
      if (layerAt(id)) select(layerAt(id).place);
    } else chooseNode(id);
  });
  pane.addEventListener(
    "wheel",
    (event) => {
      if (!event.ctrlKey && !event.metaKey) return;
      event.preventDefault();
      const box = pane.getBoundingClientRect();
      zoomNetwork(2 ** (-event.deltaY / 200), { x: event.clientX - box.left, y: event.clientY - box.top });
    },
    { passive: false },
  );
}

function startMap() {
  const map = $("network-map");
  const move = (event) => {
    const box = map.getBoundingClientRect();
    pane.scrollLeft = (((event.clientX - box.left) / box.width) * scene.width + shiftOf()) * look.scale - pane.clientWidth / 2;
    pane.scrollTop = ((event.clientY - box.top) / box.height) * scene.height * look.scale - pane.clientHeight / 2;
  };
  map.addEventListener("pointerdown", (event) => {
    map.setPointerCapture(event.pointerId);
    move(event);
  });
  map.addEventListener("pointermove", (event) => event.buttons && move(event));
}

function startColours() {
  const group = $("network-colour");
  const mark = () => {
    for (const each of group.children) {
      const isOn = each.dataset.colour === colour.by.key;
      fill(each, { "aria-checked": String(isOn), tabindex: isOn ? "0" : "-1" });
    }
    if (data.measured) $("network-scale").replaceChildren(...colourLegend());
  };
  const use = (choice) => {
    colourBy(choice);
    mark();
    drawMap();
  };
  for (const choice of COLOURS) group.append(button({ role: "radio", title: choice.title, "data-colour": choice.key }, () => use(choice), choice.label));
  onArrows(group, COLOURS, () => colour.by, use);
  colourBy(colour.by);
  mark();
}

function openAll(isOpen) {
  openGroups.clear();
  openGroups.add(rootGroup());
  if (isOpen) graph.groups.forEach((group, at) => group.layer === undefined && openGroups.add(FIRST_GROUP + at));
  drawNetwork();
  if (layers[selection.place]) showNode(selection.place);
  again();
}

function startNetwork() {
  if (!graph) return;
  $("network").hidden = false;
  startShape();
  startColours();
  placeAll();
  pane.addEventListener("scroll", () => requestAnimationFrame(drawWindow));
  pane.addEventListener("keydown", keyInNetwork);
  startPointer();
  startMap();
  startSearch();
  $("network-in").addEventListener("click", () => zoomNetwork(1.4));
  $("network-out").addEventListener("click", () => zoomNetwork(1 / 1.4));
  $("network-fit").addEventListener("click", fitNetwork);
  const all = $("network-all");
  all.hidden = graph.groups.length < 2 || FIRST_GROUP > FEW_OPERATORS;
  all.addEventListener("click", () => openAll(true));
  $("network-none").hidden = graph.groups.length < 2;
  $("network-none").addEventListener("click", () => openAll(false));
  drawNetwork();
  onSelect((layer) => {
    look.chosen = layer.place;
    reveal(layer.place);
    showNode(layer.place);
    again();
  });
}
