"use strict";
// Draws the report's charts from the JSON beside it. All text goes in as text nodes, never as markup.
(() => {
  const $ = (id) => document.getElementById(id);
  const data = JSON.parse($("data").textContent);
  const number = (v) => (typeof v === "string" ? { nan: NaN, inf: Infinity, "-inf": -Infinity }[v] : v === undefined || v === null ? NaN : v);
  const layers = data.layers.map((l, place) => ({ ...l, place, sources: l.sources || [], feeds: [], verdict: l.verdict }));
  for (const l of layers) for (const k of ["mse", "cos", "rmse", "sqnr", "own_error", "inherited", "mean_rmse"]) { l["has_" + k] = l[k] !== undefined; l[k] = number(l[k]); }
  for (const l of layers) for (const s of l.sources) layers[s].feeds.push(l.place);
  const limits = Object.fromEntries(Object.entries(data.limits).map(([k, v]) => [k, number(v)]));

  // ---- small tools
  const NS = "http://www.w3.org/2000/svg";
  const fill = (node, attributes, children) => {
    for (const [k, v] of Object.entries(attributes || {})) if (v !== null && v !== undefined && v !== false) node.setAttribute(k, v === true ? "" : v);
    for (const c of children) if (c !== null && c !== undefined) node.append(c);
    return node;
  };
  const el = (tag, attributes, ...children) => fill(document.createElement(tag), attributes, children);
  const svg = (tag, attributes, ...children) => fill(document.createElementNS(NS, tag), attributes, children);
  const say = (text) => { $("said").textContent = text; };
  const short = (text, most) => (text.length <= most ? text : most < 8 ? text.slice(0, most - 1) + "…" : text.slice(0, Math.ceil(most * 0.35)) + "…" + text.slice(text.length - Math.floor(most * 0.65) + 1));
  // a name may break after what separates its parts
  const written = (name) => el("bdi", {}, ...name.split(/(?<=[/._:])/).flatMap((part) => [part, el("wbr")]));
  const show = (v, digits = 4) => {
    if (Number.isNaN(v)) return "nan";
    if (!Number.isFinite(v)) return v > 0 ? "inf" : "-inf";
    if (v === 0) return "0";
    const size = Math.abs(v);
    return size < 1e-4 || size >= 1e6 ? v.toExponential(2) : String(Number(v.toPrecision(digits)));
  };
  const exact = (v, digits = 6) => {  // as the tables have it
    if (!Number.isFinite(v)) return show(v);
    if (v !== 0 && Math.abs(v) < 10 ** (1 - digits)) return v.toExponential(2);
    return Math.abs(v) < 1e6 ? v.toFixed(digits) : v.toExponential(5);
  };
  const plural = (n, what) => `${n.toLocaleString("en")} ${what}${n === 1 ? "" : "s"}`;
  const tip = (event, text) => {
    const box = $("tip");
    if (!text) { box.hidden = true; return; }
    box.textContent = text;
    box.hidden = false;
    const { width, height } = box.getBoundingClientRect();
    box.style.left = Math.max(4, Math.min(event.clientX + 14, innerWidth - width - 8)) + "px";
    box.style.top = (event.clientY + 18 + height > innerHeight ? event.clientY - height - 12 : event.clientY + 18) + "px";
  };
  const canvas = (holder, height, label) => {
    const width = Math.max(holder.clientWidth, 240);
    const root = svg("svg", { viewBox: `0 0 ${width} ${height}`, role: label ? "img" : null, "aria-label": label, "aria-hidden": label ? null : "true" });
    holder.replaceChildren(root);
    return { root, width, height };
  };
  const ticks = (low, high, count) => {
    if (!(high > low)) return [low];
    const raw = (high - low) / count, power = 10 ** Math.floor(Math.log10(raw));
    const step = [1, 2, 5, 10].find((m) => m * power >= raw) * power, found = [];
    for (let i = Math.ceil(low / step - 1e-9); i * step <= high + step * 1e-9; i++) found.push(Number((i * step).toPrecision(12)));
    return found;
  };
  const power = (v) => { const e = Math.round(Math.log10(v)); return e >= -3 && e <= 3 ? String(Number(v.toPrecision(3))) : `1e${e}`; };

  // ---- error over depth
  const METRICS = [
    { key: "rmse", label: "RMSE", of: (l) => l.rmse, log: true, limit: limits.rmse },
    { key: "cos", label: "1 − COS", of: (l) => Math.max(1 - l.cos, 0), log: true, limit: limits.cos === undefined ? undefined : 1 - limits.cos, limitText: limits.cos === undefined ? "" : `COS ${show(limits.cos)}` },
    { key: "mse", label: "MSE", of: (l) => l.mse, log: true, limit: limits.mse },
    { key: "sqnr", label: "SQNR", of: (l) => l.sqnr, log: false, limit: limits.sqnr },
  ];
  const state = { metric: METRICS[0], from: 0, to: layers.length, selected: -1, hover: -1, sort: "rmse", down: true };
  const LEFT = 52, RIGHT = 14;

  function vertical(metric, top, bottom) {
    const values = layers.map(metric.of).filter((v) => Number.isFinite(v) && (!metric.log || v > 0));
    if (metric.limit !== undefined && Number.isFinite(metric.limit) && (!metric.log || metric.limit > 0)) values.push(metric.limit);
    if (!values.length) values.push(metric.log ? 1 : 0);
    let low = Math.min(...values), high = Math.max(...values);
    if (metric.log) {
      low = Math.max(low, high * 1e-9);
      const a = Math.floor(Math.log10(low) - 0.05), b = Math.max(Math.ceil(Math.log10(high) + 0.05), a + 1);
      const y = (v) => (Number.isNaN(v) || v === Infinity ? top - 10 : v <= 0 ? bottom : bottom - (Math.max(Math.log10(v) - a, 0) / (b - a)) * (bottom - top));
      const step = Math.max(1, Math.ceil((b - a) / 8)), marks = [];
      for (let e = a; e <= b; e += step) marks.push(10 ** e);
      return { y, marks, text: power };
    }
    low = Math.min(low, 0);
    if (!(high > low)) high = low + 1;
    const marks = ticks(low, high, 6);
    high = Math.max(high, marks[marks.length - 1]);
    const y = (v) => (Number.isNaN(v) || v === Infinity ? top - 10 : v === -Infinity ? bottom : bottom - ((v - low) / (high - low)) * (bottom - top));
    return { y, marks, text: (v) => show(v) };
  }

  const xAt = (place, width, from = state.from, to = state.to) => LEFT + ((place + 0.5 - from) / (to - from)) * (width - LEFT - RIGHT);
  const placeAt = (x, width, from = state.from, to = state.to) => from + ((x - LEFT) / (width - LEFT - RIGHT)) * (to - from);
  const clamp = (v, low, high) => Math.min(Math.max(v, low), high);

  function drawDepth() {
    const holder = $("depth-chart"), metric = state.metric, narrow = holder.clientWidth < 620;
    const seen = layers.filter((l) => l.place >= state.from - 0.5 && l.place + 0.5 <= state.to + 0.5);
    const named = seen.length <= Math.floor((holder.clientWidth - 60) / 26);
    const { root, width, height } = canvas(holder, (narrow ? 220 : 270) + (named ? 78 : 0), "");
    const top = 26, bottom = height - (named ? 104 : 34), scale = vertical(metric, top, bottom);
    for (const mark of scale.marks) {
      const y = scale.y(mark);
      root.append(svg("line", { class: "grid", x1: LEFT, x2: width - RIGHT, y1: y, y2: y }), svg("text", { x: LEFT - 6, y: y + 4, "text-anchor": "end" }, scale.text(mark)));
    }
    root.append(svg("line", { class: "axis", x1: LEFT, x2: width - RIGHT, y1: bottom, y2: bottom }));
    if (metric.limit !== undefined && Number.isFinite(metric.limit)) {
      const y = scale.y(metric.limit);
      root.append(svg("line", { class: "limit", x1: LEFT, x2: width - RIGHT, y1: y, y2: y }), svg("text", { class: "limit-text", x: width - RIGHT, y: y - 5, "text-anchor": "end" }, `threshold ${metric.limitText || show(metric.limit)}`));
    }
    if (state.selected >= state.from && state.selected < state.to) {
      const x = xAt(state.selected, width);
      root.append(svg("line", { class: "chosen", x1: x, x2: x, y1: top - 16, y2: bottom }));
    }
    const hover = svg("line", { class: "hover", y1: top - 16, y2: bottom, visibility: "hidden" });
    root.append(hover);
    const points = seen.map((l) => [xAt(l.place, width), scale.y(metric.of(l)), l, metric.of(l)]);
    let path = "", open = false;
    for (const [x, y, , v] of points) {
      if (Number.isFinite(v)) { path += `${open ? "L" : "M"}${x.toFixed(1)} ${y.toFixed(1)}`; open = true; } else open = false;
    }
    root.append(svg("path", { class: "line", d: path }));
    const slot = (width - LEFT - RIGHT) / (seen.length || 1), radius = clamp(slot / 2.6, 2, 4.5);
    for (const [x, y, l, v] of points) {
      if (!Number.isFinite(v) && !(metric.key === "sqnr" && v === Infinity)) root.append(svg("path", { class: "odd", d: `M${x - 4} ${y - 4}l8 8m0 -8l-8 8` }));
      else if (slot > 3.5 || l.verdict !== "pass") root.append(svg("circle", { class: `dot ${l.verdict}`, cx: x.toFixed(1), cy: y.toFixed(1), r: radius }));
      if (l.rises) root.append(svg("path", { class: "rise", d: `M${x - 5} ${y - radius - 4}h10l-5 -9z` }));
    }
    if (state.selected >= state.from && state.selected < state.to) {
      const l = layers[state.selected], x = xAt(l.place, width);
      root.append(svg("circle", { class: "ring", cx: x, cy: scale.y(metric.of(l)), r: radius + 3 }));
      const text = `${short(l.name, narrow ? 24 : 48)}  ${show(metric.of(l))}`, anchor = x < width * 0.3 ? "start" : x > width * 0.7 ? "end" : "middle";
      root.append(svg("text", { class: "strong", x: clamp(x, LEFT, width - RIGHT), y: 10, "text-anchor": anchor }, text));
    }
    if (named) {
      for (const [x, , l] of points) root.append(svg("text", { transform: `translate(${x + 4} ${bottom + 12}) rotate(-42)`, "text-anchor": "end", class: l.place === state.selected ? "strong" : "" }, short(l.name, 17)));
    } else {
      for (const mark of ticks(state.from, state.to - 1, narrow ? 5 : 10)) {
        if (mark !== Math.round(mark) || !layers[mark]) continue;
        root.append(svg("text", { x: xAt(mark, width), y: bottom + 16, "text-anchor": "middle" }, String(mark)));
      }
      root.append(svg("text", { x: (LEFT + width - RIGHT) / 2, y: height - 3, "text-anchor": "middle" }, "layer, in depth order"));
    }
    const rect = svg("rect", { class: "window", y: top - 16, height: bottom - top + 16, visibility: "hidden" });
    root.append(rect);
    holder.parts = { hover, rect, width };
    holder.setAttribute("aria-valuenow", Math.max(state.selected, 0));
    const chosen = layers[state.selected];
    if (chosen) holder.setAttribute("aria-valuetext", `${chosen.name}, ${chosen.op || "no type"}, ${metric.label} ${show(metric.of(chosen))}, ${chosen.verdict}`);
    drawStrip();
  }

  function drawStrip() {
    const holder = $("depth-strip"), { root, width } = canvas(holder, 44, "");
    const scale = vertical(state.metric, 6, 40);
    let path = "";
    for (const l of layers) {
      const v = state.metric.of(l);
      if (Number.isFinite(v)) path += `${path ? "L" : "M"}${xAt(l.place, width, 0, layers.length).toFixed(1)} ${scale.y(v).toFixed(1)}`;
    }
    root.append(svg("path", { class: "line", d: path }), svg("line", { class: "axis", x1: LEFT, x2: width - RIGHT, y1: 42, y2: 42 }));
    const edge = (v) => LEFT + (v / layers.length) * (width - LEFT - RIGHT);
    root.append(svg("rect", { class: "window", x: edge(state.from), width: Math.max(edge(state.to) - edge(state.from), 3), y: 1, height: 41, rx: 3 }));
  }

  function zoomTo(from, to) {
    const least = Math.min(4, layers.length);
    from = Math.floor(from); to = Math.ceil(to);
    if (to - from < least) { const middle = (from + to) / 2; from = Math.floor(middle - least / 2); to = from + least; }
    if (from < 0) { to = Math.min(to - from, layers.length); from = 0; }
    if (to > layers.length) { from = Math.max(0, from - (to - layers.length)); to = layers.length; }
    state.from = from; state.to = to;
    drawDepth();
  }
  function zoomBy(factor) {
    const inside = state.selected >= state.from && state.selected < state.to;
    const middle = inside ? state.selected + 0.5 : (state.from + state.to) / 2, half = ((state.to - state.from) * factor) / 2;
    zoomTo(middle - half, middle + half);
    say(`Layers ${state.from} to ${state.to - 1} of ${layers.length}`);
  }

  function startDepth() {
    const holder = $("depth-chart"), strip = $("depth-strip");
    fill(holder, { tabindex: 0, role: "slider", "aria-label": "Selected layer, in depth order", "aria-valuemin": 0, "aria-valuemax": layers.length - 1, "aria-valuenow": 0 }, []);
    const at = (event, node) => { const box = node.getBoundingClientRect(); return ((event.clientX - box.left) / box.width) * node.parts.width; };
    let start = null;
    holder.addEventListener("pointerdown", (event) => { start = event.button === 0 ? at(event, holder) : null; if (event.pointerType === "mouse") holder.setPointerCapture(event.pointerId); });
    holder.addEventListener("pointermove", (event) => {
      const x = at(event, holder), { hover, rect, width } = holder.parts;
      const place = clamp(Math.floor(placeAt(x, width)), Math.max(state.from, 0), state.to - 1), l = layers[place];
      if (!l) return;
      fill(hover, { x1: xAt(place, width), x2: xAt(place, width), visibility: "visible" }, []);
      tip(event, `${short(l.name, 120)}${l.op ? ` (${l.op})` : ""}\nRMSE ${exact(l.rmse)}  COS ${exact(l.cos)}\nMSE ${exact(l.mse)}  SQNR ${exact(l.sqnr, 2)} dB${l.rises ? "\nthe error rises here" : ""}`);
      if (start !== null && Math.abs(x - start) > 6) fill(rect, { x: Math.min(x, start), width: Math.abs(x - start), visibility: "visible" }, []);
    });
    holder.addEventListener("pointerleave", (event) => { tip(event, ""); if (holder.parts) holder.parts.hover.setAttribute("visibility", "hidden"); });
    holder.addEventListener("pointerup", (event) => {
      if (start === null) return;
      const x = at(event, holder), { width } = holder.parts, first = start;
      start = null;
      if (Math.abs(x - first) > 6) zoomTo(Math.floor(placeAt(Math.min(x, first), width)), Math.ceil(placeAt(Math.max(x, first), width)));
      else select(clamp(Math.floor(placeAt(x, width)), state.from, state.to - 1));
    });
    holder.addEventListener("pointercancel", () => { start = null; });
    holder.addEventListener("dblclick", () => zoomTo(0, layers.length));
    holder.addEventListener("keydown", (event) => {
      const step = { ArrowRight: 1, ArrowUp: 1, ArrowLeft: -1, ArrowDown: -1, PageUp: 10, PageDown: -10 }[event.key];
      if (step) select(clamp(state.selected + step, 0, layers.length - 1));
      else if (event.key === "Home") select(0);
      else if (event.key === "End") select(layers.length - 1);
      else if (event.key === "+") zoomBy(0.5);
      else if (event.key === "-") zoomBy(2);
      else if (event.key === "Escape" || event.key === "0") zoomTo(0, layers.length);
      else return;
      event.preventDefault();
    });
    let drag = null;
    const spot = (event) => { const box = strip.getBoundingClientRect(), w = strip.clientWidth; return clamp(((event.clientX - box.left - LEFT) / (w - LEFT - RIGHT)) * layers.length, 0, layers.length); };
    strip.addEventListener("pointerdown", (event) => {
      strip.setPointerCapture(event.pointerId);
      const here = spot(event), whole = state.to - state.from >= layers.length;
      drag = !whole && here > state.from && here < state.to ? { move: here - state.from, size: state.to - state.from } : { anchor: here };
    });
    strip.addEventListener("pointermove", (event) => {
      if (!drag) return;
      const here = spot(event);
      if (drag.anchor === undefined) { const from = clamp(Math.round(here - drag.move), 0, layers.length - drag.size); zoomTo(from, from + drag.size); }
      else if (Math.abs(here - drag.anchor) * strip.clientWidth > 4 * layers.length) zoomTo(Math.min(here, drag.anchor), Math.max(here, drag.anchor));
    });
    for (const end of ["pointerup", "pointercancel"]) strip.addEventListener(end, () => { drag = null; });
    $("zoom-in").addEventListener("click", () => zoomBy(0.5));
    $("zoom-out").addEventListener("click", () => zoomBy(2));
    $("zoom-all").addEventListener("click", () => zoomTo(0, layers.length));
    const group = $("metric");
    for (const metric of METRICS) {
      const button = el("button", { type: "button", role: "radio", "data-metric": metric.key }, metric.label);
      button.addEventListener("click", () => choose(metric));
      group.append(button);
    }
    group.addEventListener("keydown", (event) => {
      const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
      if (!step) return;
      event.preventDefault();
      choose(METRICS[(METRICS.indexOf(state.metric) + step + METRICS.length) % METRICS.length]);
      group.querySelector('[aria-checked="true"]').focus();
    });
    const legend = $("depth-legend");
    legend.textContent = "● past a threshold   ○ within   ▲ the error rises here   ✕ NaN or Inf   — click to select, drag to zoom, arrow keys walk";
    $("depth").hidden = false;
    choose(state.metric);
  }
  function choose(metric) {
    state.metric = metric;
    for (const button of $("metric").children) {
      const on = button.dataset.metric === metric.key;
      fill(button, { "aria-checked": String(on), tabindex: on ? "0" : "-1" }, []);
    }
    drawDepth();
  }

  // ---- the table
  function startTable() {
    const table = $("table"), body = table.tBodies[0], rows = [...body.rows];
    rows.forEach((row) => {
      const place = Number(row.dataset.place), label = row.querySelector(".name");
      const button = el("button", { type: "button", class: "name", title: layers[place].name }, written(short(layers[place].name, 66)));
      label.replaceWith(button);
      layers[place].row = row;
      layers[place].text = `${layers[place].name} ${layers[place].op || ""} ${layers[place].note || ""}`.toLowerCase();
    });
    body.addEventListener("click", (event) => {
      const row = event.target.closest("tr");
      if (row && !String(getSelection())) select(Number(row.dataset.place), true);
    });
    body.addEventListener("keydown", (event) => {
      const step = { ArrowDown: "nextElementSibling", ArrowUp: "previousElementSibling" }[event.key];
      if (!step) return;
      let row = event.target.closest("tr")[step];
      while (row && row.hidden) row = row[step];
      event.preventDefault();
      if (!row) return;
      row.querySelector("button").focus();
      select(Number(row.dataset.place));
    });
    for (const head of table.tHead.rows[0].cells) {
      const button = el("button", { type: "button" }, head.textContent);
      button.addEventListener("click", () => {
        state.down = state.sort === head.dataset.key ? !state.down : !["place", "name", "cos", "sqnr"].includes(head.dataset.key);
        state.sort = head.dataset.key;
        sort();
      });
      head.replaceChildren(button);
    }
    for (const kind of ["input", "change"]) document.querySelector(".filters").addEventListener(kind, filter);
    document.querySelector(".filters").hidden = false;
    sort();
  }
  function sort() {
    const key = state.sort, worst = { fail: 2, warn: 1, pass: 0 };
    const of = (l) => (key === "verdict" ? worst[l.verdict] : l[key]);
    const order = (a, b) => {
      const x = of(a), y = of(b);
      if (typeof x === "string") return x.localeCompare(y, "en", { numeric: true });
      if (Number.isNaN(x) || Number.isNaN(y)) return Number.isNaN(x) - Number.isNaN(y);
      return x === y ? 0 : x - y;
    };
    const sorted = [...layers].sort((a, b) => (state.down ? order(b, a) : order(a, b)) || a.place - b.place);
    $("table").tBodies[0].append(...sorted.map((l) => l.row));
    for (const head of $("table").tHead.rows[0].cells) {
      if (head.dataset.key === key) head.setAttribute("aria-sort", state.down ? "descending" : "ascending");
      else head.removeAttribute("aria-sort");
    }
  }
  function filter() {
    const words = $("search").value.toLowerCase().split(/\s+/).filter(Boolean), op = $("op").value, rises = $("rises").checked;
    const on = new Set([...document.getElementsByName("verdict")].filter((b) => b.checked).map((b) => b.value));
    let count = 0;
    for (const l of layers) {
      const fits = on.has(l.verdict) && (!op || l.op === op) && (!rises || l.rises) && words.every((w) => l.text.includes(w));
      l.row.hidden = !fits;
      count += fits;
    }
    $("shown-count").textContent = count === layers.length ? `${count} compared` : `${count} of ${layers.length} shown`;
  }

  // ---- the selected layer
  const HEAT = [[0, 0, 4], [81, 18, 124], [183, 55, 121], [252, 137, 97], [252, 253, 191]];
  const heat = (t) => {
    const at = clamp(t, 0, 1) * (HEAT.length - 1), i = Math.min(Math.floor(at), HEAT.length - 2), f = at - i;
    return HEAT[i].map((c, k) => Math.round(c + (HEAT[i + 1][k] - c) * f));
  };

  function select(place, scroll) {
    const l = layers[place];
    if (!l) return;
    if (layers[state.selected] && layers[state.selected].row) layers[state.selected].row.removeAttribute("aria-current");
    state.selected = place;
    if (l.row) l.row.setAttribute("aria-current", "true");
    if (place < state.from || place >= state.to) { const half = (state.to - state.from) / 2; zoomTo(place - half, place + half); } else drawDepth();
    drawSelected(l);
    try { history.replaceState(null, "", `#layer-${place}`); } catch { /* a page without an address of its own */ }
    if (scroll && matchMedia("(max-width: 1000px)").matches) $("selected").scrollIntoView();
  }

  function drawSelected(l) {
    const box = $("selected"), focused = document.activeElement && box.contains(document.activeElement) ? document.activeElement.dataset.walk : null;
    box.hidden = false;
    const go = (text, label, place) => {
      const button = el("button", { type: "button", "aria-label": label, disabled: !layers[place], "data-walk": label }, text);
      button.addEventListener("click", () => select(place));
      return button;
    };
    const fact = (what, value, wide) => (value === "" || value === undefined ? null : el("div", { class: wide ? "wide" : null }, el("dt", {}, what), el("dd", {}, value)));
    const d = l.details;
    const scale = l.scale ? l.scale.map((s) => show(number(s), 6)).join(", ") + (l.scales > l.scale.length ? ` … (${l.scales})` : "") : "";
    box.replaceChildren(
      el("div", { class: "head" }, el("h2", { id: "selected-title" }, written(l.name)), el("div", {}, go("←", "Layer before", l.place - 1), go("→", "Layer after", l.place + 1))),
      el("p", {}, l.op ? `${l.op}  ` : "", el("span", { class: l.verdict }, l.verdict), l.rises ? el("span", { class: "rise" }, "  ▲ the error rises here") : null),
      el("dl", { class: "facts" },
        fact("RMSE", exact(l.rmse)), fact("COS", exact(l.cos)), fact("MSE", exact(l.mse)), fact("SQNR", exact(l.sqnr, 2) + " dB"),
        fact("own error (RMSE)", l.has_own_error ? exact(l.own_error) : ""), fact("inherited (RMSE)", l.has_inherited ? exact(l.inherited) : ""),
        fact("shape", l.shape ? l.shape.join(" × ") : ""), fact("type", l.dtype || ""), fact("scale", scale), fact("zero point", l.zero === undefined ? "" : String(l.zero)),
        fact("range", d && d.range ? `${show(number(d.range[0]))} … ${show(number(d.range[1]))}` : ""),
        fact("mean RMSE of the pictures", l.has_mean_rmse ? exact(l.mean_rmse) : ""), fact("worst picture", l.worst || ""),
        fact("attributes", (l.attributes || []).map(([k, v]) => `${k} = ${v}`).join(",  "), true), fact("remark", l.note || "", true)),
    );
    drawWalk(box, l);
    if (d) drawDetails(box, l, d);
    else box.append(el("p", { class: "legend" }, "Only the figures of this layer are in the report."));
    box.scrollTop = 0;
    if (focused) { const again = box.querySelector(`[data-walk="${focused}"]:not([disabled])`); if (again) again.focus(); }
  }

  function drawWalk(box, l) {
    const MOST = 4;
    const node = (place) => {
      const o = layers[place];
      const button = el("button", { type: "button", class: `is-${o.verdict}`, title: o.name }, written(short(o.name, 40)), el("small", {}, `${o.op ? o.op + "  " : ""}${show(o.rmse)}`));
      button.addEventListener("click", () => select(place));
      return button;
    };
    const column = (places, none) => el("div", {}, ...(places.length ? places.slice(0, MOST).map(node) : [el("span", { class: "none" }, none)]), places.length > MOST ? el("span", { class: "none" }, `and ${places.length - MOST} more`) : null);
    const here = el("div", {}, el("div", { class: `here is-${l.verdict}` }, written(short(l.name, 40)), el("small", {}, `${l.op ? l.op + "  " : ""}${show(l.rmse)}`)));
    const before = column(l.sources, "the net's input"), after = column(l.feeds, "nothing compared"), links = svg("svg", { "aria-hidden": "true" });
    const walk = el("div", { class: "walk", role: "group", "aria-label": "What feeds this layer, and what it feeds" }, links, before, here, after);
    box.append(el("h3", {}, "Feeds it   →   this layer   →   fed by it"), walk);
    const frame = walk.getBoundingClientRect(), mid = here.firstChild.getBoundingClientRect();
    const flat = getComputedStyle(walk).gridTemplateColumns.split(" ").length > 1;
    const link = (from, to) => {
      const a = from.getBoundingClientRect(), b = to.getBoundingClientRect();
      const [x1, y1, x2, y2] = flat ? [a.right, (a.top + a.bottom) / 2, b.left, (b.top + b.bottom) / 2] : [(a.left + a.right) / 2, a.bottom, (b.left + b.right) / 2, b.top];
      const [p, q, r, s] = [x1 - frame.left, y1 - frame.top, x2 - frame.left, y2 - frame.top], m = (p + r) / 2;
      links.append(svg("path", { class: "link", d: flat ? `M${p} ${q}C${m} ${q} ${m} ${s} ${r} ${s}` : `M${p} ${q}L${r} ${s}` }));
    };
    // a page that is printed is as much narrower as the box is
    fill(links, { viewBox: `0 0 ${frame.width || 1} ${frame.height || 1}`, preserveAspectRatio: "none" }, []);
    if (mid.width) {
      for (const button of before.querySelectorAll("button")) if (flat || button === [...before.querySelectorAll("button")].pop()) link(button, here.firstChild);
      for (const button of after.querySelectorAll("button")) if (flat || button === after.querySelector("button")) link(here.firstChild, button);
    }
  }

  function drawDetails(box, l, d) {
    const chart = (parent, title, legend) => {
      const holder = el("div", { class: "chart" }), part = el("div", {}, el("h3", {}, title), holder, legend ? el("p", { class: "legend" }, ...legend) : null);
      parent.append(part);
      return holder;
    };
    const values = chart(box, "Values", [el("span", { class: "key benchmark" }), "benchmark", el("span", { class: "key sample" }), "sample", d.range ? "   dashed: calibrated minimum and maximum, below them the 256 levels" : "", "   (counts are logarithmic)"]);
    histogram(values, d.edges, [["benchmark", d.benchmark], ["sample", d.sample]], { range: d.range && d.range.map(number), height: 200, label: `Histograms of the values of ${l.name}: ${plural(d.counts[0], "value")} of the sample, ${plural(d.counts[1], "value")} of the benchmark` });
    const two = el("div", { class: "pair" });
    box.append(two);
    histogram(chart(two, "Error, sample − benchmark"), d.errorEdges, [["error", d.errors]], { height: 150, zero: true, label: "Histogram of the error" });
    byValue(chart(two, "Mean |error| against value", null), l, d);
    if (d.channels && d.channels.length) channels(chart(two, d.channelCount > d.channels.length ? `Error by channel, the worst ${d.channels.length} of ${d.channelCount}` : "Error by channel, worst first"), d);
    if (d.heat) heatMap(two, d);
  }

  function frame(holder, height, label, low, high, bottomSpace = 20) {
    const c = canvas(holder, height, label);
    const left = 40, right = 8, x = (v) => left + ((v - low) / (high - low || 1)) * (c.width - left - right);
    const bottom = height - bottomSpace;
    for (const mark of ticks(low, high, c.width < 320 ? 4 : 6)) c.root.append(svg("text", { x: clamp(x(mark), left, c.width - 14), y: height - bottomSpace + 14, "text-anchor": "middle" }, show(mark)));
    c.root.append(svg("line", { class: "axis", x1: left, x2: c.width - right, y1: bottom, y2: bottom }));
    return { ...c, left, right, x, bottom };
  }
  const percent = (v) => (Number.isFinite(v) ? `${Number((v * 100).toPrecision(2))} %` : show(v));
  const within = (event, c) => { const b = c.root.getBoundingClientRect(); return ((event.clientX - b.left) / b.width) * c.width; };

  function histogram(holder, edges, series, options) {
    if (!series[0][1].length) { holder.append("no finite value"); return; }
    let [low, high] = edges;
    const range = options.range, bins = series[0][1].length, size = (edges[1] - edges[0]) / bins;
    if (range) { low = Math.min(low, range[0]); high = Math.max(high, range[1]); }
    const pad = (high - low) * 0.01 || 1;
    low -= pad; high += pad;
    const c = frame(holder, options.height, options.label, low, high, range ? 32 : 20), top = range ? 20 : 10;
    const most = Math.max(1, ...series.flatMap(([, counts]) => counts)), y = (n) => c.bottom - (n > 0 ? 0.06 + 0.94 * (Math.log10(n) / (Math.log10(most) || 1)) : 0) * (c.bottom - top);
    for (let e = 0; 10 ** e <= most; e += Math.max(1, Math.ceil(Math.log10(most) / 4))) c.root.append(svg("line", { class: "grid", x1: c.left, x2: c.width - c.right, y1: y(10 ** e), y2: y(10 ** e) }), svg("text", { x: c.left - 5, y: y(10 ** e) + 4, "text-anchor": "end" }, e > 3 ? `1e${e}` : String(10 ** e)));
    if (options.zero) c.root.append(svg("line", { class: "hover", x1: c.x(0), x2: c.x(0), y1: top, y2: c.bottom }));
    for (const [name, counts] of series) {
      let path = `M${c.x(edges[0]).toFixed(1)} ${c.bottom}`;
      counts.forEach((n, i) => { const h = y(n).toFixed(1); path += `V${h}H${c.x(edges[0] + (i + 1) * size).toFixed(1)}`; });
      c.root.append(svg("path", { class: name, d: `${path}V${c.bottom}` }));
    }
    if (range) {
      const [a, b] = range.map(c.x);
      c.root.append(svg("rect", { class: "outside", x: c.left, width: Math.max(a - c.left, 0), y: top, height: c.bottom - top }), svg("rect", { class: "outside", x: b, width: Math.max(c.width - c.right - b, 0), y: top, height: c.bottom - top }));
      for (const [at, text, anchor] of [[a, `min ${show(range[0])}`, "start"], [b, `max ${show(range[1])}`, "end"]]) c.root.append(svg("line", { class: "range", x1: at, x2: at, y1: top - 4, y2: c.bottom }), svg("text", { x: clamp(at, c.left, c.width - c.right), y: 11, "text-anchor": anchor }, text));
      const every = b - a >= 512 ? 1 : b - a >= 256 ? 2 : b - a >= 128 ? 4 : 16;
      let path = "";
      for (let i = 0; i <= 256; i += every) path += `M${(a + ((b - a) * i) / 256).toFixed(1)} ${c.bottom + 19}v${i % 64 ? 5 : 9}`;
      c.root.append(svg("path", { class: "levels", d: path }));
    }
    c.root.addEventListener("pointermove", (event) => {
      const i = Math.floor((within(event, c) - c.x(edges[0])) / (c.x(edges[0] + size) - c.x(edges[0])));
      if (i < 0 || i >= bins) { tip(event, ""); return; }
      const about = (n) => (n < 1000 ? String(n) : `about ${n.toLocaleString("en")}`);
      tip(event, `${show(edges[0] + i * size)} … ${show(edges[0] + (i + 1) * size)}\n${series.map(([name, counts]) => `${name}: ${about(counts[i])}`).join("\n")}`);
    });
    c.root.addEventListener("pointerleave", (event) => tip(event, ""));
  }

  function byValue(holder, l, d) {
    const values = d.byValue.map(number), bins = values.length;
    if (!bins) { holder.append("no finite value"); return; }
    const [low, high] = d.edges, size = (high - low) / bins;
    const step = l.scale && l.scales === 1 ? number(l.scale[0]) : d.range ? (number(d.range[1]) - number(d.range[0])) / 255 : NaN;
    const rounding = step / 4, known = values.filter((v, i) => d.benchmark[i] > 0 && Number.isFinite(v));
    const most = Math.max(...known, Number.isFinite(rounding) ? rounding * 1.2 : 0) || 1;
    const c = frame(holder, 150, "Mean absolute error against the benchmark's value", low, high), top = 12, y = (v) => c.bottom - (Math.min(v, most) / most) * (c.bottom - top);
    for (const mark of ticks(0, most, 3)) c.root.append(svg("line", { class: "grid", x1: c.left, x2: c.width - c.right, y1: y(mark), y2: y(mark) }), svg("text", { x: c.left - 5, y: y(mark) + 4, "text-anchor": "end" }, show(mark, 2)));
    let path = "";
    values.forEach((v, i) => { if (d.benchmark[i] > 0 && v >= 0) path += `M${c.x(low + i * size).toFixed(1)} ${c.bottom}V${y(v).toFixed(1)}H${c.x(low + (i + 1) * size).toFixed(1)}V${c.bottom}z`; });
    c.root.append(svg("path", { class: "error", d: path }));
    if (Number.isFinite(rounding) && rounding > most * 0.004) c.root.append(svg("line", { class: "range", x1: c.left, x2: c.width - c.right, y1: y(rounding), y2: y(rounding) }), svg("text", { class: "strong", x: c.width - c.right, y: Math.max(y(rounding) - 4, 9), "text-anchor": "end" }, l.scale ? "rounding alone" : "rounding to 8 bits alone"));
    c.root.addEventListener("pointermove", (event) => {
      const i = Math.floor((within(event, c) - c.x(low)) / (c.x(low + size) - c.x(low)));
      tip(event, i >= 0 && i < bins && d.benchmark[i] ? `${show(low + i * size)} … ${show(low + (i + 1) * size)}\nmean |error| ${show(values[i])}` : "");
    });
    c.root.addEventListener("pointerleave", (event) => tip(event, ""));
  }

  function channels(holder, d) {
    const shownOnes = d.channels.slice(0, holder.clientWidth < 300 ? 16 : 32).map((one) => one.map(number));
    const most = Math.max(...shownOnes.map(([, v]) => v).filter(Number.isFinite), 0) || 1;
    const c = canvas(holder, 150, `Part of the error in each channel; the worst is channel ${shownOnes[0][0]} with ${percent(shownOnes[0][1])}`), left = 40, top = 12, bottom = 118, slot = (c.width - left - 8) / shownOnes.length;
    const y = (v) => bottom - (Number.isFinite(v) ? v / most : 1) * (bottom - top);
    for (const mark of ticks(0, most, 3)) c.root.append(svg("line", { class: "grid", x1: left, x2: c.width - 8, y1: y(mark), y2: y(mark) }), svg("text", { x: left - 5, y: y(mark) + 4, "text-anchor": "end" }, percent(mark)));
    shownOnes.forEach(([i, v], rank) => {
      const x = left + rank * slot, wide = Math.min(slot * 0.8, 26);
      c.root.append(svg("rect", { class: "error", x, width: wide, y: y(v), height: Math.max(bottom - y(v), 0.5) }));
      if (slot >= 13) c.root.append(svg("text", slot >= 24 ? { x: x + wide / 2, y: bottom + 14, "text-anchor": "middle" } : { transform: `translate(${x + wide / 2 + 4} ${bottom + 6}) rotate(-90)`, "text-anchor": "end" }, String(i)));
    });
    c.root.addEventListener("pointermove", (event) => { const one = shownOnes[Math.floor((within(event, c) - left) / slot)]; tip(event, one ? `channel ${one[0]}\n${percent(one[1])} of the layer's error\nRMSE ${show(one[2])}` : ""); });
    c.root.addEventListener("pointerleave", (event) => tip(event, ""));
  }

  function heatMap(box, d) {
    const bytes = Uint8Array.from(atob(d.heat), (ch) => ch.charCodeAt(0)), [rows, columns] = d.heatShape, [height, width] = d.heatSize;
    const map = el("canvas", { width: columns, height: rows, role: "img", "aria-label": `Where in height and width the error sits; the largest mean is ${show(number(d.heatTop))}` });
    const context = map.getContext("2d"), image = context.createImageData(columns, rows);
    let odd = 0, peak = 0;
    bytes.forEach((b, i) => {
      if (b === 255) odd++; else if (bytes[peak] === 255 || b > bytes[peak]) peak = i;
      image.data.set([...(b === 255 ? [255, 0, 255] : heat(b / 254)), 255], i * 4);
    });
    context.putImageData(image, 0, 0);
    const part = el("div", {}, el("h3", {}, "Where it sits: mean |error| over height × width"), el("div", { class: "heat" }, map));
    box.append(part);
    const room = Math.min(part.clientWidth || 280, 360), factor = Math.min(room / width, 150 / height);
    map.style.width = Math.max(width * factor, 8) + "px";
    map.style.height = Math.max(height * factor, 8) + "px";
    part.append(el("p", { class: "legend" }, `${height} × ${width}; dark is 0, bright ${show(number(d.heatTop))}${odd ? "; magenta is NaN or Inf" : ""}${d.heatOf ? `; the worst picture, ${d.heatOf}` : ""}`));
    map.addEventListener("pointermove", (event) => {
      const b = map.getBoundingClientRect(), x = clamp(Math.floor(((event.clientX - b.left) / b.width) * columns), 0, columns - 1), y = clamp(Math.floor(((event.clientY - b.top) / b.height) * rows), 0, rows - 1), v = bytes[y * columns + x];
      tip(event, `row ${Math.floor((y * height) / rows)}, column ${Math.floor((x * width) / columns)}\nmean |error| ${v === 255 ? "nan or inf" : `about ${show((v / 254) * number(d.heatTop), 3)}`}`);
    });
    map.addEventListener("pointerleave", (event) => tip(event, ""));
  }

  // ---- the trade-off
  function drawTradeoff() {
    const t = data.tradeoff, pairs = (list) => list.map(([a, b]) => [number(a), number(b)]);
    const tried = pairs(t.tried), envelope = pairs(t.envelope), plans = t.plans.map((p) => ({ ...p, rate: number(p.rate), error: number(p.error) }));
    const positive = [...tried, ...envelope, ...plans.map((p) => [p.rate, p.error])].filter(([r, e]) => e > 0 && Number.isFinite(e) && Number.isFinite(r));
    const xs = positive.map(([r]) => r), ys = positive.map(([, e]) => e);
    const low = Math.min(...xs, 1), high = Math.max(...xs, 0.5), a = Math.floor(Math.log10(Math.min(...ys))), b = Math.max(Math.ceil(Math.log10(Math.max(...ys))), a + 1);
    const { root, width, height } = canvas($("tradeoff-chart"), 320, `${plural(t.triedCount, "plan")} tried; to take: ${t.taken.label}, rate ${show(number(t.taken.rate))}, error ${show(number(t.taken.error))}`);
    const top = 14, bottom = height - 38, x = (r) => 56 + ((r - low) / (high - low || 1)) * (width - 84), y = (e) => bottom - (Math.max(Math.log10(Math.max(e, 1e-300)) - a, 0) / (b - a)) * (bottom - top);
    for (let e = a; e <= b; e++) root.append(svg("line", { class: "grid", x1: 56, x2: width - 14, y1: y(10 ** e), y2: y(10 ** e) }), svg("text", { x: 50, y: y(10 ** e) + 4, "text-anchor": "end" }, power(10 ** e)));
    for (const mark of ticks(low, high, width < 500 ? 4 : 8)) root.append(svg("text", { x: x(mark), y: bottom + 16, "text-anchor": "middle" }, show(mark)));
    root.append(svg("text", { x: width / 2, y: height - 4, "text-anchor": "middle" }, "bytes of the weights, 1 = all at 16 bits"), svg("line", { class: "axis", x1: 56, x2: width - 14, y1: bottom, y2: bottom }));
    for (const p of plans) { const asked = number(p.asked); if (asked >= low && asked <= high) root.append(svg("line", { class: "asked", x1: x(asked), x2: x(asked), y1: top, y2: bottom })); }
    for (const [r, e] of tried) if (e >= 0) root.append(svg("circle", { class: "tried", cx: x(r).toFixed(1), cy: y(e).toFixed(1), r: 2.2 }));
    let path = "";
    envelope.forEach(([r, e]) => { path += path ? `H${x(r).toFixed(1)}V${y(e).toFixed(1)}` : `M${x(r).toFixed(1)} ${y(e).toFixed(1)}`; });
    root.append(svg("path", { class: "envelope", d: path + `H${x(high)}` }));
    const taken = [x(number(t.taken.rate)), y(number(t.taken.error))];
    for (const p of plans) {
      const dot = svg("circle", { class: "plan", cx: x(p.rate), cy: y(p.error), r: 5 });
      dot.addEventListener("pointermove", (event) => tip(event, `${p.label}\nrate ${show(p.rate)}\nerror ${show(p.error)}`));
      dot.addEventListener("pointerleave", (event) => tip(event, ""));
      root.append(dot);
    }
    root.append(svg("circle", { class: "ring", cx: taken[0], cy: taken[1], r: 10 }), svg("text", { class: "strong", x: clamp(taken[0] + 14, 60, width - 90), y: Math.max(taken[1] - 12, 12) }, `to take: ${short(t.taken.label, 20)}`));
    $("tradeoff-legend").textContent = `· ${plural(t.triedCount, "plan")} tried   — the best of them at each size   ○ the plans below   dotted: rates asked for`;
  }

  // ---- begin
  const redraw = () => {
    if (layers.length) { drawDepth(); if (layers[state.selected]) drawSelected(layers[state.selected]); }
    if (data.tradeoff) drawTradeoff();
  };
  if (layers.length) {
    startTable();
    startDepth();
    const asked = /^#layer-(\d+)$/.exec(location.hash);
    const worst = [...layers].sort((a, b) => (b.verdict === "fail") - (a.verdict === "fail") || b.rises - a.rises || (Number.isFinite(b.own_error) ? b.own_error : Infinity) - (Number.isFinite(a.own_error) ? a.own_error : Infinity))[0];
    select(asked && layers[asked[1]] ? Number(asked[1]) : worst.place);
  }
  if (data.tradeoff) drawTradeoff();
  let wide = innerWidth, waiting = 0;
  addEventListener("resize", () => {
    if (innerWidth === wide) return;  // a phone's address bar comes and goes
    wide = innerWidth;
    cancelAnimationFrame(waiting);
    waiting = requestAnimationFrame(redraw);
  });
  const theme = $("theme");
  theme.hidden = false;
  theme.addEventListener("click", () => {
    const root = document.documentElement, dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = dark ? "light" : "dark";
  });
  for (const button of document.querySelectorAll("[data-copy]")) {
    button.hidden = false;
    button.addEventListener("click", async () => {
      const pre = button.previousElementSibling;
      try { await navigator.clipboard.writeText(pre.textContent); button.textContent = "Copied"; say("Copied"); }
      catch {
        getSelection().selectAllChildren(pre);
        button.textContent = document.execCommand("copy") ? "Copied" : "Press Ctrl+C";
      }
    });
  }
})();
