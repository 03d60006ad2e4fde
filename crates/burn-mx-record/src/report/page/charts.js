// ---- Colours ----------------------------------------------------------------------------------------

const LEVELS = 64;
let ramps = {};

/** The colours of a ramp of the style sheet, each with the ink that reads better on it. */
function readRamp(name) {
  const stops = getComputedStyle(document.documentElement).getPropertyValue(name).split(",").map(stop =>
    stop.trim().match(/[0-9a-f]{2}/gi).map(pair => parseInt(pair, 16)));
  return Array.from({ length: LEVELS }, (_, level) => {
    const place = level / (LEVELS - 1) * (stops.length - 1);
    const below = Math.min(Math.floor(place), stops.length - 2);
    const colour = stops[below].map((from, i) => from + (stops[below + 1][i] - from) * (place - below));
    const [red, green, blue] = colour.map(value => (value / 255) ** 2.2);
    const light = 0.2126 * red + 0.7152 * green + 0.0722 * blue > 0.18;
    return { background: `rgb(${colour.map(Math.round).join(" ")})`, ink: light ? "#11161b" : "#ffffff" };
  });
}

function readRamps() {
  ramps = { loss: readRamp("--loss"), error: readRamp("--error") };
}

function legend({ label, unit, text, loss, ticks, note }, ramp) {
  const reversed = loss(ticks[0]) > loss(ticks.at(-1));
  const place = value => 100 * (reversed ? 1 - loss(value) : loss(value));
  const bar = html("div", { class: "bar" });
  bar.style.background = `linear-gradient(to ${reversed ? "left" : "right"}, var(--${ramp}))`;
  const marks = ticks.map(value => {
    const mark = html("span", {}, text === percent ? String(value) : fixed(value, value % 1 ? 2 : 0));
    mark.style.left = `${place(value)}%`;
    return mark;
  });
  const name = `${label[0].toUpperCase()}${label.slice(1)}${unit && `, ${unit}`}`;
  return html("div", { class: "legend" }, html("span", {}, name),
    html("div", {}, bar, html("div", { class: "ticks" }, ...marks)), html("span", { class: "muted" }, note ?? ""));
}

// ---- The tip at the pointer -------------------------------------------------------------------------

function showTip(lines, x, y) {
  const tip = byId("tip");
  tip.replaceChildren(...lines);
  tip.hidden = false;
  const { width, height } = tip.getBoundingClientRect();
  const right = document.documentElement.clientWidth;
  tip.style.left = `${Math.max(4, x + 16 + width < right ? x + 16 : x - 16 - width)}px`;
  tip.style.top = `${Math.max(4, Math.min(y + 12, window.innerHeight - height - 4))}px`;
}

const hideTip = () => { byId("tip").hidden = true; };

// ---- Charts -----------------------------------------------------------------------------------------

const HEIGHT = 200;
const MARGIN = { top: 8, right: 10, bottom: 32, left: 44 };

/** Round numbers from `low` to `high`, about `count` of them. */
function ticksOf(low, high, count, smallest = 0) {
  const rough = (high - low) / count;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = Math.max(smallest, power * [1, 2, 5, 10].find(factor => factor * power >= rough * 0.999));
  const digits = Math.max(0, -Math.floor(Math.log10(step) + 1e-9));
  const ticks = [];
  for (let place = Math.ceil(low / step - 1e-9); place * step <= high + step * 1e-9; place++) {
    ticks.push({ value: place * step, text: fixed(place * step, digits) });
  }
  return ticks;
}

/** The axes of a chart: its drawing with grid and tick texts, and the two maps to pixels. */
function axes(width, xRange, yRange, xTicks, yTicks, xLabel, label) {
  const right = width - MARGIN.right;
  const bottom = HEIGHT - MARGIN.bottom;
  const x = value => MARGIN.left + (value - xRange[0]) / (xRange[1] - xRange[0] || 1) * (right - MARGIN.left);
  const y = value => bottom - (value - yRange[0]) / (yRange[1] - yRange[0]) * (bottom - MARGIN.top);
  const drawing = svg("svg", { class: "chart", viewBox: `0 0 ${width} ${HEIGHT}`, role: "img", "aria-label": label });
  for (const { value, text } of yTicks) {
    drawing.append(svg("line", { class: "grid", x1: MARGIN.left, x2: right, y1: y(value), y2: y(value) }),
      svg("text", { x: MARGIN.left - 6, y: y(value) + 4, "text-anchor": "end" }, text));
  }
  for (const { value, text } of xTicks) {
    drawing.append(svg("text", { x: x(value), y: bottom + 14, "text-anchor": "middle" }, text));
  }
  drawing.append(svg("text", { x: right, y: HEIGHT - 4, "text-anchor": "end" }, xLabel));
  return { drawing, x, y, right, bottom };
}

/** Calls `show` with the pointer's place in the units of the drawing. */
function onHover(drawing, width, show, hide) {
  drawing.addEventListener("pointermove", event => {
    const box = drawing.getBoundingClientRect();
    show((event.clientX - box.left) * width / box.width, event);
  });
  drawing.addEventListener("pointerleave", () => { hideTip(); hide(); });
}

const noValue = (drawing, width, text) =>
  drawing.append(svg("text", { x: width / 2, y: HEIGHT / 2, "text-anchor": "middle" }, text));

const lineSample = (colour, { dash, width }) => svg("svg", { class: "line-sample", viewBox: "0 0 26 8" },
  svg("line", { x1: 0, x2: 26, y1: 4, y2: 4, stroke: colour, "stroke-width": width, "stroke-dasharray": dash }));

/** A line through the values that are there; a value between two gaps becomes a dot. */
function curve(steps, values, x, y, colour, { width, dash }) {
  let path = "";
  const dots = [];
  const present = index => at(values, index) !== null;
  steps.forEach((step, index) => {
    if (!present(index)) return;
    const [cx, cy] = [x(step).toFixed(1), y(values[index]).toFixed(1)];
    path += `${present(index - 1) ? "L" : "M"}${cx} ${cy}`;
    if (!present(index - 1) && !present(index + 1)) dots.push(svg("circle", { cx, cy, r: 3 }));
  });
  return svg("g", { style: `color: ${colour}` }, ...dots,
    svg("path", { d: path, "stroke-width": width, "stroke-dasharray": dash }));
}

/**
 * Draws lines over the steps into `figure`. `kinds` are {key, label, dash, width, values}, `values` giving
 * the array of a cell. The hue tells the runs apart if there are several, the kinds if there is only one.
 */
function lineChart(figure, { title, unit, kinds, cells, show, range = [] }) {
  const width = figure.clientWidth;
  const several = page.runs.length > 1;
  const id = kind => keyOf(title, kind.key);
  const colour = (kind, run) => several ? run.hue : `var(--hue-${kinds.indexOf(kind) % 8})`;
  const lines = kinds.filter(kind => !page.hiddenKinds.has(id(kind))).flatMap(kind =>
    cells.map(cell => ({ kind, run: cell.run, values: kind.values(cell), colour: colour(kind, cell.run) })))
    .filter(line => line.values);

  const present = lines.flatMap(line => line.values).filter(value => value !== null);
  let [low, high] = [...present, ...range].reduce(
    ([low, high], value) => [Math.min(low, value), Math.max(high, value)], [Infinity, -Infinity]);
  if (low > high) [low, high] = [0, 1];
  // A line that is flat still needs an axis: of a tenth of its value, or of 1.
  const pad = high > low ? (high - low) * 0.04 : Math.abs(high) * 0.1 || 1;
  low -= low === range[0] ? 0 : pad;
  high += pad;
  const steps = page.steps;
  const [first, last] = steps.length > 1 ? [steps[0], steps.at(-1)] : [steps[0] - 1, steps[0] + 1];
  const { drawing, x, y, right, bottom } = axes(width, [first, last], [low, high],
    ticksOf(first, last, width / 60, 1), ticksOf(low, high, 5), "step", `${title}, over the steps`);
  if (present.length === 0) noValue(drawing, width, "no finite value to show");

  for (const { kind, run, values, colour } of lines) drawing.append(curve(run.steps, values, x, y, colour, kind));
  const vertical = name => svg("line", { class: name, y1: MARGIN.top, y2: bottom });
  const place = (line, step) => fill(line, { x1: x(step), x2: x(step) }, []);
  const marker = vertical("marker");
  const hover = vertical("hover");
  hover.style.display = "none";
  drawing.append(marker, hover);

  const nearest = pixel => steps.reduce((best, step) =>
    Math.abs(x(step) - pixel) < Math.abs(x(best) - pixel) ? step : best);
  onHover(drawing, width, (pixel, event) => {
    const step = nearest(Math.min(right, pixel));
    place(hover, step).style.display = "";
    const shown = lines.map(line => ({ ...line, value: at(line.values, indexAt(line.run, step)) }))
      .sort((a, b) => (b.value ?? -Infinity) - (a.value ?? -Infinity));
    showTip([html("div", {}, `step ${step}`), ...shown.map(line => html("div", {},
      lineSample(line.colour, line.kind), several ? `${line.run.name}: ${line.kind.label}` : line.kind.label,
      html("span", { class: "value" }, withUnit(show(line.value), unit))))], event.clientX, event.clientY);
  }, () => { hover.style.display = "none"; });
  drawing.addEventListener("click", event => {
    const box = drawing.getBoundingClientRect();
    setStep(steps.indexOf(nearest((event.clientX - box.left) * width / box.width)));
  });

  const switches = kinds.map(kind => switchButton(!page.hiddenKinds.has(id(kind)), () => {
    toggle(page.hiddenKinds, id(kind));
    showDetail();
  }, lineSample(several ? "currentColor" : colour(kind), kind), kind.label));
  figure.replaceChildren(html("figcaption", {}, unit ? `${title}, ${unit}` : title),
    html("div", { class: "kinds" }, ...switches), drawing);
  page.atStep.push(() => place(marker, page.steps[page.step]));
}

function toggle(set, key) {
  if (!set.delete(key)) set.add(key);
}

function switchButton(on, act, ...content) {
  const button = html("button", { type: "button", "aria-pressed": on }, ...content);
  button.addEventListener("click", act);
  return button;
}

/** The block scales at the slider's step. The axes hold for all steps, lest they jump as the slider moves. */
function scaleHistogram(figure, cells) {
  const width = figure.clientWidth;
  const caption = html("figcaption", {}, "Scales of the blocks, % of the blocks by exponent");
  const total = ({ counts }) => counts.reduce((sum, count) => sum + count, 0) || 1;
  const all = cells.flatMap(cell => cell.row.scales ?? []).filter(scales => scales?.counts?.length);
  const low = Math.min(...all.length ? all.map(({ first }) => first) : [0]);
  const high = Math.max(low, ...all.map(({ first, counts }) => first + counts.length - 1));
  const most = Math.max(1, ...all.map(scales => 100 * Math.max(...scales.counts) / total(scales)));
  const every = Math.ceil((high - low + 1) / (width / 36));
  const exponents = Array.from({ length: high - low + 1 }, (_, place) => low + place);

  const draw = () => {
    const { drawing, x, y } = axes(width, [low - 0.5, high + 0.5], [0, most * 1.04],
      exponents.filter(exponent => exponent % every === 0).map(value => ({ value, text: String(value) })),
      ticksOf(0, most * 1.04, 5), "log2 of the scale", "Histogram of the block scales");
    const shown = cells.map(cell => ({ ...cell, scales: at(cell.row.scales, cell.run.index) }))
      .filter(cell => cell.scales?.counts?.length);
    if (shown.length === 0) noValue(drawing, width, "no scales recorded at this step");
    const count = ({ first, counts }, exponent) => counts[exponent - first] ?? 0;
    const bar = 0.84 / shown.length;
    shown.forEach(({ run, scales }, place) => exponents.forEach(exponent => {
      const share = 100 * count(scales, exponent) / total(scales);
      if (share === 0) return;
      const left = exponent - 0.42 + place * bar;
      drawing.append(svg("rect", {
        x: x(left), y: y(share), width: x(left + bar) - x(left), height: y(0) - y(share), style: `fill: ${run.hue}`,
      }));
    }));
    onHover(drawing, width, (pixel, event) => {
      const exponent = exponents.find(exponent => Math.abs(x(exponent) - pixel) * 2 <= x(1) - x(0));
      if (exponent === undefined) return hideTip();
      showTip([html("div", {}, `scale with log2 ${exponent}`), ...shown.map(({ run, scales }) => html("div", {},
        lineSample(run.hue, { width: 8 }), run.name, html("span", { class: "value" },
          `${count(scales, exponent)} blocks (${percent(100 * count(scales, exponent) / total(scales))} %)`)))],
      event.clientX, event.clientY);
    }, () => {});
    const notes = cells.map(({ run, row }) => html("div", {}, ...(cells.length > 1 ? [`${run.name}: `] : []),
      `mean log2 ${fixed(at(row.scale_mean, run.index), 2)}, ` +
      `standard deviation ${fixed(at(row.scale_std, run.index), 2)} binades`));
    figure.replaceChildren(caption, html("div", { class: "kinds" }, ...notes), drawing);
  };
  page.atStep.push(draw);
}
