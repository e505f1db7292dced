// What the views share to find, make and fill elements.

const TINY = 72; // images no wider than this are shown pixel by pixel

export const byId = (id) => document.getElementById(id);

export function element(name, className, ...content) {
  const made = document.createElement(name);
  made.className = className;
  made.append(...content);
  return made;
}

export function loadImage(image, url) {
  image.onload = () => image.classList.toggle("small-picture", image.naturalWidth <= TINY);
  image.src = url;
}
