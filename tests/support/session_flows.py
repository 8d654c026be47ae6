"""Flows that several tests run."""

from __future__ import annotations

PRODUCT = """\
def main(input):
    one = request("number", {"which": "one"})
    two = request("number", {"which": "two"})
    return one * two
"""

SUSPENDS = PRODUCT.replace('"number"', '"suspend"')  # a program or a person may answer

APPROVAL = """\
def main(input):
    print("planning", input["goal"])
    plan = request("llm", {"prompt": input["goal"]})
    verdict = request("human", {"question": "Go on?", "plan": plan, "choices": ["approve", "reject"]}, tag="go-on")
    if verdict != "approve":
        return {"status": "rejected"}
    return {"status": "done", "plan": plan}
"""

PARTS = """\
import asyncio

async def main(input):
    parts = await asyncio.gather(*[request("part", {"n": n}) for n in range(input)])
    last = await request("last", parts)
    return {"parts": parts, "last": last}
"""

COUNTING = """\
def main(input):
    total = 0
    for turn in range(input):
        total += request("number", {"turn": turn, "total": total})
    return total
"""

SUSPENDS_OFTEN = COUNTING.replace('"number"', '"suspend"')

CHANCE = """\
import asyncio
import random
from datetime import datetime

async def main(input):
    said = []
    for turn in range(input["turns"]):
        dice = [random.randint(1, 1000000) for _ in range(3)]
        one, two = await asyncio.gather(
            request("dice", {"turn": turn, "dice": dice}),
            request("time", {"now": datetime.now().isoformat(), "chance": random.random()}),
        )
        go_on = await request("human", {"question": "Go on?", "lucky": random.randint(1, 1000000), "turn": turn})
        said.append([one, two, go_on, random.random()])
    return said
"""

CAREFUL = """\
def main(input):
    try:
        found = request("search", input)
    except RuntimeError as err:
        found = str(err)
    return {"found": found, "next": request("next", found)}
"""

QUESTION = """\
def main(input):
    return request(input.get("kind", "human"), input["payload"])
"""

TALK = """\
def main(input):
    first = request("human", {"question": "First?"})
    second = request("human", {"question": "Second?", "said": first})
    return [first, second]
"""

FLOWS = {
    "counting": COUNTING,
    "product": PRODUCT,
    "careful": CAREFUL,
    "parts": PARTS,
    "question": QUESTION,
    "talk": TALK,
    "chance": CHANCE,
}
"""The flows of the space that the unit tests of sessions share, by name."""
