// Cost and benefit of INT16: all plans tried, the lowest error at each size, and the plans to choose from.
const AXIS = 56;

function pairsOf(list) {
  return list.map(([rate, error]) => [number(rate), number(error)]);
}

const plans = data.tradeoff
  ? data.tradeoff.plans.map((plan) => ({
      ...plan,
      rate: number(plan.rate),
      error: number(plan.error),
      asked: number(plan.asked),
    }))
  : [];
const taken = data.tradeoff ? plans[data.tradeoff.taken] : undefined;
const showing = { plan: taken };

function drawTradeoff() {
  const tried = pairsOf(data.tradeoff.tried),
    envelope = pairsOf(data.tradeoff.envelope);
  const label = `${plural(data.tradeoff.triedCount, "plan")} tried; recommended: ${taken.label}, rate ${show(taken.rate)}, error ${show(taken.error)}`;
  const { root, width, height } = canvas($("tradeoff-chart"), 320, label);
  const drawable = [...tried, ...plans.map(({ rate, error }) => [rate, error])].filter(
    ([rate, error]) => error > 0 && Number.isFinite(rate * error),
  );
  const low = Math.min(...drawable.map(([rate]) => rate), 1),
    high = Math.max(...drawable.map(([rate]) => rate), low);
  const top = 14,
    bottom = height - 38,
    right = width - 14,
    errors = drawable.map(([, error]) => error);
  const scale = errors.length
    ? logarithmic(Math.min(...errors), Math.max(...errors), top, bottom)
    : logarithmic(0.1, 1, top, bottom);
  const x = (rate) => AXIS + 6 + ((rate - low) / (high - low || 1)) * (right - AXIS - 12);
  for (const mark of scale.marks) {
    const y = scale.y(mark);
    root.append(line("grid", AXIS, y, right, y), words(scale.text(mark), AXIS - 6, y + 4, "end"));
  }
  for (const mark of ticks(low, high, width < 500 ? 4 : 8))
    root.append(words(show(mark), x(mark), bottom + 16, "middle"));
  root.append(line("axis", AXIS, bottom, right, bottom));
  root.append(words("bytes of the weights, 1 = all INT16", width / 2, height - 4, "middle"));
  for (const { asked } of plans)
    if (asked >= low && asked <= high) root.append(line("asked", x(asked), top, x(asked), bottom));
  const dots = tried
    .filter(([, error]) => error >= 0)
    .map(([rate, error]) => `M${x(rate).toFixed(1)} ${scale.y(error).toFixed(1)}h0`);
  root.append(svg("path", { class: "tried", d: dots.join("") }));
  const steps = envelope.map(
    ([rate, error], i) => (i ? "H" : "M") + x(rate).toFixed(1) + (i ? "V" : " ") + scale.y(error).toFixed(1),
  );
  root.append(svg("path", { class: "envelope", d: steps.length ? `${steps.join("")}H${x(high)}` : "" }));
  for (const plan of plans) root.append(dotOf(plan, x(plan.rate), scale.y(plan.error)));
  const at = [x(taken.rate), scale.y(taken.error)],
    leftwards = at[0] > width * 0.75;
  root.append(
    words(
      `recommended: ${short(taken.label, 20)}`,
      at[0] + (leftwards ? -14 : 14),
      Math.max(at[1] - 12, 12),
      leftwards ? "end" : "start",
      "strong",
    ),
  );
}

function dotOf(plan, cx, cy) {
  const dot = svg("circle", { class: "plan", cx, cy, r: 5 });
  const ring = plan === showing.plan ? svg("circle", { class: "ring", cx, cy, r: 10 }) : null;
  onHover(dot, () => `${plan.label}\nrate ${show(plan.rate)}\nerror ${show(plan.error)}`);
  dot.addEventListener("click", () => showPlan(plan));
  return svg("g", {}, dot, ring);
}

// Show the text to copy for a plan.
function showPlan(plan) {
  showing.plan = plan;
  plans.forEach((each, i) =>
    fill($("plans").tBodies[0].rows[i].querySelector("button"), { "aria-pressed": String(each === plan) }),
  );
  $("plan-name").textContent =
    `${plan === taken ? "Recommended plan" : "Plan"} ${plan.label}, for input_config.ini:`;
  $("plan-text").textContent = plan.copy || "No convolution at INT16; nothing to write.";
  drawTradeoff();
}

function startTradeoff() {
  plans.forEach((plan, i) => {
    const name = $("plans").tBodies[0].rows[i].querySelector(".plan-name");
    name.replaceChildren(button({ class: "name" }, () => showPlan(plan), ...name.childNodes));
  });
  showPlan(taken);
}
