// Moves the book's explorable figures (tutorials_lib/explore.py): each range input picks one
// coordinate of the frame that is shown. Plain DOM, no dependencies; the page works without it,
// showing the first frame and links to the others.
(function () {
  "use strict";

  // A slider held down passes many frames; only the one it rests on is spoken.
  const QUIET_MS = 700;

  function enliven(figure) {
    const inputs = Array.from(figure.querySelectorAll(".explore-control input"));
    const frames = Array.from(figure.querySelectorAll(".explore-frame"));
    const controls = figure.querySelector(".explore-controls");
    const said = figure.querySelector(".explore-said");
    const sizes = inputs.map((input) => Number(input.max) + 1);
    const texts = inputs.map((input) => JSON.parse(input.dataset.texts));
    let shown = frames.findIndex((frame) => !frame.hidden);
    let timer = 0;

    function update() {
      let index = 0;
      inputs.forEach((input, axis) => {
        const position = Number(input.value);
        const text = texts[axis][position];
        index = index * sizes[axis] + position;
        input.setAttribute("aria-valuetext", text);
        input.parentElement.querySelector("output").textContent = text;
      });
      if (index === shown) return;
      frames[index].hidden = false;
      frames[shown].hidden = true;
      shown = index;
      window.clearTimeout(timer);
      timer = window.setTimeout(() => {
        said.textContent = frames[index].querySelector("svg").getAttribute("aria-label");
      }, QUIET_MS);
    }

    inputs.forEach((input) => input.addEventListener("input", update));
    controls.hidden = false;
    figure.dataset.moves = "";
    update();
  }

  function start() {
    document.querySelectorAll("figure.explore").forEach(enliven);
  }

  if (document.readyState === "loading") {
    document.addEventListener("DOMContentLoaded", start);
  } else {
    start();
  }
})();
