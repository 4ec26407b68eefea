// Memories, rebuilt from how each differs from the one before.

/** The text after each delta (null: nothing written), in parts that know which delta they are from. */
function rebuild(deltas) {
    let parts = []
    return deltas.map((delta, index) => {
        if (delta && delta.length) parts = apply(parts, delta, index)
        return parts
    })
}

function apply(parts, delta, index) {
    const next = []
    const add = (text, born) => {
        const last = next.at(-1)
        if (last && last.born === born) last.text += text
        else if (text) next.push({text, born})
    }
    let at = 0
    let used = 0
    for (const operation of delta) {
        if (typeof operation === "string") {
            add(operation, index)
            continue
        }
        for (let left = Math.abs(operation); left > 0; ) {
            const part = parts[at]
            const text = part.text.slice(used, used + left)
            if (operation > 0) add(text, part.born)
            left -= text.length
            used += text.length
            if (used === part.text.length) [at, used] = [at + 1, 0]
        }
    }
    return next
}

function textOf(parts) {
    return parts.map((part) => part.text).join("")
}

/** What a delta did to a text: pairs of `=`, `-` or `+` and the text. */
function explain(before, delta) {
    let at = 0
    const done = []
    for (const operation of delta) {
        if (typeof operation === "string") done.push(["+", operation])
        else {
            const end = at + Math.abs(operation)
            done.push([operation > 0 ? "=" : "-", before.slice(at, end)])
            at = end
        }
    }
    return done
}

function showChanges(before, delta) {
    const tags = {"=": "span", "-": "del", "+": "ins"}
    return explain(before, delta).map(([sign, text]) => make(tags[sign], {}, show(text)))
}

/** The largest thing that a delta added, else removed, with its sign; null if it did nothing. */
function gistOf(before, delta) {
    let best = null
    for (const [sign, text] of explain(before, delta)) {
        if (sign === "=") continue
        const better = best === null || (sign === "+" && best[0] === "-")
        if (better || (sign === best[0] && text.trim().length > best[1].length)) best = [sign, text.trim()]
    }
    return best
}
