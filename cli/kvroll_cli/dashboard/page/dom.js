// Makes elements, and changes what is on the page into what it shall be, without touching what is the same: the reader's focus,
// selection and opened details stay.

const SVG = "http://www.w3.org/2000/svg";
const SVG_TAGS = new Set(["svg", "rect", "polyline", "title", "line"]);

/** An element; `attributes` that are null or false are left out, children may be strings, elements, lists, or null for none. */
export function el(tag, attributes = {}, ...children) {
  const made = SVG_TAGS.has(tag) ? document.createElementNS(SVG, tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== null && value !== false && value !== undefined) made.setAttribute(name, value === true ? "" : value);
  }
  // append() makes text nodes of strings: what the cluster says is never read as HTML.
  for (const child of children.flat(3)) if (child !== null && child !== undefined && child !== false) made.append(child);
  return made;
}

/** Makes `old` what `fresh` is; both are the same kind of element. `open` of details is the reader's. */
export function morph(old, fresh) {
  for (const { name } of [...old.attributes]) if (!fresh.hasAttribute(name) && name !== "open") old.removeAttribute(name);
  for (const { name, value } of [...fresh.attributes]) if (old.getAttribute(name) !== value) old.setAttribute(name, value);
  morphChildren(old, [...fresh.childNodes]);
}

function morphChildren(parent, wanted) {
  const byKey = new Map([...parent.children].filter((child) => child.id).map((child) => [child.id, child]));
  wanted.forEach((fresh, place) => {
    const keyed = fresh.id ? byKey.get(fresh.id) : undefined;
    // What stands before it goes, rather than that it moves: an element that is moved loses the focus.
    while (keyed && parent.childNodes[place] !== keyed && !parent.childNodes[place]?.id) parent.childNodes[place].remove();
    const there = parent.childNodes[place];
    const match = keyed ?? (there && !there.id && isSameKind(there, fresh) ? there : undefined);
    if (!match) {
      parent.insertBefore(fresh, there ?? null);
      return;
    }
    if (match !== there) parent.insertBefore(match, there ?? null);
    if (match.nodeType !== Node.TEXT_NODE) morph(match, fresh);
    else if (match.data !== fresh.data) match.data = fresh.data;
  });
  while (parent.childNodes.length > wanted.length) parent.lastChild.remove();
}

function isSameKind(one, other) {
  return one.nodeType === other.nodeType && one.nodeName === other.nodeName && !other.id;
}
