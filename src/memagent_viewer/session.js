// A tool session: an entry for each message, step, compaction and answer.

function sessionEntries(data, view) {
    const summaries = rebuild(data.items.map((item) => item.delta))
    let context = 0
    return data.items
        .map((item, index) => ({item, summary: summaries[index], before: index ? summaries[index - 1] : []}))
        .filter(({item}) => !item.answers)
        .map((given) => {
            const entry = new SessionEntry(given, view)
            context = given.item.after ?? given.item.prompt ?? context
            entry.tokens = context
            return entry
        })
}

class SessionEntry {
    constructor({item, summary, before}, view) {
        Object.assign(this, {item, summary, before, view})
        const described = describe[item.type](item)
        this.id = described.id ?? ""
        this.label = described.label
        this.how = described.how ?? ""
        this.gist = ["=", described.gist]
        this.type = item.type
        this.left = (item.left ?? []).length > 0
        this.changed = item.type === "compaction"
        this.stands = item.type !== "step"
        const failed = (item.calls ?? []).some((call) => call.ok === false)
        this.warns = failed || item.type === "note" || (item.notes ?? []).length > 0
        this.spent = item.cost ? item.cost[1] + item.cost[2] : 0
        this.isEnd = item.type === "answer"
    }

    get text() {
        const outputOf = (call) => texts.get(keyOf(call, this.view)) ?? call.output ?? ""
        const calls = (this.item.calls ?? []).map((call) => call.text + "\n" + outputOf(call))
        return [this.item.text ?? "", ...calls, this.item.delta ? textOf(this.summary) : ""].join("\n")
    }

    render() {
        return renderItem[this.item.type](this)
    }
}

const describe = {
    message: (item) => ({
        label: "›",
        gist: item.text,
        id: "message-" + item.number,
        how: item.number ? "message" : "task",
    }),
    note: (item) => ({label: "!", gist: item.text}),
    answer: (item) => ({label: "✓", gist: item.text, how: "answer", id: "answer"}),
    step: (item) => ({
        label: String(item.step),
        id: "step-" + item.step,
        gist: item.calls.map((call) => call.text).join("; ") || item.text || item.notes.join("; "),
    }),
    compaction: (item) => ({
        label: "⇣",
        id: "compaction-" + item.step,
        how: item.delta ? "summary " + item.stage : "compacted",
        gist: count(item.before) + " → " + count(item.after),
    }),
}

const renderItem = {
    message: ({item}) => [make("h3", {}, item.number ? "Message " + item.number : "Task"), said("div", item.text, "text")],
    note: ({item}) => [make("h3", {}, item.stopped ? "Stopped" : "Note"), said("p", item.text)],
    answer: ({item}) => [make("h3", {}, "Answer"), tellNotes(item.notes), said("div", item.text, "text")],
    step: ({item, view}) => [
        make("h3", {}, "Step " + item.step),
        tellCost(item.cost),
        tellNotes(item.notes),
        item.left.map((row) => make("p", {class: "soft"}, tellLeft(row, view))),
        item.text ? said("div", item.text, "text") : null,
        item.calls.map((call) => renderCall(call, view)),
    ],
    compaction: ({item, before, view}) => [
        make("h3", {}, "Compacted before step " + item.step),
        make("p", {class: "soft"}, count(item.before) + " to " + plural(item.after, "token") + ", by " + item.how),
        tellCost(item.cost),
        tellNotes(item.notes),
        item.delta && make("h4", {}, "Summary " + item.stage + (item.stage > 1 ? ", against the one before" : "")),
        item.delta && make("div", {class: "said text", dir: "auto"}, showChanges(textOf(before), item.delta)),
        make("h4", {}, "What left the context"),
        item.rows.length ? renderRows(item.rows, view) : make("p", {class: "soft"}, "nothing"),
    ],
}

function tellLeft(row, view) {
    const what = row.what + (row.tool ? " " + row.tool : "") + " before step " + row.at
    const size = ", " + count(row.before) + (row.after ? " to " + count(row.after) : "") + " tokens"
    return [link(what, () => view.openId("compaction-" + row.at)), size]
}

/** The key of a call's whole output. */
function keyOf(call, view) {
    return view.number + "/" + call.key
}

function renderCall(call, view) {
    const key = keyOf(call, view)
    const box = makeSource("output of the tool")
    if (call.output === null) box.append(make("em", {class: "soft"}, "no result was committed"))
    else box.append(...show(call.output))
    if (call.more) {
        const open = async () => {
            const text = await readText(key)
            if (text !== null) fillSource(box, text)
            else more.replaceWith(make("em", {class: "soft"}, "… not in this page, which would be too large with it"))
        }
        const more = button("… " + count(call.more) + " more characters", open)
        box.append(more)
        if (find.needle && fold(texts.get(key) ?? "").includes(find.needle)) open()
    }
    return make(
        "section",
        {class: "call" + (call.ok === false ? " failed" : "")},
        said("h4", call.text, "code"),
        call.ok === false ? make("p", {class: "bad"}, "failed") : null,
        tellNotes(call.notes),
        box,
    )
}

function renderRows(rows, view) {
    const cells = (row) => [
        make("td", {}, row.step < 0 ? "message" : link("step " + row.step, () => view.openId("step-" + row.step))),
        make("td", {}, row.what + (row.tool ? " " + row.tool : "")),
        make("td", {class: "number"}, count(row.before)),
        make("td", {class: "number"}, row.after ? count(row.after) : "–"),
        make("td", {}, make("code", {}, row.handle)),
    ]
    const head = ["from", "what", "tokens", "left", "archived as"].map((name) => make("th", {scope: "col"}, name))
    const body = rows.map((row) => make("tr", {}, cells(row)))
    const table = make("table", {}, make("thead", {}, make("tr", {}, head)), make("tbody", {}, body))
    return make("div", {class: "scroll", tabindex: "0"}, table)
}
