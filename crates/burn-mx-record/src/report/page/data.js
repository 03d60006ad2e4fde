// ---- The data, prepared -----------------------------------------------------------------------------

const PRODUCTS = ["forward", "input gradient", "weight gradient"];
const ROLES = ["input", "output gradient", "weight", "other weight", "result"];
// A matrix product of two activations has "lhs" and "rhs" where a layer has "input" and "weight".
const ROLE_OF = { lhs: "input", rhs: "weight" };
const byOrder = (order, a, b) => (order.indexOf(a) + 1 || 99) - (order.indexOf(b) + 1 || 99);
const keyOf = (...parts) => parts.join("\n");

/**
 * Indexes a run. A cell is one operand, or one product's result; its key is layer, product and role, and is
 * what finds the same cell in another run. A key that is taken already gets a counted one.
 */
function prepare(run, number) {
  const prepared = {
    ...run, number, name: run.name ?? `run ${number + 1}`, hue: `var(--hue-${number % 8})`,
    rows: run.rows ?? [], what_if: run.what_if ?? [], results: run.results ?? [], layers: run.layers ?? [],
    elementwise: run.elementwise ?? [], not_emulated: run.not_emulated ?? [],
    index: -1, cells: new Map(), layerNames: [],
  };
  const free = (name, taken) => {
    let candidate = name;
    for (let count = 2; taken(candidate); count++) candidate = `${name} (${count})`;
    return candidate;
  };
  for (const layer of prepared.layers) {
    prepared.layerNames.push(free(layer.name, name => prepared.layerNames.includes(name)));
  }
  const add = (data, role, kind) => {
    const { product } = data;
    const layer = prepared.layerNames[data.layer] ?? `layer ${data.layer}`;
    const key = role => keyOf(layer, product, role);
    role = free(role, role => prepared.cells.has(key(role)));
    prepared.cells.set(key(role), { key: key(role), run: prepared, layer, product, role, ...kind });
  };
  for (const row of prepared.rows) add(row, ROLE_OF[row.operand] ?? row.operand, { row });
  for (const result of prepared.results) {
    // Shown in per cent everywhere.
    const inPercent = series => (series ?? []).map(value => value === null ? null : 100 * value);
    const error = inPercent(result.relative_error);
    const sums = (result.sums ?? []).map(sums => ({ ...sums, error: inPercent(sums.relative_error) }));
    add(result, "result", { result: { ...result, error, sums } });
  }
  prepared.operands = [...prepared.cells.values()].filter(cell => cell.row);
  return prepared;
}

/** The index of the latest step of the run that is not after `step`; -1 before its first. */
const indexAt = (run, step) => run.steps.findLastIndex(own => own <= step);

const operandText = cell => cell.row ? cell.row.operand : "result";
const cellText = cell => `${cell.layer}, ${cell.product}, ${operandText(cell)}`;

/** The columns of the heat maps, which all runs share. */
function columnsOf(runs) {
  const columns = new Map();
  for (const { cells } of runs) {
    for (const { product, role, row } of cells.values()) {
      const key = keyOf(product, role);
      if (!columns.has(key)) columns.set(key, { product, role, operands: new Set(), slots: new Set() });
      if (row) columns.get(key).operands.add(row.operand), columns.get(key).slots.add(row.slot);
    }
  }
  const sorted = [...columns.values()].sort((a, b) =>
    byOrder(PRODUCTS, a.product, b.product) || byOrder(ROLES, a.role, b.role));
  sorted.forEach((column, place) => { column.first = column.product !== sorted[place - 1]?.product; });
  return sorted;
}
