"""Decides the demo model's next step by plain rules: look for documents, read the best ones, quote what they say.

Pure and deterministic: the same request always gets the same step. It says in every text that it is no language model.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from providers.demo.conversation import Conversation, Made, Offered
from providers.demo.extraction import findings, keywords, mentions, sentences_of

NOTICE = "This is AgentLoom's demo model, not a language model: it picks tools and sentences by plain rules."

_PATH = re.compile(r"(?<![\w./-])[\w.-]+(?:/[\w.-]+)*\.(?:md|rst|txt|py|toml|ya?ml|json|cfg|ini|csv)\b")
_RESULT_REF = re.compile(r'"result_ref":\s*"([^"]+)"')
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?")
_MOST_READS = 4
_READS_PER_STEP = 2
_ENOUGH_MATERIAL = 12_000  # characters of results; its window holds 32 768 bytes
_PAGE_CHARS = 4_000
_QUOTES = 6
_SUMMARY_SHARE = 4  # a summary is at most a quarter of its material


@dataclass(frozen=True, slots=True)
class Ask:
    """One call the demo model asks for."""

    name: str
    arguments: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Step:
    """What comes next: calls, or else a text."""

    calls: tuple[Ask, ...] = ()
    text: str = ""


def next_step(conversation: Conversation) -> Step:
    """The step for this request."""
    if not conversation.tools:
        wants_summary = "summar" in conversation.system.lower()
        return Step(text=_summary(conversation) if wants_summary else _plain_answer(conversation))
    for rule in (_look, _look_wider, _read, _page, _use_what_fits):
        if calls := tuple(rule(conversation)):
            return Step(calls=calls)
    return Step(text=_answer(conversation))


def _look(conversation: Conversation) -> Iterator[Ask]:
    """First: list the documents and search for the question's words, both at once."""
    if conversation.made:
        return
    words = keywords(conversation.question)
    if lister := conversation.tool("list_files", "list_doc", "list_dir"):
        folder = lister.parameter("folder", "path", "dir")
        yield Ask(lister.name, {folder: "docs"} if folder else {})
    if words and (search := _search_tool(conversation)):
        yield Ask(search.name, {search.parameter("word", "query", "text", "pattern") or "query": " ".join(words[:2])})


def _look_wider(conversation: Conversation) -> Iterator[Ask]:
    """Nothing to read was found: search for one word, and list from the top."""
    search, lister = _search_tool(conversation), conversation.tool("list_files", "list_doc", "list_dir")
    if _candidates(conversation) or conversation.tool("read") is None:
        return
    words = keywords(conversation.question)
    if words and search and len(conversation.calls_of(search)) == 1:
        yield Ask(search.name, {search.parameter("word", "query", "text", "pattern") or "query": words[0]})
    if lister and len(conversation.calls_of(lister)) == 1:
        folder = lister.parameter("folder", "path", "dir")
        yield Ask(lister.name, {folder: "."} if folder in lister.required else {})


def _read(conversation: Conversation) -> Iterator[Ask]:
    """Then: read the most promising documents, two at a time."""
    reader = conversation.tool("read_file", "read_doc", "read_text")
    path = reader.parameter("path", "file", "name") if reader else None
    if reader is None or path is None:
        return
    read = [str(call.arguments.get(path)) for call in conversation.calls_of(reader)]
    if len(read) >= _MOST_READS or sum(len(call.result) for call in conversation.made) > _ENOUGH_MATERIAL:
        return
    fresh = [candidate for candidate in _candidates(conversation) if candidate not in read]
    for candidate in fresh[: min(_READS_PER_STEP, _MOST_READS - len(read))]:
        yield Ask(reader.name, {path: candidate})


def _page(conversation: Conversation) -> Iterator[Ask]:
    """A result that was shown in part is paged once."""
    pager = conversation.tool("result_read")
    if pager is None or conversation.calls_of(pager):
        return
    words = keywords(conversation.question)
    cut = [call for call in conversation.made if _RESULT_REF.search(call.result)]
    best = max(cut, key=lambda call: mentions(call.result, words), default=None)
    found = _RESULT_REF.search(best.result) if best else None
    if found:
        page = {"offset": 0, "limit": _PAGE_CHARS}
        yield Ask(pager.name, {"result_ref": found[1]} | {k: v for k, v in page.items() if k in pager.properties})


def _use_what_fits(conversation: Conversation) -> Iterator[Ask]:
    """Other tools: one whose name the question mentions, if its arguments can be taken from the question."""
    if conversation.made:
        return
    asked = set(re.findall(r"[a-z0-9]+", conversation.question.lower()))
    for tool in conversation.tools:
        named = set(re.findall(r"[a-z0-9]+", tool.name.lower())) - {"get", "the", "tool"}
        arguments = {name: _filled(tool.properties.get(name, {}), conversation.question) for name in tool.required}
        if named and named <= asked and None not in arguments.values():
            yield Ask(tool.name, arguments)
            return


def _filled(schema: Mapping[str, Any], question: str) -> object:
    """A value for a required argument, or None if the question has none."""
    if "enum" in schema:
        return next((value for value in schema["enum"] if str(value).lower() in question.lower()), None)
    if schema.get("type") in ("integer", "number"):
        found = _NUMBER.search(question)
        return None if found is None else float(found[0]) if "." in found[0] else int(found[0])
    if schema.get("type", "string") != "string":
        return None
    quoted = re.search(r'"([^"]+)"', question)
    named = re.search(r"\b(?:in|for|at|of) ([A-Z][\w-]+)", question)
    return quoted[1] if quoted else named[1] if named else question


def _search_tool(conversation: Conversation) -> Offered | None:
    return conversation.tool("search_files", "search_doc", "search", "grep")


def _candidates(conversation: Conversation) -> list[str]:
    """Paths that the results mention, the most promising first: named like the question, documents before code."""
    words = keywords(conversation.question)
    readers = {tool.name for tool in conversation.tools if "read" in tool.name.lower()}
    scores: dict[str, float] = {}
    for call in conversation.made:
        for place, path in enumerate(dict.fromkeys(_paths(call)) if call.name not in readers else (), 1):
            scores[path] = scores.get(path, 0) + _promise(path, call, words, place)
    return [path for path in sorted(scores, key=lambda path: (-scores[path], path)) if scores[path] > 0]


def _paths(call: Made) -> list[str]:
    """The paths a result is about: the entries of a list, else whatever in the text looks like one."""
    try:
        listed = json.loads(call.result)
    except ValueError:
        listed = None
    entries = listed if isinstance(listed, list) else []
    named = [entry.get("path") if isinstance(entry, dict) else entry for entry in entries]
    return [name for name in named if isinstance(name, str) and _PATH.fullmatch(name)] or _PATH.findall(call.result)


def _promise(path: str, call: Made, words: Sequence[str], place: int) -> float:
    named = 3 * mentions(path.replace("/", " "), words)
    found = 2 + 4 / place if "search" in call.name.lower() else 0  # whoever searched tells the best first
    is_prose = path.endswith((".md", ".rst"))
    return named + found + (4 if is_prose else 0)


def _answer(conversation: Conversation) -> str:
    words = keywords(conversation.question)
    found = findings(_sources(conversation), words, limit=_QUOTES)
    if not found:
        used = ", ".join(dict.fromkeys(call.name for call in conversation.made)) or "no tool"
        return f"{NOTICE}\n\nI used {used} and found nothing that speaks about: {', '.join(words) or 'the question'}."
    quotes = "\n".join(f"- {finding.sentence} ({finding.source})" for finding in found)
    return f"{NOTICE}\n\nWhat I found about {', '.join(words[:4])}:\n\n{quotes}"


def _sources(conversation: Conversation) -> list[tuple[str, str]]:
    """What was read, by document; else every result by its tool."""
    useful = [call for call in conversation.made if call.result and not call.result.startswith('{"error"')]
    reads = [call for call in useful if "read" in call.name.lower()]
    return [(_source_name(call), call.result) for call in reads or useful]


def _source_name(call: Made) -> str:
    values = [value for value in call.arguments.values() if isinstance(value, str) and _PATH.fullmatch(value)]
    return values[0] if values else call.name


def _plain_answer(conversation: Conversation) -> str:
    about = ", ".join(keywords(conversation.question)[:5])
    return f"{NOTICE}\n\nThere are no tools to look anything up with" + (f" about: {about}." if about else ".")


def _summary(conversation: Conversation) -> str:
    """The sentences that share most words with the whole, in their order, within the room there is."""
    material = conversation.material
    room = min(conversation.max_tokens or len(material), max(200, len(material.encode()) // _SUMMARY_SHARE))
    words = keywords(material, limit=30)
    ranked = sorted(sentences_of(material), key=lambda sentence: -mentions(sentence, words) / (20 + len(sentence)))
    chosen: list[str] = []
    room -= len(NOTICE.encode()) + 20
    for sentence in dict.fromkeys(ranked):
        if (size := len(sentence.encode()) + 3) <= room:
            chosen.append(sentence)
            room -= size
    listed = "\n".join(f"- {sentence}" for sentence in sorted(chosen, key=material.find))
    return f"{NOTICE}\n\nExtracted:\n{listed}"
