// Asks for a plan whenever something is moved, and shows what comes; of several questions the last counts.
(() => {
  const form = document.querySelector("form"), token = new URLSearchParams(location.search).get("token");
  const units = { bytes: ["B", "kB", "MB", "GB", "TB", "PB"], rate: ["B/s", "kB/s", "MB/s", "GB/s", "TB/s", "PB/s"] };
  let asked = 0, waiting = null;

  const value = input => input.dataset.log ? +(10 ** input.value).toPrecision(2) : +input.value;
  function told(input) {
    const number = value(input), kind = input.dataset.kind;
    if (input.dataset.off !== undefined && +input.value <= +input.min) return input.dataset.off;
    if (units[kind]) {
      const power = Math.min(5, Math.max(0, Math.floor(Math.log10(number) / 3)));
      return +(number / 1000 ** power).toPrecision(3) + " " + units[kind][power];
    }
    if (kind === "seconds") return number >= 1 ? number + " s" : number >= 1e-3 ? +(number * 1e3).toPrecision(3) + " ms" : +(number * 1e6).toPrecision(3) + " us";
    return String(number);
  }
  async function ask() {
    const mine = ++asked, query = new URLSearchParams({ token });
    for (const input of form.querySelectorAll("input")) {
      form.querySelector(`output[for=${input.id}]`).textContent = told(input);
      if (input.dataset.off === undefined || +input.value > +input.min) query.set(input.name, value(input));
    }
    const answer = await fetch("/plan?" + query).then(got => got.json()).catch(() => ({ error: "forebay explore has ended" }));
    if (mine !== asked) return;
    document.querySelector("#seconds").textContent = answer.seconds || "no plan";
    document.querySelector("#explained").textContent = answer.error || answer.explained;
    document.querySelector("#drawn").innerHTML = answer.drawn || "";
    document.body.dataset.answered = mine;
  }
  form.addEventListener("input", () => { clearTimeout(waiting); waiting = setTimeout(ask, 60); });
  ask();
})();
