// The plan of the chosen boundary: in each variant, then in full.

function lies(state) {
  return h("span", { class: `lie ${state}` }, state);
}

function moves(before, after) {
  return before === after ? [lies(before)] : [lies(before), " → ", lies(after)];
}

function axesTable(way) {
  if (!way.axes.length) return h("p", { class: "empty" }, "There is one rank: rows are not cut.");
  return table(
    [["axis"], ["parts", "n"], ["rows", "w"], ["residual", "w"]],
    way.axes.map((one) => [
      h("code", {}, one.axis),
      number(one.parts),
      moves(one.before, one.after),
      moves(one.residual_before, one.residual_after),
    ]),
  );
}

function worksTable(way) {
  return table(
    [["operation"], ["group (ranks)"], ["sizes"], ["B/token", "n"], ["kernel"]],
    way.works.map((one) => [
      h("code", {}, one.operation),
      one.group && [h("code", {}, one.group), ` (${number(one.ranks)})`],
      one.sizes,
      one.collectives ? number(one.bytes_per_token) : "",
      one.kernel && h("code", {}, one.kernel),
    ]),
  );
}

function because(way, functions) {
  const items = [h("dt", {}, "why"), h("dd", { class: "why" }, way.why)];
  const other = way.next_best;
  if (other) {
    const cost = `${plural(other.collectives, "collective")}, ${number(other.bytes_per_token)} B/token`;
    const what = other.operations.join(" + ") || "nothing";
    items.push(
      h("dt", {}, "next best"),
      h("dd", { class: "next-best" }, h("code", {}, what), ` (${cost}): ${other.verdict}`),
    );
  }
  if (way.no_scatter) {
    items.push(h("dt", {}, "reduce-scatter"), h("dd", { class: "no-scatter" }, way.no_scatter));
  }
  return h("dl", { class: "because" }, items, runsAs(functions));
}

function wayView(one) {
  const way = one.way;
  const head = [h("h4", {}, way.when || "all batches")];
  const batch = batchOf(planOf());
  if (batch && one.runs) {
    head.push(h("span", { class: "badge" }, `runs with ${plural(batch.tokens, "token")}`));
  }
  const body = [h("div", { class: "tables" }, h("div", { class: "scroll" }, axesTable(way)), h("div", { class: "scroll" }, worksTable(way))), because(way, one.functions)];
  return h("details", { class: "way", open: one.runs }, h("summary", {}, head), body);
}

/** What each variant does at the boundary; a row for each of its ways that the batch may take. */
function variantsTable(boundary) {
  const topology = topologyOf(chosen.topology);
  const rows = topology.variants.flatMap((variant) => {
    const plan = planOf(variant);
    const on = variant === chosen.variant;
    const none = chosen.tokens !== null && !batchOf(plan) ? " (no such batch)" : "";
    const ways = waysOf(plan, boundary).filter((way) => way.runs);
    return ways.map((one, at) => {
      const name = on ? variant : link(variant, () => update({ variant }));
      const sends = one.sends ? h("code", {}, one.sends) : "nothing";
      const { when, collectives, bytes_per_token: bytes } = one.way;
      const cells = [at ? "" : name, sends, number(collectives), number(bytes), when + none];
      return Object.assign(cells, { on });
    });
  });
  const left = topology.left_out.map((one) => [one.variant, `not here: ${one.why}`]);
  const head = [["variant", "w"], ["sends"], ["collectives", "n"], ["B/token", "n"], ["batches"]];
  return h("div", { class: "scroll" }, table(head, [...rows, ...left]));
}

function decides(crossing) {
  const items = crossing.levers.map((place) => {
    const lever = data.levers[place];
    const where = lever.line
      ? link(`line ${lever.line}`, () => update({ yaml: lever.line, line: 0, reveal: "yaml" }))
      : h("span", {}, "not written");
    return h("li", {}, where, " ", h("code", {}, lever.path), " ", h("span", {}, lever.effect));
  });
  return [h("h4", {}, "Decided by"), h("ul", { class: "decides" }, items)];
}

/** What a way runs as: links to the functions in the modules of the chosen variant. */
function runsAs(functions) {
  const items = functions.map((name) => {
    const { file, first, origin } = definitionOf(name);
    const show = () => update({ file: file.path, line: first, yaml: 0, reveal: "code" });
    const says = data.origins[origin].says;
    return h("li", {}, link(name, show, { class: "link mono" }), " ", h("span", {}, says));
  });
  return [h("dt", {}, "runs as"), h("dd", {}, h("ul", { class: "decides functions" }, items))];
}

function definitionOf(name) {
  for (const file of modulesOf(chosen.topology, chosen.variant)) {
    const line = file.lines.find((one) => data.origins[one.origin].name === name);
    if (line) return { file, ...line };
  }
  throw new Error(`${name} is in no module of ${chosen.topology}, ${chosen.variant}`);
}

function renderPlan() {
  const plan = planOf();
  const stands = data.boundaries[chosen.edge];
  const boundary = stands[chosen.boundary];
  const crossing = data.crossings[plan.crossings[boundary]];
  const picks = stands.map((one, at) =>
    h(
      "button",
      {
        type: "button",
        "aria-pressed": String(at === chosen.boundary),
        onclick: () => update({ boundary: at }),
      },
      data.crossings[plan.crossings[one]].place,
    ),
  );
  find("plan").replaceChildren(
    h(
      "div",
      {},
      h("h3", {}, crossing.boundary),
      stands.length > 1 ? "" : h("p", { class: "place" }, crossing.place),
    ),
    stands.length > 1 ? h("div", { class: "pick", role: "group", "aria-label": "Where" }, picks) : "",
    h("p", {}, crossing.words),
    variantsTable(boundary),
    ...waysOf(plan, boundary)
      .sort((one, other) => other.runs - one.runs)
      .map(wayView),
    h("div", {}, decides(crossing)),
  );
}
