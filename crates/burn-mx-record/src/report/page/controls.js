// ---- Controls ---------------------------------------------------------------------------------------

function setStep(place) {
  page.step = place;
  const step = page.steps[place];
  byId("step").value = place;
  byId("step").setAttribute("aria-valuetext", `step ${step}`);
  byId("step-value").textContent = step;
  for (const run of page.runs) run.index = indexAt(run, step);
  for (const node of document.querySelectorAll(".at-step")) node.textContent = `at step ${step}`;
  showMaps();
  moveDetail();
  showSummary();
  showRanking();
  showWorst();
  if (!byId("elementwise").hidden) showElementwise();
}

function buildControls() {
  const slider = byId("step");
  slider.max = page.steps.length - 1;
  slider.addEventListener("input", () => setStep(Number(slider.value)));

  const select = byId("statistic");
  for (const [name, { label, unit }] of Object.entries(STATISTICS)) {
    select.append(html("option", { value: name }, unit ? `${label}, ${unit}` : label));
  }
  select.value = page.statistic;
  select.addEventListener("change", () => {
    page.statistic = select.value;
    showLegends();
    showMaps();
  });

  byId("worst").addEventListener("click", event => {
    const key = event.target.closest("tr[data-cell]")?.dataset.cell;
    const cell = page.runs.map(run => run.cells.get(key)).find(cell => cell);
    if (cell) choose(cell, true);
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { readRamps(); showMaps(); });
  let resizing = 0;
  window.addEventListener("resize", () => {
    cancelAnimationFrame(resizing);
    resizing = requestAnimationFrame(showDetail);
  });
}

/** The layers without emulation: their names, or where there are many, their number. "Layers" has all names. */
function notEmulated({ not_emulated }) {
  if (not_emulated.length === 0) return ABSENT;
  if (not_emulated.length > 4) return `${not_emulated.length} layers`;
  return html("span", {}, ...not_emulated.flatMap((name, place) => [place ? ", " : "", ...breakable(name)]));
}

function buildHead(data) {
  byId("title").textContent = data.title || document.title;
  const counted = (count, name) => `${count} ${name}${count === 1 ? "" : "s"}`;
  byId("runs").replaceChildren(table(
    [["Run"], ["Source"], ["Steps"], ["Products"], ["Not emulated"], ["Bits", "number"], ["Area", "number"], ["Energy, µJ", "number"]], [{
    lines: page.runs.map(run => {
      const products = new Set([...run.cells.values()].map(cell => keyOf(cell.layer, cell.product)));
      const ends = run.steps.length > 1 ? `${run.steps[0]} to ${run.steps.at(-1)}` : `${run.steps[0]}`;
      return [run.name, (run.source ?? ABSENT) + (run.thread ? `, thread ${run.thread}` : ""),
        `${counted(run.steps.length, "step")}, ${ends}`,
        `${counted(products.size, "product")} of ${counted(run.layers.length, "layer")}${run.products ? `, ${run.products}` : ""}`,
        notEmulated(run),
        fixed(run.cost?.bits ?? null, 2), fixed(run.cost?.area ?? null, 2), fixed(run.cost?.microjoules ?? null, 1)];
    }),
  }]));
  byId("thinned").hidden = !data.thinned;
  byId("thinned").textContent = data.thinned ? `Not everything is here: ${data.thinned}.` : "";
}

function start() {
  const say = text => byId("messages").append(html("p", { class: "warning" }, text));
  let data = null;
  try {
    data = JSON.parse(byId("data").textContent);
  } catch (error) {
    byId("title").textContent = document.title;
    return say(`The data of this page cannot be read: ${error.message}.`);
  }
  byId("title").textContent = data?.title || document.title;
  const all = Array.isArray(data?.runs) ? data.runs : [];
  if (all.length === 0) return say("There is nothing to show: the data of this page holds no run.");
  for (const run of all.filter(run => !run.steps?.length)) {
    say(`The run ${run.name ?? ""} has no steps: nothing was recorded in it.`);
  }
  page.runs = all.filter(run => run.steps?.length).map(prepare);
  // Runs of one name are told apart by their folders.
  const count = name => page.runs.filter(run => run.name === name).length;
  const unique = page.runs.map(run => count(run.name) > 1 && run.source ? `${run.name}, ${run.source.split("/").at(-2) ?? run.source}` : run.name);
  page.runs.forEach((run, number) => { run.name = unique[number]; });
  if (page.runs.length === 0) return;
  page.columns = columnsOf(page.runs);
  page.steps = [...new Set(page.runs.flatMap(run => run.steps))].sort((a, b) => a - b);
  buildHead(data);
  if (page.columns.length === 0) return say("There is nothing to show: no run recorded an operand or a result.");

  document.querySelector("main").hidden = false;
  readRamps();
  buildMaps();
  buildLayers();
  buildElementwise();
  buildControls();
  showLegends();
  // The widths of the charts are measured, so the page has to be there before the first cell is chosen.
  setStep(page.steps.length - 1);
  const first = page.runs[0];
  const worst = least(first.operands, cell => at(cell.row.sqnr, first.steps.length - 1));
  choose(worst ?? page.mapCells[0].cell);
}

start();
