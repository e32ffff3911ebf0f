"""Suggests the word that a user most likely meant, among known words."""

from collections.abc import Iterable


def closest(word: str, known: Iterable[str]) -> str | None:
    """Returns the known word nearest to ``word`` (letters swapped, missing or doubled), or None."""
    from difflib import get_close_matches

    lowered = {k.lower(): k for k in known}
    found = get_close_matches(word.lower(), lowered, n=1, cutoff=0.6)
    return lowered[found[0]] if found else None


def hint(word: str, known: Iterable[str], what: str = "known") -> str:
    """Returns the end of a message: ``did you mean 'x'?``, or the known words (20 at most),
    introduced by ``what``, where none is near."""
    words = list(known)
    near = closest(word, words)
    if near is not None:
        return f"did you mean '{near}'?"
    if len(words) > 20:
        words = [*words[:20], f"and {len(words) - 20} more"]
    return f"{what}: {', '.join(words)}" if words else f"{what}: none"
