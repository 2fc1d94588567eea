// The stage graph: its plates say what the chosen batch sends, and one of them is chosen.

const LONGEST = 41;
const edges = [...document.querySelectorAll(".edge")];

function cut(text, most) {
  return text.length > most ? `${text.slice(0, most - 1)}…` : text;
}

/** What an edge sends, and how many bytes, where all that it stands for send the same. */
function sent(plan, edge) {
  const ways = data.boundaries[edge].flatMap((boundary) =>
    waysOf(plan, boundary).filter((way) => way.runs),
  );
  const texts = [...new Set(ways.map((way) => way.sends))];
  const bytes = new Set(ways.map((way) => way.way.bytes_per_token));
  const text = texts.map((one) => one || "nothing").join(" or ");
  return { text: text === "nothing" ? "" : text, bytes: bytes.size === 1 ? [...bytes][0] : null };
}

function renderGraph() {
  const plan = planOf();
  const names = new Map(data.graph.nodes.map((node) => [node.id, node.name]));
  edges.forEach((element, at) => {
    const edge = data.graph.edges[at];
    const { text, bytes } = sent(plan, at);
    const met = [];
    if (edge.input) met.push("its input");
    if (edge.times > 1) met.push(`×${number(edge.times)}`);
    if (bytes) met.push(`${number(bytes)} B/token`);
    if (bytes === null) met.push("bytes differ");
    const named = `${names.get(edge.source)} to ${names.get(edge.target)}`;
    const full = [named, text || "nothing is sent", ...met].join(", ");
    element.querySelector("title").textContent = full;
    element.querySelector(".sends").textContent = cut(text || "nothing is sent", LONGEST);
    element.querySelector(".met").textContent = met.join(" · ");
    element.classList.toggle("silent", !text);
    element.classList.toggle("lone", !met.length);
    element.setAttribute("aria-label", full);
    const on = at === chosen.edge;
    element.setAttribute("aria-checked", on);
    element.setAttribute("tabindex", on ? 0 : -1);
  });
}

const STEPS = { ArrowDown: 1, ArrowRight: 1, ArrowUp: -1, ArrowLeft: -1 };

function chooseEdge(at, focus) {
  update({ edge: at, boundary: 0 });
  if (focus) edges[at].focus();
}

edges.forEach((element, at) => {
  element.addEventListener("click", () => chooseEdge(at, false));
  element.addEventListener("keydown", (event) => {
    if (event.key in STEPS) chooseEdge((at + STEPS[event.key] + edges.length) % edges.length, true);
    else if (event.key === " " || event.key === "Enter") chooseEdge(at, true);
    else return;
    event.preventDefault();
  });
});
