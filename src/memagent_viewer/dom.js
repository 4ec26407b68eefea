// Elements. Whatever comes from a document, a tool or a model becomes a text node, and nothing else.

const HIDDEN =
    /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]|[\u{e0000}-\u{e007f}]/gu

/** An element; `on` names listeners, `class` and others are attributes. Null children are left out. */
function make(tag, attributes = {}, ...children) {
    const element = document.createElement(tag)
    for (const [name, value] of Object.entries(attributes)) {
        if (name.startsWith("on")) element.addEventListener(name.slice(2), value)
        else if (value !== null && value !== false) element.setAttribute(name, value === true ? "" : value)
    }
    element.append(...children.flat(9).filter((child) => child !== null && child !== undefined))
    return element
}

/** The nodes of a text: characters that can't be seen are shown by number, and what is searched for is marked. */
function show(text) {
    const nodes = []
    let from = 0
    for (const match of find.pattern ? text.matchAll(find.pattern) : []) {
        nodes.push(...showHidden(text.slice(from, match.index)), make("mark", {}, showHidden(match[0])))
        from = match.index + match[0].length
    }
    return [...nodes, ...showHidden(text.slice(from))]
}

function showHidden(text) {
    text = text.replaceAll("\r\n", "\n")
    const nodes = []
    let from = 0
    for (const match of text.matchAll(HIDDEN)) {
        const number = match[0].codePointAt(0).toString(16).toUpperCase().padStart(4, "0")
        nodes.push(text.slice(from, match.index), make("span", {class: "hidden", title: "U+" + number}, number))
        from = match.index + match[0].length
    }
    nodes.push(text.slice(from))
    return nodes.filter((node) => node !== "")
}

/** A text of the run, kept from turning around what stands beside it. */
function said(tag, text, className = "") {
    return make(tag, {class: ("said " + className).trim(), dir: "auto"}, show(text))
}

/** A text box that can be scrolled with the keyboard. */
function makeSource(label) {
    return make("div", {class: "said text source", dir: "auto", tabindex: "0", "aria-label": label})
}

/** Shows a text in its box, which is scrolled to what is searched for. */
function fillSource(box, text) {
    box.replaceChildren(...show(text))
    const mark = box.querySelector("mark")
    if (mark) box.scrollTop = mark.offsetTop - box.clientHeight / 3
}

/** Makes an element like a new one. What is alike stays in place, and with it focus, selection and listeners. */
function patch(element, fresh) {
    if (element.isEqualNode(fresh)) return
    const [old, parts] = [[...element.childNodes], [...fresh.childNodes]]
    const alike = element.cloneNode().isEqualNode(fresh.cloneNode()) && old.length === parts.length
    if (alike) old.forEach((part, place) => patch(part, parts[place]))
    else element.replaceWith(fresh)
}

function count(number) {
    return number.toLocaleString("en-US")
}

function plural(number, word) {
    return count(number) + " " + word + (number === 1 ? "" : "s")
}

function button(label, press, attributes = {}) {
    return make("button", {type: "button", onclick: press, ...attributes}, label)
}

function link(label, press) {
    return button(label, press, {class: "link"})
}

/** `1 call · 6,012 prompt + 548 completion tokens`, from the counts of the data; null for none. */
function tellCost([calls, prompt, completion, retries]) {
    if (!calls) return null
    const parts = [plural(calls, "call"), count(prompt) + " prompt + " + count(completion) + " completion tokens"]
    if (retries) parts.push(count(retries) + " sent again")
    return make("p", {class: "soft"}, parts.join(" · "))
}

function tellNotes(notes) {
    return notes.length ? make("ul", {class: "notes"}, notes.map((note) => said("li", note))) : null
}
