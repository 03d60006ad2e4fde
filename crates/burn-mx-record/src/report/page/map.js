// ---- The page ---------------------------------------------------------------------------------------

/** What is shown; `atStep` holds what draws the chosen cell anew when the slider moves. */
const page = {
  runs: [], columns: [], steps: [], mapCells: [], step: 0, statistic: "sqnr", chosen: null,
  hiddenKinds: new Set(), hiddenRuns: new Set(), atStep: [],
};
/** Of a heat map's <td>: its cell, and what it shows now, so that only changes are written. */
const mapCellOf = new Map();

/** The rows of a run's map: its own layers, and layers of the runs with the same architecture, so that equal rows lie beside each other. */
function rowsOf(run) {
  const own = new Set(run.layerNames);
  const isAlike = other => 2 * other.layerNames.filter(name => own.has(name)).length >= Math.min(own.size, other.layerNames.length);
  return [...new Set(page.runs.filter(isAlike).flatMap(other => other.layerNames))];
}

function buildMaps() {
  for (const column of page.columns) {
    column.kind = column.first ? "first" : "";
    column.label = column.role === "result" ? "result's error, %" : [...column.operands].join(" / ");
    column.hint = column.role === "result" ? "relative error of the product's result"
      : `slot ${[...column.slots].join(", ")}`;
  }
  const products = page.columns.filter(column => column.first).map(({ product }) =>
    ({ product, count: page.columns.filter(column => column.product === product).length }));

  for (const run of page.runs) {
    run.stepText = html("div", { class: "muted" });
    run.warning = html("p", { class: "warning", hidden: "" });
    const head = html("thead", {},
      html("tr", {}, html("th", { class: "corner", rowspan: 2, scope: "col" }, run.name, run.stepText),
        ...products.map(({ product, count }) =>
          html("th", { class: "product first", colspan: count, scope: "colgroup" }, product))),
      html("tr", {}, ...page.columns.map(({ kind, label, hint }) =>
        html("th", { class: kind, scope: "col", title: hint }, label))));
    const body = html("tbody", {}, ...rowsOf(run).map(layer => html("tr", {},
      html("th", { scope: "row" }, ...breakable(layer)),
      ...page.columns.map(({ product, role, kind }) => {
        const cell = run.cells.get(keyOf(layer, product, role));
        if (!cell) return html("td", { class: kind }, ABSENT);
        const td = html("td", {
          class: `cell ${kind}`, tabindex: -1, role: "gridcell", "aria-selected": false,
          "data-layer": (cell.row ?? cell.result).layer, "data-product": product,
          "data-slot": cell.row ? cell.row.slot : "result", "data-operand": operandText(cell),
        }, "");
        const shown = { td, cell, text: null, background: null };
        mapCellOf.set(td, shown);
        page.mapCells.push(shown);
        return td;
      }))));
    const map = html("table", { role: "grid", "aria-label": `Heat map of ${run.name}` }, head, body);
    byId("maps").append(html("div", { class: "map" }, map, run.warning));
  }

  const maps = byId("maps");
  new ResizeObserver(() => { byId("sideways").hidden = maps.scrollWidth <= maps.clientWidth; }).observe(maps);
  const cellAt = event => mapCellOf.get(event.target.closest?.(".cell"));
  maps.addEventListener("click", event => {
    const shown = cellAt(event);
    if (shown) choose(shown.cell);
  });
  maps.addEventListener("keydown", event => {
    const shown = cellAt(event);
    if (!shown) return;
    if (event.key === "Enter" || event.key === " ") choose(shown.cell);
    else if (!moveFocus(shown.td, event.key)) return;
    event.preventDefault();
  });
  maps.addEventListener("pointermove", event => {
    const shown = cellAt(event);
    if (shown) showTip(cellTip(shown.cell), event.clientX, event.clientY);
    else hideTip();
  });
  maps.addEventListener("pointerleave", hideTip);
}

/** Moves the focus from one cell of a heat map to the next one that exists in the arrow's direction. */
function moveFocus(td, key) {
  const direction = {
    ArrowRight: node => node.nextElementSibling, ArrowLeft: node => node.previousElementSibling,
    ArrowDown: node => node.parentNode.nextElementSibling?.children[node.cellIndex],
    ArrowUp: node => node.parentNode.previousElementSibling?.children[node.cellIndex],
  }[key];
  if (!direction) return false;
  let next = direction(td);
  while (next && !mapCellOf.has(next)) next = direction(next);
  next?.focus();
  return true;
}

function cellTip({ run, layer, product, row, result }) {
  const { index } = run;
  const line = text => html("div", {}, text);
  if (result) {
    return [line(layer), line(`${product}: result`),
      line(`relative error ${withUnit(percent(at(result.error, index)), "%")}, ` +
        `cosine ${fixed(at(result.cosine, index), 5)}`)];
  }
  const text = (name, unit) => withUnit(statisticText(name, row, index), unit);
  return [line(layer), line(`${product}: ${row.operand}, slot ${row.slot}, ${row.format ?? "not quantized"}`),
    line(`SQNR ${text("sqnr", "dB")}, slope ${text("slope")}, underflow ${text("underflow", "%")}, ` +
      `saturation ${text("saturation", "%")}`)];
}

/** Writes the cells' texts and colours; called at every movement of the slider. */
function showMaps() {
  const { text, loss } = STATISTICS[page.statistic];
  for (const shown of page.mapCells) {
    const { td, cell: { row, result, run } } = shown;
    const value = row ? at(row[page.statistic], run.index) : at(result.error, run.index);
    const content = row ? statisticText(page.statistic, row, run.index) : RESULT_ERROR.text(value);
    const colours = row ? ramps.loss : ramps.error;
    const level = value !== null ? (row ? loss : RESULT_ERROR.loss)(value) : 0;
    const colour = content === ABSENT ? null : colours[Math.round(clamp(level) * (LEVELS - 1))];
    if (content !== shown.text) td.firstChild.data = shown.text = content;
    if ((colour?.background ?? "") !== shown.background) {
      td.style.backgroundColor = shown.background = colour?.background ?? "";
      td.style.color = colour?.ink ?? "";
    }
  }
  for (const run of page.runs) {
    run.stepText.textContent = run.index < 0 ? "not begun" : `step ${run.steps[run.index]}`;
    const broken = run.operands.filter(({ row }) => at(row.non_finite, run.index) > 0);
    run.warning.hidden = broken.length === 0;
    run.warning.textContent = broken.length === 0 ? "" :
      `Operands with elements that are not finite: ${broken.length}, the first ${cellText(broken[0])}.`;
  }
}

function showLegends() {
  byId("legends").replaceChildren(legend(STATISTICS[page.statistic], "loss"),
    ...(page.columns.some(column => column.role === "result") ? [legend(RESULT_ERROR, "error")] : []));
}
