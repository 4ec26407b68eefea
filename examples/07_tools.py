"""A task with tools in a context of fixed size: what was dropped from it, and what each call cost.

    python examples/07_tools.py

The task is to find the heaviest of a hundred items by weighing them two at a time. The game's expert plays instead of
a model. It sees only what a model would see, so it also loses what isn't in the summary.
"""

from memagent import ScriptedModel, ToolAgent
from memagent.events import Acted, Compacted
from memagent_bench.games import expert, make

game = make("heaviest", seed=1, difficulty=100)
player = expert("heaviest")
# Tokens are bytes here. With a server: ToolAgent("vllm:NAME", game.tools, working_context=4096).
model = ScriptedModel(lambda request: player.reply(request.messages, request.kind), window=16_384)

with ToolAgent(model, game.tools, working_context=10_000, max_steps=200, store=None) as agent:
    result = agent.run(game.task)
    prompts: list[int] = []
    for event in agent.store.events(result.run_id):  # `agent.stream` yields them as they occur
        if isinstance(event, Acted):
            prompts.append(event.prompt_tokens)
        elif isinstance(event, Compacted):
            done = event.compaction
            left = [change for change in done.changes if change.what in ("summarised", "dropped")]
            tokens = f"{done.tokens_before:,} to {done.tokens_after:,} tokens"
            print(f"step {event.step}: {len(left)} steps left, {tokens}: {done.summary}")

right = game.finish(result.answer or "")
print(f"{result.stop_reason}: {result.answer}, {'right' if right else 'wrong'}")
print(f"{result.steps} steps, {result.summaries} summaries, {len(model.requests)} calls")
print(f"the longest prompt of a step had {max(prompts):,} tokens")
