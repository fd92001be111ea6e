// Start of all parts of the page, which are drawn again if the width of the page changes.

function redraw() {
  if (layers.length) {
    if (data.measured) drawDepth();
    drawLayer(layers[selection.place]);
    if (pieces) made.clear(); // names are shortened to the width
    drawRows(true);
    if (graph) drawNetwork();
  }
  if (data.tradeoff) drawTradeoff();
}

function startWidth() {
  let wide = innerWidth,
    waiting = 0;
  addEventListener("resize", () => {
    if (layers.length) drawRows();
    if (innerWidth === wide) return; // a phone's address bar changes only the height
    wide = innerWidth;
    cancelAnimationFrame(waiting);
    waiting = requestAnimationFrame(redraw);
  });
  const onPaper = (on) => {
    document.body.classList.toggle("paper", on);
    for (const closed of document.querySelectorAll("details")) closed.open = on;
    redraw();
  };
  addEventListener("beforeprint", () => onPaper(true));
  addEventListener("afterprint", () => onPaper(false));
}

function startTheme() {
  const root = document.documentElement,
    theme = $("theme");
  theme.hidden = false;
  theme.addEventListener("click", () => {
    const dark = root.dataset.theme
      ? root.dataset.theme === "dark"
      : matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = dark ? "light" : "dark";
  });
}

// The server compares the dumps meanwhile; then it has a new page.
async function waitForComparison() {
  const line = document.querySelector(".verdict p");
  for (;;) {
    await new Promise((done) => setTimeout(done, 700));
    const state = await fetch("state").then((answer) => answer.json(), () => null);
    if (!state) line.textContent = "The server does not answer any more.";
    if (!state || (state.failure && (line.textContent = state.failure))) return;
    if (!state.running && state.isCompared) return location.reload();
    if (!state.running) return;
    if (state.of) line.textContent = `Comparing: ${state.done} of ${state.of} layers.`;
  }
}

function startCopying() {
  for (const copy of document.querySelectorAll("[data-copy]")) {
    copy.hidden = false;
    copy.addEventListener("click", async () => {
      const text = copy.parentElement.querySelector("pre");
      copy.textContent = (await copied(text)) ? "Copied" : "Press Ctrl+C";
      say(copy.textContent);
    });
  }
}

// A page opened from a file may have no clipboard. Then the text is selected, and the old browser command is tried.
async function copied(text) {
  try {
    await navigator.clipboard.writeText(text.textContent);
    return true;
  } catch {
    getSelection().selectAllChildren(text);
    return document.execCommand("copy");
  }
}

if (layers.length) {
  $("selected").hidden = false; // before anything is measured, because the table's width depends on it
  startTable();
  if (data.measured) startDepth();
  startNetwork();
  onSelect(drawLayer);
  onSelect((_, asked) => asked && matchMedia("(max-width: 1000px)").matches && $("selected").scrollIntoView());
  selectFirst();
}
if (data.tradeoff) startTradeoff();
if (data.served && !data.measured) waitForComparison();
startWidth();
startTheme();
startCopying();
