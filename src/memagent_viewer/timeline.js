// What a run had paid at each time since it began: tokens as an area, and a mark for each reply that came.

/** The figure; null for a run that was over at once, or has less than two replies. */
function makeTimeline(payments) {
    const [first, last] = [payments[0]?.[0], payments.at(-1)?.[0]]
    if (first === undefined || last - first < 0.1) return null
    const sum = (index) => payments.reduce((total, payment) => total + payment[index], 0)
    const [calls, tokens] = [sum(1), sum(2)]
    const x = (seconds) => ((1000 * Math.max(0, seconds)) / last).toFixed(1)
    let paid = 0
    const steps = payments.map(([at, , more]) => {
        paid += more
        return `H${x(at)}V${(100 - (94 * paid) / tokens).toFixed(1)}`
    })
    const area = makeSvg("path", {class: "paid", d: `M0,100${steps.join("")}V100z`})
    const marks = makeSvg("path", {class: "reply", d: payments.map(([at]) => `M${x(at)},93V100`).join("")})
    const told = `${plural(calls, "call")} and ${plural(tokens, "token")} in ${tellSeconds(last)}`
    const svg = makeSvg("svg", {...fit(1000, 100), role: "img", "aria-label": "paid over time: " + told}, area, marks)
    const ends = make("p", {class: "ends soft"}, make("span", {}, "0 s"), make("span", {}, tellSeconds(last)))
    const caption = make("figcaption", {}, make("b", {}, "paid over time"), " " + told)
    return make("div", {class: "chart timeline"}, make("figure", {}, caption, svg, ends))
}

function tellSeconds(seconds) {
    if (seconds < 60) return seconds.toFixed(seconds < 10 ? 1 : 0) + " s"
    const units = [["d", 86400], ["h", 3600], ["min", 60], ["s", 1]]
    const at = units.findIndex(([, size]) => seconds >= size)
    const [[large, size], small] = [units[at], units[at + 1]]
    const rest = small ? Math.floor((seconds % size) / small[1]) : 0
    return `${Math.floor(seconds / size)} ${large}${rest ? ` ${rest} ${small[0]}` : ""}`
}
