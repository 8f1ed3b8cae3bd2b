// Tells what is pointed at in a chart, and zooms where something is dragged over; a double click shows all again.
(() => {
  const tip = document.body.appendChild(Object.assign(document.createElement("div"), { id: "tip" }));
  const FINEST = 2000, told = new WeakMap();
  let pressed = null;

  const range = chart => (chart.dataset.range || `0 ${chart.dataset.end}`).split(" ").map(Number);
  const at = (field, event) => {
    const box = field.getBoundingClientRect(), [from, to] = range(field.closest("svg.fb"));
    const share = Math.min(1, Math.max(0, (event.clientX - box.left) / box.width));
    const up = 1 - (event.clientY - box.top) / box.height, low = +field.dataset.low, high = +field.dataset.high;
    return [from + share * (to - from), low + up * (high - low)];
  };
  const seconds = value => value.toPrecision(4) + " " + "s";

  function show(field, event) {
    if (!told.has(field)) told.set(field, JSON.parse(field.dataset.tips || "[]"));
    const [x, y] = at(field, event), chart = field.closest("svg.fb");
    const found = told.get(field).find(([a, b, low, high]) => a <= x && x < b && low <= y && y < high);
    const when = chart.dataset.across === "seconds" ? `at ${seconds(x)}` : "";
    const text = [found ? found[4] : "", when].filter(Boolean).join("\n");
    tip.textContent = text;
    tip.style.display = text ? "block" : "none";
    tip.style.left = Math.max(4, Math.min(event.clientX + 14, innerWidth - tip.offsetWidth - 6)) + "px";
    tip.style.top = Math.max(4, Math.min(event.clientY + 14, innerHeight - tip.offsetHeight - 6)) + "px";
  }

  function zoom(chart, from, to) {
    const end = +chart.dataset.end;
    chart.dataset.range = `${from} ${to}`;
    for (const field of chart.querySelectorAll(".fb-data"))
      field.setAttribute("viewBox", `${from / end * FINEST} 0 ${(to - from) / end * FINEST} ${FINEST}`);
    const ticks = chart.querySelector(".fb-ticks"), y = ticks.firstElementChild.getAttribute("y");
    const scale = 10 ** Math.floor(Math.log10((to - from) / 6));
    const apart = [1, 2, 5, 10].map(times => times * scale).find(step => (to - from) / step <= 6);
    ticks.replaceChildren();
    for (let n = Math.ceil(from / apart - 1e-9); n * apart <= to * (1 + 1e-12); n++) {
      const text = document.createElementNS("http://www.w3.org/2000/svg", "text");
      text.setAttribute("x", (n * apart - from) / (to - from) * 100 + "%");
      text.setAttribute("y", y);
      text.setAttribute("text-anchor", "middle");
      text.textContent = +(n * apart).toPrecision(6);
      ticks.append(text);
    }
  }

  const field = event => event.target.closest ? event.target.closest(".fb-data") : null;
  document.addEventListener("pointermove", event => field(event) ? show(field(event), event) : tip.style.display = "none");
  document.addEventListener("pointerdown", event => {
    pressed = field(event) && [field(event), at(field(event), event)[0]];
    if (pressed && event.pointerType === "mouse") event.preventDefault();
  });
  document.addEventListener("pointerup", event => {
    if (!pressed || event.pointerType !== "mouse") return;
    const chart = pressed[0].closest("svg.fb"), [from, to] = [pressed[1], at(pressed[0], event)[0]].sort((a, b) => a - b);
    const shown = range(chart);
    if (chart.dataset.across === "seconds" && to - from > 0.01 * (shown[1] - shown[0])) zoom(chart, from, to);
    pressed = null;
  });
  document.addEventListener("dblclick", event => {
    const chart = event.target.closest("svg.fb");
    if (chart && chart.dataset.across === "seconds") zoom(chart, 0, +chart.dataset.end);
  });
  document.addEventListener("scroll", () => tip.style.display = "none", { passive: true });
})();
