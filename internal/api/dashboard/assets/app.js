// The dashboard works without this file. It adds what a page cannot do by itself:
// a pause for the live figures, a question before what cannot be undone, a copy
// button, and a word when the node does not answer any more.
(function () {
  "use strict";

  var paused = false;
  var pause = document.getElementById("pause");
  if (pause) {
    pause.hidden = false;
    pause.addEventListener("click", function () {
      paused = !paused;
      pause.setAttribute("aria-pressed", String(paused));
      pause.textContent = paused ? "Go on" : "Pause";
    });
  }

  // Nobody looks: nothing is asked for. Nor while something inside the part that
  // would be replaced has the focus, since that would lose its place.
  document.addEventListener("htmx:beforeRequest", function (event) {
    var part = event.detail.elt;
    if (paused || document.hidden || (part && part !== document.activeElement && part.contains(document.activeElement))) {
      event.preventDefault();
    }
  });

  var offline = document.getElementById("offline");
  function answering(yes) {
    return function () {
      if (offline) {
        offline.hidden = yes;
      }
    };
  }
  document.addEventListener("htmx:sendError", answering(false));
  document.addEventListener("htmx:timeout", answering(false));
  document.addEventListener("htmx:afterOnLoad", answering(true));

  document.addEventListener("submit", function (event) {
    var question = event.target.getAttribute("data-confirm");
    if (question && !window.confirm(question)) {
      event.preventDefault();
    }
  });

  document.querySelectorAll("button[data-copy]").forEach(function (button) {
    if (!navigator.clipboard) {
      return;
    }
    button.hidden = false;
    button.addEventListener("click", function () {
      navigator.clipboard.writeText(document.getElementById(button.getAttribute("data-copy")).textContent).then(function () {
        button.textContent = "Copied";
      });
    });
  });

  // On a phone the navigation is a strip: show where we are in it.
  var here = document.querySelector(".side nav [aria-current]");
  if (here) {
    var strip = here.closest("nav");
    strip.scrollLeft = here.offsetLeft - (strip.clientWidth - here.offsetWidth) / 2;
  }
})();
